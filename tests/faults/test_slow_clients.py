"""A slow or silent client of our HTTP servers costs one task, for a stated time, and disturbs nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send
from trio.testing import wait_all_tasks_blocked

from playhead.servers.http import base_url
from playhead.servers.http_connection import HttpServerOptions
from tests.servers.loopback import app_server

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
SHORT = 0.05
"""A limit that a test waits for; every other one is longer than a test may take."""
MODEST = 0.5
"""The same where the client has to send a request within it first, on a busy machine too."""
LONG = 30.0


def options(
    *,
    head_seconds: float = LONG,
    body_seconds: float = LONG,
    send_seconds: float = LONG,
    keep_alive_seconds: float = LONG,
    connections: int = 8,
) -> HttpServerOptions:
    return HttpServerOptions(
        head_seconds=head_seconds,
        body_seconds=body_seconds,
        send_seconds=send_seconds,
        keep_alive_seconds=keep_alive_seconds,
        connections=connections,
        closing_seconds=SHORT,
        body_bytes=1000,
    )


async def here(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers "here"."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"here"})


class EndlessApp:
    """Answers with bytes without end; tells when it was stopped."""

    def __init__(self) -> None:
        self.ended = trio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
        finally:
            self.ended.set()


@asynccontextmanager
async def server(limits: HttpServerOptions, app: ASGIApp = here) -> AsyncIterator[tuple[str, int]]:
    """A server's host and port; it fails the test when it does not end at once."""
    with trio.fail_after(20):
        async with app_server(Starlette(routes=[Mount("/", app)]), options=limits) as sock:
            host, port = sock.getsockname()
            assert base_url(sock) == f"http://{host}:{port}"
            yield host, port


@asynccontextmanager
async def client_of(limits: HttpServerOptions, app: ASGIApp = here) -> AsyncIterator[trio.SocketStream]:
    """A connection to such a server."""
    async with server(limits, app) as (host, port), await trio.open_tcp_stream(host, port) as stream:
        yield stream


async def all_of(stream: trio.SocketStream) -> bytes:
    """The bytes received until the other side closes or resets."""
    received = b""
    try:
        async for data in stream:
            received += data
    except trio.BrokenResourceError:
        pass
    return received


async def answer(stream: trio.SocketStream) -> bytes:
    """One answer of the app, on a connection that stays open."""
    received = b""
    while not received.endswith(b"here"):
        data = await stream.receive_some()
        assert data, received
        received += data
    return received


async def drip(stream: trio.SocketStream, start: bytes, drop: bytes) -> bytes:
    """Sends bytes one by one until the server has closed the connection; gives what it had answered."""
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            await stream.send_all(start)
            try:
                while True:
                    await stream.send_all(drop)
                    await trio.sleep(SHORT / 10)  # the drip itself: no test waits for it
            except trio.BrokenResourceError:
                pass

        nursery.start_soon(send)
        received = await all_of(stream)
        nursery.cancel_scope.cancel()
    return received


async def test_a_client_that_sends_nothing_is_closed() -> None:
    async with client_of(options(head_seconds=SHORT)) as silent:
        assert await all_of(silent) == b""


async def test_a_client_whose_head_drips_for_ever_is_closed() -> None:
    async with client_of(options(head_seconds=SHORT)) as slow:
        assert await drip(slow, b"GET / HTTP/1.1\r\nx: ", b"y") == b""


async def test_the_head_of_a_later_request_has_its_own_time() -> None:
    async with client_of(options(head_seconds=MODEST)) as slow:
        await slow.send_all(GET)
        await answer(slow)
        assert await drip(slow, b"G", b"E") == b""


async def test_an_idle_connection_is_closed_after_the_keep_alive_time() -> None:
    async with client_of(options(keep_alive_seconds=MODEST)) as idle:
        await idle.send_all(GET)
        assert (await all_of(idle)).endswith(b"here")


async def test_a_client_whose_body_drips_for_ever_is_told_and_closed() -> None:
    async with client_of(options(body_seconds=SHORT)) as slow:
        assert (await drip(slow, POST, b"y")).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (POST.replace(b"1000", b"1001") + b"y" * 1001, b"413"),
        (CHUNKED + b"3e9\r\n" + b"y" * 1001, b"413"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 20_000, b"431"),
    ],
    ids=["length", "chunked", "head"],
)
async def test_a_request_that_is_too_long_is_refused(request_bytes: bytes, status: bytes) -> None:
    async with client_of(options()) as long:
        await long.send_all(request_bytes)
        assert (await all_of(long)).startswith(b"HTTP/1.1 " + status)


async def test_a_body_of_the_greatest_length_is_taken() -> None:
    async with client_of(options()) as client:
        await client.send_all(POST + b"y" * 1000)
        await answer(client)


async def test_slow_clients_of_every_kind_do_not_disturb_another() -> None:
    async with server(options()) as (host, port):
        slow = [await trio.open_tcp_stream(host, port) for _ in range(4)]
        for stream, start in zip(slow, (b"", GET[:9], POST, CHUNKED), strict=True):
            await stream.send_all(start)
        async with await trio.open_tcp_stream(host, port) as other:
            for _ in range(3):
                await other.send_all(GET)
                await answer(other)
        for stream in slow:
            await stream.aclose()


async def test_a_client_that_never_reads_its_answer_is_closed() -> None:
    app = EndlessApp()
    async with client_of(options(send_seconds=SHORT), app) as deaf:
        await deaf.send_all(GET)
        await app.ended.wait()


async def test_a_client_that_never_reads_does_not_keep_a_cancelled_server() -> None:
    app = EndlessApp()
    async with server(options(), app) as (host, port):
        deaf = await trio.open_tcp_stream(host, port)
        await deaf.send_all(GET)
        assert await deaf.receive_some(1)
        await wait_all_tasks_blocked(SHORT)  # the application waits for room that never comes
        assert not app.ended.is_set()
    assert app.ended.is_set()
    await deaf.aclose()


async def test_a_client_that_left_makes_room_at_once() -> None:
    async with server(options(connections=1)) as (host, port):
        for _ in range(3):
            async with await trio.open_tcp_stream(host, port) as stream:
                await stream.send_all(GET)
                await answer(stream)


async def test_a_connection_too_many_waits_until_another_ends() -> None:
    async with server(options(connections=2)) as (host, port):
        first, second, third = [await trio.open_tcp_stream(host, port) for _ in range(3)]
        answered = trio.Event()

        async def ask() -> None:
            await third.send_all(GET)
            await answer(third)
            answered.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await wait_all_tasks_blocked(SHORT)
            assert not answered.is_set()
            await first.aclose()
        await second.aclose()
        await third.aclose()


async def test_http_2_which_has_no_such_limits_is_not_spoken() -> None:
    async with server(options(connections=1)) as (host, port):
        async with await trio.open_tcp_stream(host, port) as two:
            await two.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            assert b"200" not in await all_of(two)
        async with await trio.open_tcp_stream(host, port) as one:
            await one.send_all(GET)
            await answer(one)


async def test_an_upgrade_to_http_2_is_ignored_and_answered_in_http_1() -> None:
    async with client_of(options()) as client:
        await client.send_all(GET[:-2] + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n")
        assert (await answer(client)).startswith(b"HTTP/1.1 200")
        await client.send_all(GET)
        assert (await answer(client)).startswith(b"HTTP/1.1 200")
