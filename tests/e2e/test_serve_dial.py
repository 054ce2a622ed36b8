"""`playhead serve … --dial URL` as a process: an endpoint of `websockets`, signals, exit codes."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from tests.e2e.command import HANG_SECONDS, playhead, start
from tests.servers.audio_tools import AUDIO_TOOLS
from tests.servers.messages import initialize, request

TOKEN = "eyJhbGciOiJFUzI1NiJ9.c2VjcmV0"


@contextmanager
def endpoint(
    handler: Callable[[ServerConnection], None],
    process_request: Callable[[ServerConnection, Request], Response | None] | None = None,
) -> Iterator[str]:
    """The URL of an endpoint on loopback."""
    with serve(handler, "127.0.0.1", 0, process_request=process_request) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}/mcp/?token={TOKEN}"
        finally:
            server.shutdown()
            thread.join(HANG_SECONDS)


@pytest.mark.parametrize(
    ("arguments", "tools"),
    [
        (["audio", "--mixer", "memory"], AUDIO_TOOLS),
        (["template"], ["calculator", "web_search", "document_analyzer", "knowledge_graph"]),
    ],
    ids=["audio", "template"],
)
def test_tools_are_listed_over_the_connection_and_sigterm_closes_it(
    arguments: list[str], tools: list[str]
) -> None:
    listed: list[str] = []
    answered, closed = threading.Event(), threading.Event()
    code: int | None = None

    def device(websocket: ServerConnection) -> None:
        nonlocal code
        greeting = initialize("2024-11-05", name="XiaozhiMCPEndpointClient")
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        for message in (greeting, initialized, request("tools/list", id=2)):
            websocket.send(json.dumps(message))
        while not listed:
            answer = json.loads(websocket.recv())
            listed.extend(tool["name"] for tool in answer["result"].get("tools", []))
        answered.set()
        with suppress(ConnectionClosed):
            websocket.recv()
        code = websocket.close_code
        closed.set()

    with endpoint(device) as url:
        # The token is in the environment, and not in the command line, which every process can read.
        words = ["serve", *arguments, "--dial", url.replace(TOKEN, "${MUSIC_TOKEN}")]
        with start(words, MUSIC_TOKEN=TOKEN) as process:
            try:
                assert answered.wait(HANG_SECONDS)
                process.send_signal(signal.SIGTERM)
                assert process.wait(HANG_SECONDS) == 0
                assert closed.wait(HANG_SECONDS)
            finally:
                process.kill()
            said = process.stderr.read().decode()
    assert listed == tools
    assert code == 1001
    assert said == f"playhead {arguments[0]} server: connected to {url.replace(TOKEN, '…')}\n"


def test_ctrl_c_ends_a_server_whose_endpoint_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    url = f"ws://127.0.0.1:{port}/mcp/?token={TOKEN}"
    with start(["serve", "template", "--dial", url]) as process:
        try:
            said = process.stderr.readline().decode()
            assert said.startswith("playhead template server: could not connect to ws://127.0.0.1:")
            assert said.endswith("; trying again\n")
            process.send_signal(signal.SIGINT)
            assert process.wait(HANG_SECONDS) == 130
        finally:
            process.kill()
        said += process.stderr.read().decode()
    assert TOKEN not in said


def test_a_wrong_token_is_exit_code_3() -> None:
    def refuse(websocket: ServerConnection, _request: Request) -> Response:
        return websocket.respond(HTTPStatus.UNAUTHORIZED, "unknown token\n")

    with endpoint(lambda _: None, refuse) as url:
        done = playhead("serve", "template", "--dial", url)
    assert done.code == 3
    assert "refused access (HTTP 401): the token is wrong" in done.stderr
    assert TOKEN not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dial", "https://music.example.org/mcp"], "expected a URL like wss://"),
        (["--dial", "ws://192.168.1.25/mcp"], "expected wss:// to dial another machine"),
        (["--dial", "wss://music.example.org/?token=${NO_SUCH_TOKEN}"], "NO_SUCH_TOKEN is not set"),
        (["--dial", "wss://music.example.org/", "--port", "1"], "does not go with --port"),
        (["--dial", "wss://music.example.org/", "--transport", "http"], "does not go with --transport"),
    ],
)
@pytest.mark.parametrize("server", ["audio", "template"])
def test_what_cannot_be_dialled_is_a_usage_error(server: str, words: list[str], said: str) -> None:
    done = playhead("serve", server, *words)
    assert done.code == 2
    assert said in " ".join(done.stderr.split())
