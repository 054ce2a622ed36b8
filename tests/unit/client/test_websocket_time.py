"""The WebSocket carrier in simulated time: what it waits for, and what it doesn't."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, CloseConnection, Event, Ping, Request, TextMessage

from playhead.client.transports import websocket as websocket_module
from playhead.client.transports import websocket_opening
from playhead.client.transports.websocket import WebSocketCarrier
from playhead.client.transports.websocket_opening import WebSocketOptions
from playhead.errors import ConnectionLostError, WebSocketClosedError
from tests.carrier_driver import Driver

Stream = trio.StapledStream[Any, Any]
Script = Callable[[Stream, WSConnection], Awaitable[None]]
NOTE = json.dumps(
    {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}
)
OPTIONS = WebSocketOptions(ping_seconds=20, pong_seconds=60)


@asynccontextmanager
async def client_of(script: Script, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Driver]:
    ours, theirs = trio.testing.memory_stream_pair()

    async def open_stream(*_place: object, **_tls: object) -> Stream:
        return ours

    async def serve() -> None:
        connection = WSConnection(ConnectionType.SERVER)
        connection.receive_data(bytes(await theirs.receive_some()))
        assert isinstance(next(connection.events()), Request)
        await theirs.send_all(connection.send(AcceptConnection()))
        await script(theirs, connection)

    monkeypatch.setattr(websocket_opening, "open_stream", open_stream)
    driver = Driver()
    driver.carrier = WebSocketCarrier("ws://server/mcp", options=OPTIONS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with driver.carrier.open(driver):
            yield driver
        nursery.cancel_scope.cancel()


async def silence(_stream: Stream, _connection: WSConnection) -> None:
    await trio.sleep_forever()


async def events(stream: Stream, connection: WSConnection) -> AsyncIterator[Event]:
    while connection.state is not ConnectionState.CLOSED and (data := await stream.receive_some()):
        connection.receive_data(bytes(data))
        for event in connection.events():
            yield event


async def test_the_servers_last_words_are_read_before_a_broken_connection_is_called_broken(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def leave(stream: Stream, connection: WSConnection) -> None:
        await stream.receive_stream.aclose()
        await asked.wait()
        words = connection.send(TextMessage(data=NOTE))
        await stream.send_all(words + connection.send(CloseConnection(code=1011, reason="out of tape")))
        await trio.sleep_forever()

    async def ask() -> None:
        with pytest.raises(WebSocketClosedError):
            await client.ask()

    asked = trio.Event()
    async with client_of(leave, monkeypatch) as client, trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()  # it could not be written
        asked.set()
        await client.notification()
        failure = await client.error(1)
        assert isinstance(failure, WebSocketClosedError)
        assert (failure.code, failure.reason) == (1011, "out of tape")
        assert await client.end() is failure


async def test_a_connection_that_takes_nothing_and_says_nothing_is_lost(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(stream: Stream, _connection: WSConnection) -> None:
        await stream.receive_stream.aclose()
        await trio.sleep_forever()

    async with client_of(deaf, monkeypatch) as client:
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(WebSocketClosedError, match="accepts no more messages"):
            await client.ask()
        await client.error(1)


async def test_nobody_waits_to_send_to_a_lost_connection(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = trio.Event()

    async def close(stream: Stream, connection: WSConnection) -> None:
        await full.wait()
        await stream.send_all(connection.send(CloseConnection(code=1001)))
        await trio.sleep_forever()

    refused = 0

    async def send() -> None:
        nonlocal refused
        with pytest.raises(WebSocketClosedError):
            await client.ask()
        refused += 1

    async def stuck() -> None:
        await trio.sleep_forever()

    with trio.fail_after(100):
        async with client_of(close, monkeypatch) as client, trio.open_nursery() as nursery:
            client.carrier._stream.send_stream.send_all_hook = stuck  # type: ignore[attr-defined]
            for _ in range(100):
                nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            assert refused == 0
            full.set()
            assert {(await client.event()).id for _ in range(100)} == set(range(1, 101))  # type: ignore[union-attr]
    assert refused == 100


async def test_a_request_that_is_cancelled_before_its_first_byte_is_not_sent_and_not_cancelled_there(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame is sent whole or not at all: half of one would end the connection."""
    heard: list[Any] = []
    room = trio.Event()

    async def listen(stream: Stream, connection: WSConnection) -> None:
        async for event in events(stream, connection):
            if isinstance(event, TextMessage):
                message = json.loads(event.data)
                heard.append((message["method"], message.get("id")))

    async with client_of(listen, monkeypatch) as client:
        carrier = client.carrier
        carrier._stream.send_stream.send_all_hook = room.wait  # type: ignore[attr-defined]
        begun, queued = client.request("tools/call"), client.request("tools/call")
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(carrier.request, begun)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(carrier.request, queued)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        for request in (begun, queued):
            cancellation = client.exchange.cancel(request.id)
            assert cancellation is not None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: carrier.tell(cancellation, given_up=request))  # noqa: B023
                await trio.testing.wait_all_tasks_blocked()
                room.set()
        await trio.testing.wait_all_tasks_blocked()
    assert heard == [("tools/call", 1), ("notifications/cancelled", None)]


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


async def test_a_server_that_works_on_a_request_and_answers_no_ping_is_not_cut_off(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinged: list[float] = []

    async def work(stream: Stream, connection: WSConnection) -> None:
        async for event in events(stream, connection):
            if isinstance(event, Ping):
                pinged.append(trio.current_time())
            if isinstance(event, Ping) and len(pinged) == 50:
                result = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}})
                await stream.send_all(connection.send(TextMessage(data=result)))

    async with client_of(work, monkeypatch) as client:
        began = trio.current_time()
        await client.ask()
        await trio.sleep(1000.5)
        assert client.failure is None
        assert [at - began for at in pinged] == [pytest.approx(20 * number) for number in range(1, 51)]
        assert await client.result(1) == {}
        await trio.sleep_until(began + 1079)
        assert client.signs_of_life == [None]
        with pytest.raises(trio.TooSlowError), trio.fail_after(1):
            await client.end()
        await trio.sleep_until(began + 1081)
        assert isinstance(client.failure, ConnectionLostError)


async def test_a_subscription_does_not_hide_that_the_server_is_gone(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(silence, monkeypatch) as client:
        began = trio.current_time()
        await client.carrier.request(client.exchange.request("subscriptions/listen", {}, id="listen-1"))
        await trio.sleep(100)
        assert isinstance(client.failure, ConnectionLostError)
        assert "sent nothing for 80 s, not even a pong" in str(client.failure)
        assert trio.current_time() - began == pytest.approx(100)


async def test_a_sign_of_life_that_does_not_arrive_costs_the_callers_time_only(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(silence, monkeypatch) as client:
        with trio.move_on_after(5) as scope:
            await client.carrier.ping()
        assert scope.cancelled_caught
        assert client.failure is None
