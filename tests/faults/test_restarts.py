"""Servers that go away and come back under a running stream: every byte arrives, each loss is mended once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import trio

from playhead.client import connect
from playhead.config.servers import ServerConfig
from playhead.errors import ConnectError, ConnectionLostError, ServerEndedError, SessionLostError
from playhead.stream.options import StreamOptions
from playhead.stream.strategies import ResourceRequest
from tests.servers.launch import http_process, pages_command
from tests.servers.payload import Payload
from tests.servers.raw_http import Exchange, raw_http
from tests.servers.scripted_stdio import scripted_stdio

PAGE = {"contents": [{"uri": "x:", "blob": "eHh4"}]}
SIZE = 2 * 1024 * 1024


@pytest.mark.requirement("MCP-09")
async def test_a_stream_survives_a_server_that_is_killed_and_comes_back_with_other_sessions(
    tmp_path: Path,
) -> None:
    command = pages_command(
        "http", "--behaviour", "die-once", "--size", SIZE, "--once", tmp_path / "happened"
    )
    with trio.fail_after(60):
        # The handshake of the old era makes sessions; those of the first process are unknown to the second.
        async with http_process(command, restart=True) as url, connect(url, mode="legacy") as session:
            (link,) = (await session.call_tool("link")).links
            async with session.open(link) as stream:
                data = await stream.read_all()
            assert session.statistics().reconnects == 1
    assert (tmp_path / "happened").exists()
    assert hashlib.sha256(data).hexdigest() == Payload(size_bytes=SIZE).sha256()


async def test_a_renewal_that_fails_is_an_ordinary_failure_of_each_read_and_is_tried_once_at_a_time() -> None:
    readers = 5
    waiting = 0
    all_wait = trio.Event()
    under_way = most_under_way = 0
    refuse = trio.Event()
    """Set: handshakes succeed again."""

    async def handle(exchange: Exchange) -> None:
        nonlocal waiting
        if exchange.headers["mcp-session-id"] != "s-1":
            await exchange.result(PAGE)
            return
        waiting += 1
        if waiting == readers:
            all_wait.set()
        await all_wait.wait()
        await exchange.body(b"", status=404, kind="text/plain")

    async with raw_http(handle, session="s") as server, connect(server.url, mode="legacy") as session:

        async def greet(exchange: Exchange) -> bool:
            nonlocal under_way, most_under_way
            if exchange.method != "initialize" or refuse.is_set():
                return await server.handshake(exchange)
            under_way += 1
            most_under_way = max(most_under_way, under_way)
            await trio.testing.wait_all_tasks_blocked()
            await exchange.body(b"", status=503, headers="retry-after: 4\r\n")
            under_way -= 1
            return True

        server.greet = greet

        async def read() -> None:
            with pytest.raises(ConnectError) as caught:
                await session.read_resource("x:")
            assert caught.value.retry_after_seconds == 4.0

        async with trio.open_nursery() as nursery:
            for _ in range(readers):
                nursery.start_soon(read)
        assert most_under_way == 1
        assert server.methods.count("initialize") == 2
        refuse.set()
        with pytest.raises(SessionLostError):
            await session.read_resource("x:")
        assert (await session.read_resource("x:")).blobs == ("eHh4",)
        assert server.methods.count("initialize") == 3


MORTAL = """
for _ in range(7):
    read = take("resources/read")
    asked = read["params"]["arguments"]
    blob = base64.b64encode((bytes(range(256)) * 4096)[asked["start"]:asked["end"]]).decode()
    say(id=read["id"], result={"contents": [{"uri": "x:", "blob": blob}]})
take("resources/read")
os.kill(os.getpid(), 9)
"""


def mortal(restart: str) -> ServerConfig:
    return ServerConfig(
        name="mortal",
        command=tuple(scripted_stdio(MORTAL)),
        mode="legacy",
        restart=restart,  # type: ignore[arg-type]
        range_strategy="arguments",
        extra_arguments={"url": "x:"},
    )


async def test_a_stream_survives_a_process_that_is_killed_again_and_again() -> None:
    options = StreamOptions(page_bytes=64 * 1024)
    with trio.fail_after(60):
        async with connect(mortal("always")) as session, session.open("x:", options=options) as stream:
            data = await stream.read_all()
            assert session.statistics().reconnects >= 2
    assert data == bytes(range(256)) * 4096


@pytest.mark.parametrize(("restart", "served"), [("never", 7), ("once", 14)])
async def test_a_process_that_may_not_be_started_again_is_told_apart_from_a_lost_connection(
    restart: str, served: int
) -> None:
    answers = 0

    async def read_on() -> None:
        nonlocal answers
        while True:
            try:
                await session.read_range(ResourceRequest(uri="x:", arguments={"start": 0, "end": 10}))
                answers += 1
            except ServerEndedError:
                raise
            except ConnectionLostError:
                pass  # it died: the next read starts it, if it may

    async with connect(mortal(restart)) as session:
        with pytest.raises(ServerEndedError, match=f"restart = '{restart}'"):
            await read_on()
        assert answers == served
