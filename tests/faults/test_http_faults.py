"""Faults below JSON-RPC: each fails the request that it hit, with its own error, and nothing else."""

from __future__ import annotations

import logging
import socket
import struct

import pytest
import trio
from trio.testing import MockClock

from playhead.client import Session, connect
from playhead.config.servers import ServerConfig
from playhead.content.formats import Base64Text
from playhead.errors import (
    AccessDeniedError,
    ConnectError,
    ConnectionLostError,
    DeadlineError,
    HttpStatusError,
    PlayheadError,
    ServerError,
    SessionLostError,
)
from tests.servers.raw_http import Exchange, Handler, raw_http

PAGE = {"contents": [{"uri": "x:", "blob": "eHh4"}]}


async def read(session: Session) -> tuple[Base64Text | bytes, ...]:
    return (await session.read_resource("x:")).blobs


def first_then_pages(fault: Handler) -> Handler:
    """A handler that does `fault` to the first request and answers the others."""
    struck = False

    async def handle(exchange: Exchange) -> None:
        nonlocal struck
        if struck:
            await exchange.result(PAGE)
        else:
            struck = True
            await fault(exchange)

    return handle


async def hang_up(exchange: Exchange) -> None:
    await exchange.hang_up()


async def reset_body(exchange: Exchange) -> None:
    await exchange.raw(b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{")
    exchange.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await exchange.hang_up()


async def speak_nonsense(exchange: Exchange) -> None:
    await exchange.raw(b"SMTP ready\r\n\r\n")
    await exchange.hang_up()


async def answer_500(exchange: Exchange) -> None:
    await exchange.body(b"oh", status=500, kind="text/plain")


async def answer_403(exchange: Exchange) -> None:
    await exchange.body(b"no", status=403, kind="text/plain")


async def answer_html(exchange: Exchange) -> None:
    await exchange.body(b"<html>", kind="text/html")


async def a_notification(exchange: Exchange) -> None:
    await exchange.json({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})


@pytest.mark.requirement("MCP-41")
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (hang_up, ConnectionLostError),
        (reset_body, ConnectionLostError),
        (speak_nonsense, ConnectionLostError),
        (a_notification, HttpStatusError),
    ],
    ids=lambda value: value.__name__,
)
async def test_a_fault_fails_its_request_and_the_next_one_works(
    fault: Handler, error: type[PlayheadError]
) -> None:
    async with raw_http(first_then_pages(fault)) as server, connect(server.url) as session:
        with pytest.raises(error):
            await read(session)
        assert await read(session) == ("eHh4",)
        assert session.statistics().reconnects == 0


async def test_the_other_requests_in_flight_live_through_a_fault() -> None:
    struck = trio.Event()
    answered: list[tuple[Base64Text | bytes, ...]] = []

    async def handle(exchange: Exchange) -> None:
        if exchange.message["params"]["uri"] == "x:bad":
            await exchange.hang_up()
            struck.set()
        else:
            await struck.wait()
            await exchange.result(PAGE)

    async with raw_http(handle) as server, connect(server.url) as session:

        async def good() -> None:
            answered.append(await read(session))

        async def bad() -> None:
            with pytest.raises(ConnectionLostError):
                await session.read_resource("x:bad")

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(good)
            nursery.start_soon(bad)
    assert answered == [("eHh4",)] * 4


@pytest.mark.requirement("MCP-21", "MCP-33")
@pytest.mark.parametrize("code", [-32000, -32001, -32600, 0, -32603])
async def test_a_code_sent_by_the_peer_is_its_answer(code: int) -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.error(code, "Connection closed")

    async with raw_http(handle) as server, connect(server.url) as session:
        with pytest.raises(ServerError) as caught:
            await read(session)
        assert caught.value.code == code


@pytest.mark.requirement("MCP-09")
@pytest.mark.parametrize("with_body", [True, False])
async def test_a_lost_session_is_renewed_once_for_all_who_wait(with_body: bool) -> None:
    readers = 5
    waiting = 0
    all_wait = trio.Event()

    async def handle(exchange: Exchange) -> None:
        nonlocal waiting
        if exchange.headers["mcp-session-id"] != "s-1":
            await exchange.result(PAGE)
            return
        waiting += 1
        if waiting == readers:
            all_wait.set()
        await all_wait.wait()
        if with_body:
            await exchange.error(-32600, "Session not found", status=404)
        else:
            await exchange.body(b"", status=404, kind="text/plain")

    async with raw_http(handle, session="s") as server, connect(server.url) as session:

        async def lost() -> None:
            with pytest.raises(SessionLostError):
                await read(session)
            assert await read(session) == ("eHh4",)

        async with trio.open_nursery() as nursery:
            for _ in range(readers):
                nursery.start_soon(lost)
        assert server.methods.count("initialize") == 2
        assert session.statistics().reconnects == 1


@pytest.mark.requirement("MCP-05", "MCP-12")
async def test_silence_ends_a_read_and_is_cancelled_on_the_wire(mock_clock: MockClock) -> None:
    async def handle(exchange: Exchange) -> None:
        if exchange.message["params"]["uri"] == "x:":
            mock_clock.jump(31)
            await trio.sleep_forever()
        await exchange.result(PAGE)

    async with raw_http(handle) as server, connect(server.url) as session:
        with pytest.raises(DeadlineError, match=r"127\.0\.0\.1.*resources/read in 30 s"):
            await read(session)
        assert (await session.read_resource("x:other")).blobs == ("eHh4",)
        while "notifications/cancelled" not in server.methods:
            await trio.testing.wait_all_tasks_blocked()


async def test_a_handshake_that_hangs_costs_its_allowance_once(autojump_clock: MockClock) -> None:
    async def never(exchange: Exchange) -> None:
        await trio.sleep_forever()

    async with raw_http(never) as server:
        server.greet = _no_handshake
        began = trio.current_time()
        with pytest.raises(ConnectError, match=r"handshake in 10 s"):
            async with connect(server.url):
                raise AssertionError("connected")
        assert trio.current_time() - began == pytest.approx(10, abs=1)


async def _no_handshake(_exchange: Exchange) -> bool:
    return False


async def test_a_web_page_is_not_taken_for_a_server() -> None:
    async with raw_http(answer_html) as server:
        server.greet = _no_handshake
        with pytest.raises(ConnectError, match="text/html instead of JSON"):
            async with connect(server.url):
                raise AssertionError("connected")


async def test_refused_credentials_are_named_and_not_asked_twice() -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.body(b"", status=401, kind="text/plain")

    async with raw_http(refuse) as server:
        server.greet = _no_handshake
        with pytest.raises(ConnectError, match="HTTP 401") as caught:
            async with connect(server.url):
                raise AssertionError("connected")
        assert isinstance(caught.value.__cause__, AccessDeniedError)
        assert server.methods == ["server/discover"]


async def test_a_port_where_nobody_listens_is_one_error() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/mcp"
        with pytest.raises(ConnectError, match="check that the server is running there"):
            async with connect(url):
                raise AssertionError("connected")


async def test_a_server_slow_to_take_a_cancellation_holds_up_nobody(mock_clock: MockClock) -> None:
    async def handle(exchange: Exchange) -> None:
        if exchange.message["params"]["uri"] == "x:":
            mock_clock.jump(31)
            await trio.sleep_forever()
        await exchange.result(PAGE)

    async with raw_http(handle) as server:

        async def stubborn(exchange: Exchange) -> bool:
            if exchange.method == "notifications/cancelled":
                await trio.sleep_forever()
            return await server.handshake(exchange)

        server.greet = stubborn
        async with connect(server.url) as session:
            with pytest.raises(DeadlineError):
                await read(session)
            assert (await session.read_resource("x:other")).blobs == ("eHh4",)


async def test_secrets_are_in_no_error_repr_or_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "hush-hush-42"
    seen: list[str] = []
    for fault in (hang_up, answer_500, answer_403, answer_html):
        async with raw_http(first_then_pages(fault)) as server:
            host = server.url.removeprefix("http://")
            config = ServerConfig(
                name="quiet", url=f"http://user:{secret}@{host}?key={secret}", headers={"X-Key": secret}
            )
            async with connect(config) as session:
                with pytest.raises(PlayheadError) as caught:
                    await read(session)
                seen += [str(caught.value), repr(config), session.name]
            assert any(headers.get("x-key") == secret for headers in server.headers)
            assert any(headers.get("authorization", "").startswith("Basic ") for headers in server.headers)
    assert secret not in "".join(seen)
    assert secret not in caplog.text


async def test_a_header_that_cannot_be_sent_is_not_quoted() -> None:
    config = ServerConfig(name="x", url="http://127.0.0.1:9/mcp", headers={"X-Key": "hush\nhush"})
    with pytest.raises(ConnectError) as caught:
        async with connect(config):
            raise AssertionError("connected")
    assert "hush" not in str(caught.value)


@pytest.mark.requirement("MCP-24")
@pytest.mark.parametrize(("idempotent", "calls"), [(True, 2), (False, 1)])
async def test_only_a_call_that_does_no_harm_twice_is_made_again(idempotent: bool, calls: int) -> None:
    async def handle(exchange: Exchange) -> None:
        if exchange.method == "tools/list":
            tool = {"name": "t", "inputSchema": {}, "annotations": {"idempotentHint": idempotent}}
            await exchange.result({"tools": [tool]})
        elif server.methods.count("tools/call") == 1:
            await exchange.hang_up()
        else:
            await exchange.result({"content": []})

    async with raw_http(handle) as server, connect(server.url) as session:
        await session.list_tools()
        if idempotent:
            await session.call_tool("t")
        else:
            with pytest.raises(ConnectionLostError):
                await session.call_tool("t")
        assert server.methods.count("tools/call") == calls
