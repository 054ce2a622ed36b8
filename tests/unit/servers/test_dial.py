"""Servers that connect to an endpoint: what xiaozhi's endpoint sends, and all the ways in which it goes away.

The endpoint is trio-websocket's, or frames of wsproto where the connection has to break. Its messages are
those of xinnan-tech/xiaozhi-esp32-server, through the relay xinnan-tech/mcp-endpoint-server: several devices
share one WebSocket, each opens with `initialize`, sends two more messages without waiting for the answer, and
has `{uuid}_n_` put before its ids. No subprotocol is offered.
"""

from __future__ import annotations

import json
import random
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

import pytest
import trio
import trio.testing
import trustme
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest
from wsproto import WSConnection
from wsproto.events import CloseConnection, TextMessage

from playhead.client.transports import websocket_opening
from playhead.errors import ConnectError, UsageError
from playhead.servers.dial import DialOptions, check_endpoint, dial
from playhead.servers.template import TemplateServerOptions
from playhead.servers.template.serve import open_template_server, serve
from playhead.servers.websocket import websocket_endpoint
from tests.servers.messages import initialize, request
from tests.servers.websocket_peer import Handler, listening, raw_websocket

TOKEN = "eyJhbGciOiJFUzI1NiJ9.c2VjcmV0"
QUICK = DialOptions(first_seconds=0.001, last_seconds=0.002)
SECONDS = 20.0
"""No test takes long; one that does hangs."""

Capture = pytest.CaptureFixture[str]


def hello(device: str) -> list[str]:
    """The messages that the endpoint sends when a device connects, in one go."""
    who, capabilities = "XiaozhiMCPEndpointClient", {"roots": {"listChanged": True}, "sampling": {}}
    messages: list[dict[str, Any]] = [
        initialize("2024-11-05", id=f"{device}_n_1", name=who, **capabilities),
        {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}},
        request("tools/list", id=f"{device}_n_2"),
    ]
    return [json.dumps(message, ensure_ascii=False) for message in messages]


def call(device: str, number: int, expression: str) -> str:
    arguments = {"expression": expression}
    asked = request("tools/call", id=f"{device}_n_{number}", name="calculator", arguments=arguments)
    return json.dumps(asked, ensure_ascii=False)


async def answers(websocket: WebSocketConnection, count: int) -> dict[str, Any]:
    """The results of the next `count` answers by id."""
    found = [json.loads(await websocket.get_message()) for _ in range(count)]
    return {answer["id"]: answer["result"] for answer in found}


async def dial_template(url: str, options: DialOptions = QUICK) -> None:
    async with open_template_server() as server:
        await dial(websocket_endpoint(server), url, name="template", options=options)


@asynccontextmanager
async def dialled(handler: Handler) -> AsyncIterator[None]:
    """The template server, connected to an endpoint of this handler."""
    with trio.fail_after(SECONDS):
        async with listening(handler) as url, trio.open_nursery() as nursery:
            nursery.start_soon(dial_template, f"{url}?token={TOKEN}")
            yield
            nursery.cancel_scope.cancel()


async def refusal_of(handler: Handler) -> ConnectError:
    """The error that ends a server, whose endpoint has this handler."""
    with pytest.raises(BaseExceptionGroup) as caught:
        async with dialled(handler):
            await trio.sleep_forever()
    error: BaseException = caught.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, ConnectError)
    return error


async def test_the_endpoint_is_answered_for_every_device_that_it_forwards(capsys: Capture) -> None:
    done = trio.Event()

    async def endpoint(request: WebSocketRequest) -> None:
        assert request.proposed_subprotocols == ()
        assert request.path == f"/mcp?token={TOKEN}"
        websocket = await request.accept()
        await websocket.ping()  # returns with the pong
        for device in (str(uuid4()), str(uuid4())):
            for message in hello(device):
                await websocket.send_message(message)
            found = await answers(websocket, 2)
            assert found[f"{device}_n_1"]["serverInfo"]["name"] == "playhead-template"
            assert found[f"{device}_n_1"]["protocolVersion"] == "2024-11-05"
            assert found[f"{device}_n_2"]["tools"][0]["name"] == "calculator"
            await websocket.send_message(call(device, 3, "6 * 7"))
            found = await answers(websocket, 1)
            assert found[f"{device}_n_3"]["content"][0]["text"] == "42"
        done.set()
        await trio.sleep_forever()

    async with dialled(endpoint):
        await done.wait()
    said = capsys.readouterr().err
    assert said.startswith("template: connected to ws://localhost:")
    assert said.endswith("/mcp?token=…\n"), "one line, without the token"


async def test_it_survives_100_dropped_connections(capsys: Capture) -> None:
    drops = 0
    works = trio.Event()

    async def endpoint(stream: trio.SocketStream, connection: WSConnection) -> None:
        nonlocal drops
        device = str(uuid4())
        for message in hello(device):
            await stream.send_all(connection.send(TextMessage(data=message)))
        text = ""
        while f"{device}_n_1" not in text or f"{device}_n_2" not in text:  # a session of its own each time
            connection.receive_data(bytes(await stream.receive_some()))
            for event in connection.events():
                assert isinstance(event, TextMessage)
                text += event.data
        assert '"serverInfo"' in text
        assert '"error"' not in text
        if drops == 100:
            works.set()
            await trio.sleep_forever()
        drops += 1
        if drops % 2:
            await stream.send_all(connection.send(CloseConnection(code=1001, reason="restart")))

    with trio.fail_after(SECONDS):
        async with raw_websocket(endpoint) as url, trio.open_nursery() as nursery:
            nursery.start_soon(dial_template, f"{url}?token={TOKEN}")
            await works.wait()
            nursery.cancel_scope.cancel()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 201
    assert lines[1].endswith("/mcp?token=… ended (code 1001, restart); trying again")
    assert lines[3].endswith("/mcp?token=… ended (code 1006); trying again")
    assert not any(TOKEN in line for line in lines)


@pytest.mark.parametrize(("status", "said"), [(401, "HTTP 401"), (403, "HTTP 403"), (404, "HTTP 404")])
async def test_a_refused_upgrade_ends_the_server(status: int, said: str) -> None:
    attempts = 0

    async def endpoint(request: WebSocketRequest) -> None:
        nonlocal attempts
        attempts += 1
        await request.reject(status)

    error = await refusal_of(endpoint)
    assert said in str(error)
    assert TOKEN not in str(error)
    assert attempts == 1


async def test_a_token_that_is_refused_after_the_upgrade_ends_the_server() -> None:
    async def endpoint(request: WebSocketRequest) -> None:  # as mcp-endpoint-server
        websocket = await request.accept()
        await websocket.aclose(code=1008, reason="token解密失败")

    error = await refusal_of(endpoint)
    assert "refused access (code 1008, token解密失败)" in str(error)


async def test_a_failing_endpoint_is_tried_again_and_reported_once(capsys: Capture) -> None:
    attempts = 0
    connected = trio.Event()

    async def endpoint(request: WebSocketRequest) -> None:
        nonlocal attempts
        attempts += 1
        if attempts <= 10:
            await request.reject(503)
            return
        await request.accept()
        connected.set()
        await trio.sleep_forever()

    async with dialled(endpoint):
        await connected.wait()
        await trio.testing.wait_all_tasks_blocked()
    assert attempts == 11
    first, second = capsys.readouterr().err.splitlines()
    assert "503" in first
    assert first.endswith("trying again")
    assert second.startswith("template: connected to ")


async def test_a_message_that_is_too_long_ends_the_connection_alone() -> None:
    codes: list[int] = []
    again = trio.Event()

    async def endpoint(request: WebSocketRequest) -> None:
        websocket = await request.accept()
        if codes:
            again.set()
            await trio.sleep_forever()
        await websocket.send_message("x" * (2 << 20))
        with pytest.raises(ConnectionClosed) as closed:
            await websocket.get_message()
        assert closed.value.reason is not None
        codes.append(int(closed.value.reason.code))

    async with dialled(endpoint):
        await again.wait()
    assert codes == [1009]


async def test_a_certificate_that_is_not_trusted_is_not_accepted(capsys: Capture) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    said = ""

    async def endpoint(request: WebSocketRequest) -> NoReturn:
        pytest.fail("it connected")

    with trio.fail_after(SECONDS):
        async with listening(endpoint, tls=context) as url, trio.open_nursery() as nursery:
            nursery.start_soon(dial_template, f"{url}?token={TOKEN}")
            while not said:
                await trio.testing.wait_all_tasks_blocked()
                said = capsys.readouterr().err
            nursery.cancel_scope.cancel()
    assert "certificate" in said
    assert TOKEN not in said


async def test_tls_with_a_trusted_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    found: dict[str, Any] = {}
    done = trio.Event()

    async def endpoint(request: WebSocketRequest) -> None:
        websocket = await request.accept()
        for message in hello("device"):
            await websocket.send_message(message)
        found.update(await answers(websocket, 2))
        done.set()

    with trio.fail_after(SECONDS):
        async with listening(endpoint, tls=context) as url, trio.open_nursery() as nursery:
            nursery.start_soon(dial_template, url)
            await done.wait()
            nursery.cancel_scope.cancel()
    assert url.startswith("wss://")
    assert set(found) == {"device_n_1", "device_n_2"}


async def test_the_time_between_attempts_doubles_up_to_a_minute(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []

    async def unreachable(*_: object, **__: object) -> NoReturn:
        times.append(trio.current_time())
        if len(times) == 10:
            scope.cancel()
        await trio.lowlevel.checkpoint()
        raise ConnectError("nobody listens")

    async def endpoint(_: object) -> NoReturn:
        pytest.fail("it connected")

    monkeypatch.setattr(websocket_opening, "open_stream", unreachable)
    monkeypatch.setattr(random, "uniform", lambda low, high: (low, high) == (0.5, 1.0) and high)
    with trio.CancelScope() as scope:
        await dial(endpoint, "wss://music.example.org/mcp", name="test")
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60, 60])


@pytest.mark.parametrize("is_up", [True, False])
async def test_sigterm_waits_for_no_attempt(is_up: bool, capsys: Capture) -> None:
    async def endpoint(request: WebSocketRequest) -> None:
        if not is_up:
            await request.reject(503)
            return
        await request.accept()
        await trio.sleep_forever()

    slow = DialOptions(first_seconds=1000 * SECONDS, last_seconds=1000 * SECONDS)
    with trio.fail_after(SECONDS):
        async with listening(endpoint) as url, trio.open_nursery() as nursery:
            nursery.start_soon(dial_template, url, slow)
            while not capsys.readouterr().err:
                await trio.testing.wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://music.example.org/?token=s3cr3t-s3cr3t", "expected a URL like wss://"),
        ("wss:///?token=s3cr3t-s3cr3t", "expected a URL like wss://"),
        ("wss://music.example.org:port/?token=s3cr3t-s3cr3t", "expected a URL like wss://"),
        ("ws://music.example.org/?token=s3cr3t-s3cr3t", "expected wss://"),
        ("ws://192.168.1.25:8004/mcp_endpoint/mcp/?token=s3cr3t-s3cr3t", "expected wss://"),
    ],
)
async def test_only_urls_that_keep_the_token_are_dialled(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        await serve(TemplateServerOptions(dial=url))
    assert "s3cr3t" not in str(caught.value)
    assert "s3cr3t" not in repr(TemplateServerOptions(dial=url))


def test_loopback_needs_no_tls() -> None:
    check_endpoint("ws://127.0.0.1:8004/mcp_endpoint/mcp/?token=abc")
