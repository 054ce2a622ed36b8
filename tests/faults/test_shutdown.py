"""Graceful shutdown: requests are answered, WebSockets closed with 1001, and no client delays it."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from wsproto.events import CloseConnection

from playhead.servers.http import bind, serve_app, tls_context
from playhead.servers.serving import Shutdown
from playhead.servers.websocket import websocket_endpoint
from playhead.testing.transports import Peer
from tests.servers.raw_websocket import raw_websocket, read
from tests.servers.served_websocket import served_websocket

SHORT = 0.05


async def test_a_websockets_request_in_flight_is_answered_and_then_it_hears_1001() -> None:
    peer, shutdown = Peer(), Shutdown()
    with trio.fail_after(20):
        async with served_websocket(peer.server(), shutdown=shutdown) as port, raw_websocket(port) as client:
            await client.initialize()
            await client.send(read("hold://x", 1))
            await peer.anyone_started.wait()
            shutdown.request()
            await trio.testing.wait_all_tasks_blocked(SHORT)
            refused = await client.ask("ping", id=2)
            assert (refused["id"], refused["error"]["code"]) == (2, -32603)
            with pytest.raises(OSError, match="connect"):
                await trio.open_tcp_stream("127.0.0.1", port)
            peer.release.set()
            assert (await client.receive())["result"]["contents"][0]["text"] == "x"
            closed = await client.receive()
            assert isinstance(closed, CloseConnection)
            assert closed.code == 1001


async def test_a_request_that_takes_longer_than_the_grace_is_cancelled() -> None:
    peer, shutdown = Peer(), Shutdown(grace_seconds=0.2)
    with trio.fail_after(20):
        async with served_websocket(peer.server(), shutdown=shutdown) as port, raw_websocket(port) as client:
            await client.initialize()
            await client.send(read("hold://x", 1))
            await peer.anyone_started.wait()
            shutdown.request()
            await peer.anyone_cancelled.wait()


class Slow:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.asked, self.go = trio.Event(), trio.Event()

    async def answer(self, request: Request) -> Response:
        self.asked.set()
        await self.go.wait()
        return PlainTextResponse("done")

    async def stream_later(self, request: Request) -> Response:
        async def silence() -> AsyncIterator[bytes]:
            await trio.sleep_forever()
            yield b""

        self.asked.set()
        await self.go.wait()
        return StreamingResponse(silence(), media_type="text/event-stream")

    async def answer_as_events(self, request: Request) -> Response:
        async def events() -> AsyncIterator[bytes]:
            yield b": hello\n\n"
            self.asked.set()
            await self.go.wait()
            yield b"data: done\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    async def stream(self, request: Request) -> Response:
        async def events() -> AsyncIterator[bytes]:
            yield b": hello\n\n"
            self.asked.set()
            await trio.sleep_forever()

        return StreamingResponse(events(), media_type="text/event-stream")


@asynccontextmanager
async def http_server(slow: Slow, shutdown: Shutdown) -> AsyncIterator[tuple[int, trio.Event]]:
    """A server's port, and what is set when it has ended."""
    sock, ended = bind("127.0.0.1", 0), trio.Event()
    port: int = sock.getsockname()[1]
    app = Starlette(
        routes=[
            Route("/", slow.answer),
            Route("/", slow.answer_as_events, methods=["POST"]),
            Route("/events", slow.stream),
            Route("/later", slow.stream_later),
        ]
    )

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        await serve_app(app, sock, shutdown=shutdown, task_status=task_status)
        ended.set()

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(run)
            yield port, ended
            nursery.cancel_scope.cancel()


async def test_a_http_request_in_flight_is_answered_and_idle_connections_end_at_once() -> None:
    slow, shutdown = Slow(), Shutdown()
    async with http_server(slow, shutdown) as (port, ended):
        idle = await trio.open_tcp_stream("127.0.0.1", port)
        asking = await trio.open_tcp_stream("127.0.0.1", port)
        await asking.send_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await slow.asked.wait()
        shutdown.request()
        assert await idle.receive_some() == b""
        assert not ended.is_set()
        slow.go.set()
        received = b""
        while data := await asking.receive_some():
            received += data
        assert received.endswith(b"done")
        await ended.wait()
        await idle.aclose()
        await asking.aclose()


@pytest.mark.parametrize("path", ["events", "later"], ids=["begins before", "begins after the request"])
async def test_a_stream_of_events_does_not_hold_the_end_up(path: str) -> None:
    slow, shutdown = Slow(), Shutdown()
    async with http_server(slow, shutdown) as (port, ended):
        listening = await trio.open_tcp_stream("127.0.0.1", port)
        await listening.send_all(b"GET /%s HTTP/1.1\r\nhost: x\r\n\r\n" % path.encode())
        await slow.asked.wait()
        shutdown.request()
        await trio.testing.wait_all_tasks_blocked(SHORT)
        slow.go.set()
        await ended.wait()
        await listening.aclose()


async def test_a_request_that_is_answered_with_events_has_its_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow, shutdown = Slow(), Shutdown()
    async with http_server(slow, shutdown) as (port, ended):
        asking = await trio.open_tcp_stream("127.0.0.1", port)
        await asking.send_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        await slow.asked.wait()
        shutdown.request()
        await trio.testing.wait_all_tasks_blocked(SHORT)
        slow.go.set()
        received = b"".join([data async for data in asking])
        assert b"data: done\n\n" in received
        assert received.endswith(b"\r\n0\r\n\r\n")
        await ended.wait()
        await asking.aclose()
    assert not caplog.records


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    assert scope["type"] != "lifespan"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})


@pytest.mark.parametrize("over_websocket", [True, False])
async def test_a_client_that_does_not_read_delays_the_end_by_the_grace_at_most(over_websocket: bool) -> None:
    app: ASGIApp = endless
    if over_websocket:
        app = Starlette(routes=[WebSocketRoute("/mcp", websocket_endpoint(Peer().server()))])
    sock, shutdown = bind("127.0.0.1", 0), Shutdown(grace_seconds=0.5)
    port = sock.getsockname()[1]
    with trio.fail_after(20):
        async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
            await nursery.start(partial(serve_app, app, sock, shutdown=shutdown))
            if over_websocket:
                deaf = await stack.enter_async_context(raw_websocket(port))
                await deaf.initialize()
                for number in range(8):
                    await deaf.send(read(f"big://{4 << 20}", number))
                await deaf.stream.receive_some(1)
            else:
                stream = await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
                await stream.send_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                await stream.receive_some(1)
            await trio.testing.wait_all_tasks_blocked(SHORT)
            shutdown.request()  # the nursery ends with the server, while the client is still connected


async def test_over_tls_it_is_the_same_websocket() -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    with certificate.private_key_and_cert_chain_pem.tempfile() as pem:
        tls = tls_context(Path(pem))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with trio.fail_after(20):
        async with served_websocket(Peer().server(), tls=tls) as port:
            plain = await trio.open_tcp_stream("127.0.0.1", port)
            encrypted = trio.SSLStream(plain, trusting, server_hostname="localhost", https_compatible=True)
            async with raw_websocket(port, "Host: localhost", over=encrypted) as client:
                await client.initialize()
                answer = await client.ask("resources/read", {"uri": "big://300000"})
                assert len(answer["result"]["contents"][0]["text"]) == 300_000


SLOW_SERVER = """
import sys, trio, typer
from playhead.servers.http import bind, serve_until_sigterm, base_url
from playhead.servers.websocket import websocket_endpoint
from playhead.cli.runner import run_command
from playhead.testing.transports import Peer
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

async def command(terminal, report):
    peer, sock = Peer(), bind("127.0.0.1", 0)
    app = Starlette(routes=[WebSocketRoute("/mcp", websocket_endpoint(peer.server()))])
    async def release_on_a_line():
        await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        peer.release.set()
    async def say_when_started():
        await peer.anyone_started.wait()
        sys.stdout.write("started\\n")
        sys.stdout.flush()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(release_on_a_line)
        nursery.start_soon(say_when_started)
        port = sock.getsockname()[1]
        async with trio.open_nursery() as serving:
            await serving.start(serve_until_sigterm, app, sock)
            sys.stdout.write(f"{port}\\n")
            sys.stdout.flush()
        nursery.cancel_scope.cancel()
    return 0

try:
    run_command(command, json_output=False)
except typer.Exit as end:
    sys.exit(end.exit_code)
"""


async def line_of(stream: trio.abc.ReceiveStream) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        data = await stream.receive_some(1)
        assert data, "the server ended"
        received += data
    return received


@pytest.mark.parametrize(("signals", "code"), [(1, 0), (2, 143)])
async def test_sigterm_lets_a_request_finish_and_a_second_one_does_not(signals: int, code: int) -> None:
    start = partial(
        trio.run_process,
        [sys.executable, "-c", SLOW_SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
    )
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(start)
            assert process.stdout is not None
            assert process.stdin is not None
            port = int(await line_of(process.stdout))
            async with raw_websocket(port) as client:
                await client.initialize()
                await client.send(read("hold://x", 1))
                await line_of(process.stdout)  # the handler runs
                process.send_signal(signal.SIGTERM)
                # The listener is gone once the signal was heard.
                while True:
                    try:
                        await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
                    except OSError:
                        break
                if signals == 2:
                    process.send_signal(signal.SIGTERM)
                else:
                    await process.stdin.send_all(b"\n")
                    assert (await client.receive())["result"]["contents"][0]["text"] == "x"
                    closed = await client.receive()
                    assert closed.code == 1001
                assert await process.wait() == code
