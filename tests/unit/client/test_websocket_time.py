"""The WebSocket transport in simulated time: what it waits for, and what it doesn't."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
import trio
import trio.testing
from mcp.shared.message import SessionMessage
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Request, TextMessage

from playhead.client.transports import websocket as websocket_module
from playhead.client.transports.websocket import WebSocketTransport, websocket_transport
from playhead.client.transports.websocket_opening import WebSocketOptions
from playhead.client.transports.websocket_wire import FrameStream
from playhead.errors import ConnectionLostError, WebSocketClosedError

Stream = trio.StapledStream[Any, Any]
Script = Callable[[Stream, WSConnection], Awaitable[None]]
ASK = SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/list"))
NOTE = json.dumps(
    {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}
)


@asynccontextmanager
async def client_of(
    script: Script, monkeypatch: pytest.MonkeyPatch, *, options: WebSocketOptions | None = None
) -> AsyncIterator[tuple[WebSocketTransport, Any, Any]]:
    ours, theirs = trio.testing.memory_stream_pair()

    async def open_stream(*_place: object, **_tls: object) -> Stream:
        return ours

    async def serve() -> None:
        connection = WSConnection(ConnectionType.SERVER)
        connection.receive_data(bytes(await theirs.receive_some()))
        assert isinstance(next(connection.events()), Request)
        await theirs.send_all(connection.send(AcceptConnection()))
        await script(theirs, connection)

    monkeypatch.setattr(websocket_module, "open_stream", open_stream)
    transport = websocket_transport("ws://server/mcp", options=options)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with transport as (read, write):
            yield transport, read, write
        nursery.cancel_scope.cancel()


async def silence(_stream: Stream, _connection: WSConnection) -> None:
    await trio.sleep_forever()


async def test_the_servers_last_words_are_read_before_a_broken_connection_is_called_broken(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leave(stream: Stream, connection: WSConnection) -> None:
        words = connection.send(TextMessage(data=NOTE))
        await stream.send_all(words + connection.send(CloseConnection(code=1011, reason="out of tape")))
        await stream.aclose()

    async with client_of(leave, monkeypatch) as (transport, read, write):
        await trio.testing.wait_all_tasks_blocked()  # the note lies there, and the close frame behind it
        await write.send(ASK)
        await trio.testing.wait_all_tasks_blocked()  # it could not be written
        assert isinstance((await read.receive()).message, types.JSONRPCNotification)
        failed = (await read.receive()).message.error.data
        assert isinstance(failed, WebSocketClosedError)
        assert (failed.code, failed.reason) == (1011, "out of tape")
        assert transport.failure is failed


async def test_nobody_waits_for_room_in_the_queue_of_a_lost_connection(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = trio.Event()

    async def close(stream: Stream, connection: WSConnection) -> None:
        await full.wait()
        await stream.send_all(connection.send(CloseConnection(code=1001)))
        await trio.sleep_forever()

    async def stuck(_self: object, _event: object) -> None:
        await trio.sleep_forever()

    sent = 0

    async def send(number: int) -> None:
        nonlocal sent
        request = types.JSONRPCRequest(jsonrpc="2.0", id=number, method="tools/list")
        await write.send(SessionMessage(request))
        sent += 1

    monkeypatch.setattr(FrameStream, "send", stuck)
    with trio.fail_after(100):
        async with client_of(close, monkeypatch) as (_transport, read, write), trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(send, number)
            await trio.testing.wait_all_tasks_blocked()
            assert sent < 100
            full.set()
            failed = {item.message.id async for item in read}
            assert failed == set(range(100))
    assert sent == 100


async def test_ctrl_c_does_not_wait_for_the_closing_handshake(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = trio.current_time()
    with pytest.raises(BaseExceptionGroup) as caught:
        async with client_of(silence, monkeypatch):
            raise KeyboardInterrupt
    assert caught.value.subgroup(KeyboardInterrupt) is not None
    assert trio.current_time() == began


async def test_leaving_waits_a_bounded_time_for_a_silent_server(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = trio.current_time()
    async with client_of(silence, monkeypatch):
        pass
    assert trio.current_time() - began == pytest.approx(websocket_module.CLOSE_SECONDS)


async def test_a_server_is_not_given_up_while_the_session_does_not_take_what_it_said(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk(stream: Stream, connection: WSConnection) -> None:
        await stream.send_all(connection.send(TextMessage(data=NOTE)))
        await trio.sleep_forever()

    options = WebSocketOptions(ping_seconds=20, pong_seconds=60)
    async with client_of(talk, monkeypatch, options=options) as (transport, read, write):
        await write.send(ASK)
        await trio.sleep(1000)
        assert transport.failure is None
        assert transport.statistics().pings == 0
        await read.receive()
        lost = (await read.receive()).message.error.data
        assert type(lost) is ConnectionLostError
        assert transport.statistics().pings == 1
