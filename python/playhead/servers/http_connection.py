"""HTTP/1.1 on one connection, as ASGI, with bounds on the time and memory of its client.

`Wire` carries the bytes. Every wait for the client has a deadline, and a send that fails closes the
connection. `HttpConnection` reads the whole body before it calls the application, so a slow sender occupies
no request. While the application works, one task reads ahead by one packet, to notice if the client leaves,
which ends the request. `websocket_frames.py` reads a WebSocket, when the application asks for the next
message.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import h11
import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from wsproto.connection import ConnectionType
from wsproto.events import AcceptConnection, Request
from wsproto.handshake import H11Handshake
from wsproto.utilities import RemoteProtocolError

from playhead.limits import KIB, MIB
from playhead.servers.serving import SERVING_EXTENSION, Serving
from playhead.servers.websocket_frames import FramedWebSocket
from playhead.servers.wire import RECEIVE_BYTES, ClientGoneError, Wire

HEAD_BYTES: Final = 16 * KIB
"""Limits the head of a request, as in most servers. A longer one gets the status 431."""
WATCH_SECONDS: Final = 0.5
"""The age at which the server begins to watch whether the client of a request has left."""

ASGI_VERSIONS: Final = {"version": "3.0", "spec_version": "2.4"}
"""The versions of ASGI. Since 2.4, `send` raises an `OSError` once the client has left."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServerOptions:
    """Limits on the time and the number of clients. A client beyond a limit loses its connection."""

    connections: int = 256
    """Limits the open connections; further ones wait in the backlog. A player needs one or two. Often a
    process may have no more than 1,024 open files, and a read of a remote origin takes one, too."""
    requests: int = 96
    """Limits the requests in progress of all WebSocket clients, beyond one per connection."""
    head_seconds: float = 5.0
    """Limits the time for the head of a request, from connecting or from the first byte of a later request.
    The head is one packet, and a client that waits in the backlog behind silent ones gives up after 10 s."""
    body_seconds: float = 20.0
    """Limits the time from the head to the end of the body; requests to our servers have a few hundred
    bytes."""
    body_bytes: int = MIB
    """Limits the body of a request."""
    send_seconds: float = 30.0
    """Limits the time for each 64 KiB of an answer: 2 KiB/s, a tenth of the slowest music. A client allows a
    page as long."""
    keep_alive_seconds: float = 300.0
    """Limits the time between an answer and the next request. A client reads a page of music about every 6 s,
    and none while the listener pauses. With a limit of a few seconds, it would have to reconnect each
    time."""
    closing_seconds: float = 2.0
    """Limits the time for a request to end after its client has left, and for a client to close after an
    error."""


class SlowRequests:
    """Calls back for each request that takes longer than `WATCH_SECONDS`, to begin to watch its client.

    Nearly every page is ready sooner, and to watch its client from the start would add a tenth to its cost.
    """

    def __init__(self) -> None:
        self._deadlines: dict[Callable[[], None], float] = {}
        self._added = trio.lowlevel.ParkingLot()

    def add(self, watch: Callable[[], None]) -> None:
        """Call `watch` after `WATCH_SECONDS`, unless `discard` is called before."""
        self._deadlines[watch] = trio.current_time() + WATCH_SECONDS
        self._added.unpark_all()

    def discard(self, watch: Callable[[], None]) -> None:
        """Forget a request that has ended."""
        self._deadlines.pop(watch, None)

    async def run(self) -> None:
        """Call back for slow requests until cancelled."""
        while True:
            # Deadlines are in order, because all requests have the same delay and a dict keeps its order.
            while self._deadlines:
                watch, deadline = next(iter(self._deadlines.items()))
                await trio.sleep_until(deadline)
                if self._deadlines.pop(watch, None) is not None:
                    watch()
            await self._added.park()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedApp(Serving):
    """An application and the state that its connections share."""

    app: ASGIApp
    options: HttpServerOptions
    secure: bool
    """True if the connections use TLS."""
    state: dict[str, Any] = field(default_factory=dict)
    """The state of the application's lifespan."""
    connections: set[HttpConnection] = field(default_factory=set)
    slow: SlowRequests = field(default_factory=SlowRequests)

    @property
    def closing(self) -> bool:
        return self.shutdown.requested.is_set()


class HttpConnection:
    """HTTP/1.1 on one connection: one request after the other, or a WebSocket."""

    def __init__(self, served: ServedApp, stream: trio.abc.Stream, sock: trio.socket.SocketType) -> None:
        """Start a connection on `stream`. Raises `OSError` if the client has left already."""
        self._served = served
        self._stream = stream
        self._addresses = {"client": sock.getpeername()[:2], "server": sock.getsockname()[:2]}
        self._options = served.options
        self._wire = Wire(stream, served.options.send_seconds)
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._idle_scope = trio.CancelScope()
        """The scope around the wait for the first byte of a request."""
        self._answer_scope = trio.CancelScope()
        self._is_event_stream = False
        """True if the current answer is an event stream that ends only with its client."""
        self._unsent: list[bytes] = []
        """The parts of an answer to send together. They are joined only once, because a page is long."""
        self._has_body = True

    async def run(self) -> None:
        """Serve the connection to its end. Raises `OSError` or `BrokenResourceError` if it breaks."""
        self._served.connections.add(self)
        try:
            await self._serve_requests()
        finally:
            self._served.connections.remove(self)

    def shut_down(self) -> None:
        """End the connection if it is idle or has an event stream. Otherwise it ends after the current
        answer."""
        self._idle_scope.cancel()
        if self._is_event_stream:
            self._answer_scope.cancel()

    async def _serve_requests(self) -> None:
        deadline = trio.current_time() + self._options.head_seconds
        if isinstance(self._stream, trio.SSLStream):
            with trio.move_on_at(deadline) as handshake:
                await self._stream.do_handshake()
            if handshake.cancelled_caught:
                return
        try:
            request = await self._next_request(deadline, head_deadline=deadline)
            while request is not None:
                await self._answer(request)
                if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                    return
                self._http.start_next_cycle()
                request = await self._next_request(trio.current_time() + self._options.keep_alive_seconds)
        except h11.RemoteProtocolError as error:
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await self._refuse(error.error_status_hint, str(error))

    async def _next_request(
        self, deadline: float, *, head_deadline: float | None = None
    ) -> h11.Request | None:
        """Return the next request; None if the client sends none in time, or the connection is to end."""
        try:
            if not self._http.trailing_data[0]:  # no bytes of the next request have been read ahead
                if self._served.closing:
                    return None
                data = b""
                with trio.CancelScope() as self._idle_scope:
                    data = await self._wire.receive(deadline)
                if not data:
                    return None
                self._http.receive_data(data)
            event = await self._next_event(head_deadline or trio.current_time() + self._options.head_seconds)
        except trio.TooSlowError:
            return None
        return event if isinstance(event, h11.Request) else None

    async def _next_event(self, deadline: float) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                proceed = h11.InformationalResponse(status_code=100, headers=[])
                await self._wire.send(self._http.send(proceed) or b"")
            self._http.receive_data(await self._wire.receive(deadline))
        return event

    async def _read_body(self) -> bytes | None:
        """Read the body of the current request; None if it got a refusal."""
        options, body = self._options, bytearray()
        deadline = trio.current_time() + options.body_seconds
        try:
            while isinstance(event := await self._next_event(deadline), h11.Data):
                body += event.data
                if len(body) > options.body_bytes:
                    await self._refuse(413, f"the body has more than {options.body_bytes} bytes")
                    return None
        except trio.TooSlowError:
            await self._refuse(408, f"the body was not complete after {options.body_seconds:g} s")
            return None
        return bytes(body)

    async def _answer(self, request: h11.Request) -> None:
        """Answer a request by the application, by an upgrade to WebSocket, or by a refusal."""
        self._has_body = request.method != b"HEAD"
        self._is_event_stream = False
        body = await self._read_body()
        if body is None:
            return
        if _asks_for_websocket(request):
            await self._upgrade(request)
            return
        gone = trio.Event()  # the client has left
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        del body  # `receive` hands the only reference to the application

        async def receive() -> Message:
            if unread:
                return unread.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if gone.is_set():
                raise ClientGoneError("the client has left")
            if message["type"] == "http.response.start" and _never_ends(request, message):
                self._is_event_stream = True
                if self._served.closing:  # `shut_down` was called before this answer began
                    self._answer_scope.cancel()
            await self._send_response(message)

        async with trio.open_nursery() as nursery:
            self._answer_scope = nursery.cancel_scope
            # If the client of a slow request leaves, `_watch_client` sets `gone`, and cancels the
            # application.
            watch = partial(nursery.start_soon, self._watch_client, gone, nursery.cancel_scope)
            self._served.slow.add(watch)
            try:
                await run_app(self._served.app, self._scope(request, "http"), receive, send, gone.is_set)
            finally:
                self._served.slow.discard(watch)
            nursery.cancel_scope.cancel()
        if gone.is_set():
            return
        if self._http.our_state is h11.SEND_RESPONSE:
            await self._refuse(500, "the server failed at this request")  # it sent no answer
        elif self._is_event_stream and self._http.our_state is h11.SEND_BODY and self._served.closing:
            await self._send_response({"type": "http.response.body"})

    async def _upgrade(self, request: h11.Request) -> None:
        handshake = H11Handshake(ConnectionType.SERVER)
        try:
            handshake.initiate_upgrade_connection(list(request.headers), request.target.decode("ascii"))
        except (RemoteProtocolError, h11.ProtocolError, UnicodeError) as error:
            await self._refuse(400, f"the WebSocket handshake is invalid: {error}")
            return
        (offer,) = handshake.events()
        assert isinstance(offer, Request)

        async def accept(message: Message) -> bytes:
            received = self._http.trailing_data[0]  # the frames that arrived with the head
            answer = AcceptConnection(
                subprotocol=message.get("subprotocol"), extra_headers=list(message.get("headers", []))
            )
            await self._wire.send(handshake.send(answer))
            return received

        async def send(message: Message) -> None:
            match message["type"]:
                case "websocket.http.response.start" | "websocket.http.response.body":
                    await self._send_response(message)
                case "websocket.close" if not websocket.is_accepted:
                    await self._refuse(403, "the WebSocket was not accepted")
                case _:
                    await websocket.send(message)

        websocket = FramedWebSocket(
            self._wire,
            self._served.slots,
            role=ConnectionType.SERVER,
            closing_seconds=self._options.closing_seconds,
            accept=accept,
        )
        scope = {**self._scope(request, "websocket"), "subprotocols": offer.subprotocols}
        await run_app(self._served.app, scope, websocket.receive, send, lambda: websocket.closed is not None)
        if not websocket.is_accepted and self._http.our_state is h11.SEND_RESPONSE:
            await self._refuse(500, "the server failed at this request")
        await websocket.finish()

    async def _watch_client(self, gone: trio.Event, scope: trio.CancelScope) -> None:
        """Read ahead, to notice that the client leaves while its request is answered."""
        while len(self._http.trailing_data[0]) <= RECEIVE_BYTES:
            data = await self._wire.receive(math.inf)
            self._http.receive_data(data)
            if not data:
                gone.set()
                scope.deadline = trio.current_time() + self._options.closing_seconds
                return

    async def _send_response(self, message: Message) -> None:
        """Send a message of type `http.response.start` or `http.response.body`."""
        if message["type"].endswith("response.start"):
            headers = {name.lower(): value for name, value in message.get("headers", [])}
            status: int = message["status"]
            if status in (204, 304):
                self._has_body = False
            fields = [(name, value) for name, value in message.get("headers", [])]
            if b"date" not in headers:
                fields.append((b"date", formatdate(usegmt=True).encode()))
            if self._served.closing and b"connection" not in headers:
                fields.append((b"connection", b"close"))
            self._queue_event(h11.Response(status_code=status, headers=fields))
            if b"content-length" in headers:
                return  # it is sent in one packet with the body, which follows
        else:
            if (data := message.get("body", b"")) and self._has_body:
                self._queue_event(h11.Data(data=data))
            if not message.get("more_body", False):
                self._queue_event(h11.EndOfMessage())
        unsent, self._unsent = b"".join(self._unsent), []
        await self._wire.send(unsent)
        if message.get("more_body", False):
            await trio.lowlevel.checkpoint()  # let other tasks run during a stream to a fast client

    def _queue_event(self, event: h11.Event) -> None:
        self._unsent += self._http.send_with_data_passthrough(event) or []

    async def _refuse(self, status: int, reason: str) -> None:
        """Answer in place of the application, then drain the connection, which cannot be used again."""
        body = f"{reason}\n".encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        await self._send_response({"type": "http.response.start", "status": status, "headers": headers})
        await self._send_response({"type": "http.response.body", "body": body})
        await self._wire.linger(self._options.closing_seconds)

    def _scope(self, request: h11.Request, kind: str) -> dict[str, Any]:
        path, _, query = request.target.partition(b"?")
        scheme = "http" if kind == "http" else "ws"
        return {
            "type": kind,
            "asgi": ASGI_VERSIONS,
            "http_version": request.http_version.decode("ascii"),
            "method": request.method.decode("ascii"),
            "scheme": f"{scheme}s" if self._served.secure else scheme,
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "root_path": "",
            "query_string": query,
            "headers": list(request.headers),
            **self._addresses,
            "state": self._served.state.copy(),
            "extensions": {"websocket.http.response": {}, SERVING_EXTENSION: self._served},
        }


async def run_app(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, is_gone: Callable[[], bool]
) -> None:
    """Call the application, and log its errors, unless the client has left."""
    try:
        await app(scope, receive, send)
    except* ClientGoneError:
        pass
    except* Exception:  # noqa: BLE001 - a bug costs its request
        if not is_gone():
            _log.exception("the application failed at %s", scope["type"])


def _never_ends(request: h11.Request, response: Message) -> bool:
    """Return True for an event stream that ends only with its client. In Streamable HTTP these are the stream
    of a session and, in the newest revision, a subscription."""
    is_listening = request.method == b"GET" or (b"mcp-method", b"subscriptions/listen") in request.headers
    return is_listening and any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in response.get("headers", [])
    )


def _asks_for_websocket(request: h11.Request) -> bool:
    return (
        request.method == b"GET"
        and "websocket" in _header_tokens(request, b"upgrade")
        and "upgrade" in _header_tokens(request, b"connection")
    )


def _header_tokens(request: h11.Request, name: bytes) -> list[str]:
    """Return the comma-separated tokens of a header field, which may occur more than once."""
    values = b",".join(value for key, value in request.headers if key == name).decode("latin-1")
    return [token.strip().lower() for token in values.split(",")]
