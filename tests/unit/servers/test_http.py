"""HTTP/1.1 as our ASGI server speaks it: framing, keep-alive, the lifespan, and errors of the application."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

import h11
import pytest
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from playhead.errors import UsageError
from playhead.servers.http import bind, serve_app
from playhead.servers.http_connection import HttpServerOptions
from playhead.servers.serving import Shutdown
from tests.servers.loopback import app_server


async def text(request: Request) -> Response:
    return PlainTextResponse("hello")


async def echo(request: Request) -> Response:
    return JSONResponse(
        {
            "body": len(await request.body()),
            "path": request.url.path,
            "query": request.url.query,
            "state": getattr(request.state, "key", None),
        }
    )


async def empty(request: Request) -> Response:
    return Response(status_code=int(request.path_params["status"]), headers={"etag": '"1"'})


async def pieces(request: Request) -> Response:
    async def stream() -> AsyncIterator[bytes]:
        for piece in (b"one,", b"", b"two"):
            yield piece

    return StreamingResponse(stream())


async def broken(request: Request) -> Response:
    raise RuntimeError("a bug")


APP = Starlette(
    routes=[
        Route("/text", text),
        Route("/echo/{rest:path}", echo, methods=["GET", "POST"]),
        Route("/empty/{status}", empty),
        Route("/pieces", pieces),
        Route("/broken", broken),
    ]
)


@asynccontextmanager
async def served(
    app: ASGIApp = APP, *, shutdown: Shutdown | None = None, options: HttpServerOptions | None = None
) -> AsyncIterator[int]:
    options = options or HttpServerOptions(closing_seconds=0.1)
    with trio.fail_after(20):
        async with app_server(app, shutdown=shutdown, options=options) as sock:
            yield sock.getsockname()[1]


class Client:
    """One connection of an independent HTTP parser (h11's client side)."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.http = h11.Connection(h11.CLIENT)

    async def ask(
        self, method: str, target: str, *, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()
    ) -> tuple[h11.Response, bytes]:
        """The response to one request, with its body."""
        if self.http.our_state is h11.DONE:
            self.http.start_next_cycle()
        fields = [("host", "x"), *headers, *([("content-length", str(len(body)))] if body else [])]
        for event in (
            h11.Request(method=method, target=target, headers=fields),
            *([h11.Data(data=body)] if body else []),
            h11.EndOfMessage(),
        ):
            await self.stream.send_all(self.http.send(event) or b"")
        response, received = None, b""
        while not isinstance(event := await self.event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                received += event.data
        assert response is not None
        return response, received

    async def event(self) -> Any:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self.stream.receive_some())
        return event


@asynccontextmanager
async def client_of(app: ASGIApp = APP) -> AsyncIterator[Client]:
    async with served(app) as port, await trio.open_tcp_stream("127.0.0.1", port) as stream:
        yield Client(stream)


async def test_one_connection_answers_requests_of_every_kind_one_after_the_other() -> None:
    async with client_of() as client:
        response, body = await client.ask("GET", "/text")
        assert (response.status_code, body) == (200, b"hello")
        assert abs(parsedate_to_datetime(dict(response.headers)[b"date"].decode()).timestamp()) > 1e9
        response, body = await client.ask("HEAD", "/text")
        assert (dict(response.headers)[b"content-length"], body) == (b"5", b"")
        for status in (204, 304):
            response, body = await client.ask("GET", f"/empty/{status}")
            assert (response.status_code, body) == (status, b"")
            assert b"transfer-encoding" not in dict(response.headers)
        _, body = await client.ask("GET", "/pieces")
        assert body == b"one,two"
        _, body = await client.ask("HEAD", "/pieces")
        assert body == b""
        _, body = await client.ask("POST", "/echo/a%20b?q=1", body=b"x" * 100_000)
        assert body == b'{"body":100000,"path":"/echo/a b","query":"q=1","state":null}'


async def test_a_client_that_waits_for_100_continue_gets_it() -> None:
    async with client_of() as client:
        head = b"POST /echo/ HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n"
        await client.stream.send_all(head)
        assert await client.stream.receive_some() == b"HTTP/1.1 100 \r\n\r\n"
        await client.stream.send_all(b"hello")
        assert b'"body":5' in await client.stream.receive_some()


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with client_of() as client:
        last = b"GET /pieces HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        await client.stream.send_all(b"GET /text HTTP/1.1\r\nhost: x\r\n\r\n" * 3 + last)
        received = b"".join([part async for part in client.stream])
        assert received.count(b"hello") == 3
        assert received.endswith(b"3\r\ntwo\r\n0\r\n\r\n")


async def test_http_1_0_is_answered_and_closed() -> None:
    async with client_of() as client:
        await client.stream.send_all(b"GET /text HTTP/1.0\r\n\r\n")
        received = b"".join([part async for part in client.stream])
        assert received.startswith(b"HTTP/1.1 200")
        assert received.endswith(b"hello")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /text HTTP/1.1\r\n\r\n",  # without a Host
        b"GET /text\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # TLS on a plain port
        b"POST /echo/ HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /echo/ HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_a_malformed_request_is_answered_with_400_and_closed(head: bytes) -> None:
    async with client_of() as client:
        await client.stream.send_all(head)
        assert b"".join([part async for part in client.stream]).startswith(b"HTTP/1.1 400 ")


async def test_an_error_of_the_application_is_a_500_and_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with client_of() as client:
        response, _ = await client.ask("GET", "/broken")
        assert response.status_code == 500
    assert "a bug" in caplog.text


async def test_an_application_that_answers_nothing_is_a_500() -> None:
    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] != "lifespan"

    async with client_of(silent) as client:
        response, _ = await client.ask("GET", "/")
        assert response.status_code == 500


async def test_a_body_that_is_cut_short_is_seen_by_the_client(caplog: pytest.LogCaptureFixture) -> None:
    async def cut(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] != "lifespan"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError("a bug")

    async with client_of(cut) as client:
        with pytest.raises(h11.RemoteProtocolError):
            await client.ask("GET", "/")


async def test_a_client_that_leaves_ends_its_request() -> None:
    started, told, ended = trio.Event(), trio.Event(), trio.Event()

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] != "lifespan"
        try:
            await receive()
            started.set()
            assert (await receive())["type"] == "http.disconnect"
            told.set()
            await trio.sleep_forever()
        finally:
            ended.set()

    async with client_of(waits) as client:
        await client.stream.send_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await started.wait()
        await client.stream.aclose()
        await told.wait()
        await ended.wait()


async def test_of_several_slow_requests_each_notices_that_its_client_leaves() -> None:
    ended = {"/a": trio.Event(), "/b": trio.Event()}
    started = {"/a": trio.Event(), "/b": trio.Event()}

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in ended:
            await text_app(scope, receive, send)
            return
        started[scope["path"]].set()
        try:
            await trio.sleep_forever()
        finally:
            ended[scope["path"]].set()

    text_app = Starlette(routes=[Route("/text", text)])
    async with served(waits) as port:
        for path in ended:
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                client = Client(stream)
                assert (await client.ask("GET", "/text"))[1] == b"hello"
                await stream.send_all(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
                await started[path].wait()
        for event in ended.values():
            await event.wait()


async def test_a_stream_to_a_client_that_reads_at_once_lets_others_have_their_turn() -> None:
    received, pieces = trio.Event(), 0

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal pieces
        assert scope["type"] != "lifespan"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not received.is_set():
            pieces += 1
            await send({"type": "http.response.body", "body": b"x", "more_body": True})

    async with client_of(endless) as client:
        await client.stream.send_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        while b"x" not in await client.stream.receive_some():
            pass
        received.set()
    assert pieces < 100


async def test_the_lifespan_runs_from_before_the_first_connection_to_after_the_last() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, str]]:
        events.append("starts")
        yield {"key": "value"}
        events.append("ends")

    shutdown = Shutdown()
    app = Starlette(routes=[Route("/echo/", echo)], lifespan=lifespan)
    sock = bind("127.0.0.1", 0)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve_app, app, sock, shutdown=shutdown))
            async with await trio.open_tcp_stream("127.0.0.1", sock.getsockname()[1]) as stream:
                _, body = await Client(stream).ask("GET", "/echo/")
                assert b'"state":"value"' in body
                events.append("served")
            shutdown.request()
    assert events == ["starts", "served", "ends"]


def test_a_port_in_use_is_an_error_with_its_place_and_a_remedy() -> None:
    with bind("127.0.0.1", 0) as sock:
        sock.listen()
        port = sock.getsockname()[1]
        said = f"cannot listen on 127.0.0.1, port {port}: another program uses this port; stop it, or give"
        with pytest.raises(UsageError, match=f"^{re.escape(said)} another --port"):
            bind("127.0.0.1", port)


def test_an_address_of_another_machine_is_an_error_with_a_remedy() -> None:
    with pytest.raises(
        UsageError, match=r"192\.0\.2\.1, port 0: this machine has no such .* another --host$"
    ):
        bind("192.0.2.1", 0)


async def test_an_application_that_cannot_start_is_an_error() -> None:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="no database"), flatten_subgroups=True):
        await serve_app(Starlette(lifespan=lifespan), bind("127.0.0.1", 0))
