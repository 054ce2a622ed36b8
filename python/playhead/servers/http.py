"""An ASGI server for HTTP/1.1 and WebSocket under trio, on h11 and wsproto.

Own code, because the alternatives do not fit: uvicorn needs asyncio, and hypercorn 0.18 (tried in 2026) ends
its process at one packet (a WebSocket upgrade with a frame right behind its head), goes on collecting a
message that is too long (640 MB for 600 MB sent), and waits at SIGTERM for a client that does not read.

`serve_app` accepts connections while fewer than `HttpServerOptions.connections` are open. Each is a task, and
all that its requests start ends with it. `http_connection.py` serves one, `websocket_frames.py` one that was
upgraded. `dial` serves a WebSocket that it opens itself, for endpoints that servers connect to.
"""

from __future__ import annotations

import errno
import logging
import random
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from wsproto.connection import ConnectionType
from wsproto.frame_protocol import CloseReason

from playhead.client.transports.http_errors import place_of
from playhead.client.transports.websocket_opening import WebSocketOptions, opened
from playhead.errors import AccessDeniedError, ConnectError, UpgradeRefusedError, UsageError
from playhead.escaping import escape_line
from playhead.limits import DEFAULT_LIMITS
from playhead.net_guard import is_loopback
from playhead.protocol.frame_stream import End
from playhead.retry import is_retryable
from playhead.servers.http_connection import (
    ASGI_VERSIONS,
    HttpConnection,
    HttpServerOptions,
    ServedApp,
    run_app,
)
from playhead.servers.serving import SERVING_EXTENSION, Serving, Shutdown
from playhead.servers.websocket_frames import FramedWebSocket
from playhead.servers.wire import Wire
from playhead.web_address import WebAddress

BACKLOG: Final = 100
DEFAULT_OPTIONS: Final = HttpServerOptions()

_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_BIND_FAULTS: Final[dict[int | None, tuple[str, str]]] = {
    errno.EADDRINUSE: (
        "another program uses this port",
        "stop it, or give another --port (0 takes a free one)",
    ),
    errno.EADDRNOTAVAIL: ("this machine has no such address", "give another --host"),
}
"""The reason and the remedy, where the system's own words are not enough."""
_log = logging.getLogger(__name__)


def bind(host: str, port: int) -> socket.socket:
    """Bind a TCP socket; port 0 takes a free one. The caller closes it.

    Raises:
        UsageError: the address is in use, forbidden or unknown.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot listen on {host!r}: {reason}; give another --host") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except (OSError, OverflowError) as error:
        sock.close()
        plain = (getattr(error, "strerror", None) or str(error), "give another --port")
        reason, remedy = _BIND_FAULTS.get(getattr(error, "errno", None), plain)
        raise UsageError(f"cannot listen on {host}, port {port}: {reason}; {remedy}") from error
    return sock


def base_url(sock: socket.socket, *, scheme: str = "http") -> str:
    """The `scheme://host:port` under which a bound socket is reached."""
    host, port = sock.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def tls_context(certificate: Path | None, key: Path | None = None) -> ssl.SSLContext | None:
    """The context with which `serve_app` speaks TLS 1.2 or newer; None without a certificate.

    Args:
        certificate: PEM: the server's own, then the chain.
        key: PEM, without a passphrase; None if it is in the same file.

    Raises:
        UsageError: a file cannot be read, or the two are not a certificate and its key.
    """
    if certificate is None:
        if key is not None:
            raise UsageError(
                "got --tls-key without --tls-certificate; give the certificate that it belongs to"
            )
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION
    try:
        # An empty passphrase: without one, OpenSSL would ask for it on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        files = f"{certificate} and {key}" if key is not None else str(certificate)
        raise UsageError(
            f"expected a certificate and its key in PEM, without a passphrase, in {files}: {error}"
        ) from error
    return context


async def serve_until_sigterm(
    app: ASGIApp,
    sock: socket.socket,
    *,
    options: HttpServerOptions = DEFAULT_OPTIONS,
    tls: ssl.SSLContext | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run `serve_app` as a command does: the first SIGTERM shuts it down gracefully, and it returns.

    Outside the main thread, where Python receives no signals, it serves until it is cancelled.
    """
    shutdown = Shutdown()
    async with trio.open_nursery() as nursery:
        await nursery.start(shutdown.listen)
        await serve_app(app, sock, options=options, tls=tls, shutdown=shutdown, task_status=task_status)
        nursery.cancel_scope.cancel()


async def serve_app(
    app: ASGIApp,
    sock: socket.socket,
    *,
    options: HttpServerOptions = DEFAULT_OPTIONS,
    tls: ssl.SSLContext | None = None,
    shutdown: Shutdown | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` on a bound socket until cancelled or shut down; then every connection is closed.

    A client that is slow or silent costs one task and one connection, for a time that `options` state.
    Cancelled, it closes every connection at once. Shut down, it accepts no new connection, closes those that
    are idle, ends event streams, and returns when the other requests are answered or after
    `shutdown.grace_seconds`.

    Args:
        app: an ASGI application, HTTP and WebSocket. Its `lifespan` is run.
        sock: from `bind`; it is closed here.
        options: the bounds on clients.
        tls: certificate and key (`tls_context`); None speaks plain HTTP.
        shutdown: requests the graceful shutdown.
        task_status: started once connections are accepted.

    Raises:
        RuntimeError: the application reported that it cannot start.
    """
    served = ServedApp(
        app=app,
        options=options,
        secure=tls is not None,
        shutdown=shutdown or Shutdown(),
        slots=trio.CapacityLimiter(options.requests),
    )
    ending = trio.Event()
    with trio.socket.from_stdlib_socket(sock) as listening:
        listening.listen(BACKLOG)
        async with trio.open_nursery() as nursery:
            await nursery.start(_run_lifespan, app, served.state, ending)
            with trio.CancelScope() as grace:
                async with trio.open_nursery() as watching:
                    watching.start_soon(served.slow.run)
                    async with trio.open_nursery() as connections:
                        async with trio.open_nursery() as accepting:
                            listener = trio.SocketListener(listening)
                            accepting.start_soon(_accept, served, listener, connections, tls)
                            task_status.started()
                            await served.shutdown.requested.wait()
                            accepting.cancel_scope.cancel()
                        listening.close()
                        grace.deadline = trio.current_time() + served.shutdown.grace_seconds
                        for connection in served.connections:
                            connection.shut_down()
                    watching.cancel_scope.cancel()
                ending.set()
                nursery.cancel_scope.deadline = grace.deadline
            if grace.cancelled_caught:
                nursery.cancel_scope.cancel()


async def _run_lifespan(
    app: ASGIApp, state: dict[str, Any], ending: trio.Event, *, task_status: trio.TaskStatus[None]
) -> None:
    """Run the lifespan of `app`; started when the application is ready, or has no lifespan."""
    asked = started = False
    failure: str | None = None

    async def receive() -> Message:
        nonlocal asked
        if asked:
            await ending.wait()
            return {"type": "lifespan.shutdown"}
        asked = True
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        nonlocal started, failure
        if message["type"] == "lifespan.startup.complete":
            started = True
            task_status.started()
        elif message["type"] == "lifespan.startup.failed":
            failure = message.get("message", "")

    try:
        await app({"type": "lifespan", "asgi": ASGI_VERSIONS, "state": state}, receive, send)
    except Exception:  # noqa: BLE001 - the specification: an application without a lifespan raises
        if started:
            _log.exception("the application failed in its lifespan")
    if failure is not None:
        raise RuntimeError(f"the application cannot start: {failure}")
    if not started:
        task_status.started()


async def _accept(
    served: ServedApp, listener: trio.SocketListener, nursery: trio.Nursery, tls: ssl.SSLContext | None
) -> None:
    """Accept while there is a place; the other connections wait in the kernel's backlog."""
    places = trio.Semaphore(served.options.connections)
    while True:
        await places.acquire()
        try:
            stream = await listener.accept()
        except OSError as error:
            places.release()
            if error.errno not in _NO_FILES:
                raise
            await trio.sleep(0.1)  # until a file is closed; as trio.serve_listeners
            continue
        nursery.start_soon(_serve_stream, served, stream, places, tls)


async def _serve_stream(
    served: ServedApp, accepted: trio.SocketStream, places: trio.Semaphore, tls: ssl.SSLContext | None
) -> None:
    stream: trio.abc.Stream = accepted
    try:
        if tls is not None:
            stream = trio.SSLStream(accepted, tls, server_side=True, https_compatible=True)
        await HttpConnection(served, stream, accepted.socket).run()
    except (OSError, trio.BrokenResourceError):
        pass  # the client has left
    except Exception:  # noqa: BLE001 - a bug costs its connection, not the server
        _log.exception("a connection failed")
    finally:
        places.release()
        await trio.aclose_forcefully(stream)


# --- a WebSocket that the server opens ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DialOptions:
    """Seconds between two attempts to connect: doubled after each failure, and less a random part of up to
    one half, so that the servers of a whole house do not return at the same moment."""

    first_seconds: float = 1.0
    """After a connection over which a message arrived, too."""
    last_seconds: float = 60.0
    """The longest: music is back a minute after its endpoint, at the latest."""


DIAL_OPTIONS: Final = DialOptions()


def check_endpoint(url: str) -> None:
    """Check the URL for `dial`.

    Raises:
        UsageError: it is neither `wss://` nor `ws://` on loopback. The token in it would be readable.
    """
    place = place_of(url)
    try:
        parsed = WebAddress.parse(url)
    except ValueError:
        parsed = WebAddress.parse("")
    if parsed.scheme not in ("ws", "wss") or not parsed.host:
        raise UsageError(f"expected a URL like wss://host/path?token=… to dial, got {place}")
    if parsed.scheme == "ws" and not is_loopback(url):
        raise UsageError(
            f"expected wss:// to dial another machine, got {place}: over ws:// the network can read the token"
        )


async def dial(
    endpoint: Callable[[WebSocket], Awaitable[None]],
    url: str,
    *,
    name: str,
    options: DialOptions = DIAL_OPTIONS,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Connect to the WebSocket at `url` and serve there, again and again, until SIGTERM or cancelled.

    For endpoints, like those of xiaozhi, that forward a client's messages to the servers that have connected
    to them. TLS certificates are verified. Each connection is a new session, with the bounds of one that a
    client has opened. SIGTERM (in the main thread only) lets the requests in flight have their answers.

    Args:
        endpoint: from `websocket_endpoint`.
        url: `wss://`, or `ws://` on loopback. Its query, the token, is never shown.
        name: begins each line on stderr: one when connected, one when not, none per attempt.
        options: the time between two attempts.
        task_status: started at once, before anything is connected.

    Raises:
        UsageError: see `check_endpoint`.
        ConnectError: the endpoint refuses this server, and would again: HTTP 401, 403 or another status
            except 408, 429 and 5xx; or close code 1008 before the first message.
    """
    check_endpoint(url)
    line = _DialledLine(endpoint, url, name, options)
    async with trio.open_nursery() as nursery:
        await nursery.start(line.shutdown.listen)
        nursery.start_soon(line.stop_at_shutdown)
        task_status.started()
        refusal = await line.run()
        nursery.cancel_scope.cancel()
    if refusal is not None:  # here, where no nursery makes a group of it
        raise refusal


class _DialledLine:
    """The connection to one endpoint, opened again whenever it ends."""

    def __init__(
        self, endpoint: Callable[[WebSocket], Awaitable[None]], url: str, name: str, options: DialOptions
    ) -> None:
        self._endpoint = endpoint
        self._url = url
        self._place = place_of(url)
        self._name = name
        self._options = options
        self._http = HttpServerOptions()
        self.shutdown = Shutdown()
        self._serving = Serving(shutdown=self.shutdown, slots=trio.CapacityLimiter(self._http.requests))
        self._idle = trio.CancelScope()
        """Around what a shutdown need not wait for."""
        self._grace = trio.CancelScope()
        self._is_up: bool | None = None
        """As reported last."""

    async def stop_at_shutdown(self) -> None:
        """Wait for the shutdown; then give the requests in flight their grace."""
        await self.shutdown.requested.wait()
        self._idle.cancel()
        self._grace.deadline = trio.current_time() + self.shutdown.grace_seconds

    async def run(self) -> ConnectError | None:
        """Serve until the shutdown (None) or until the endpoint refuses (the error)."""
        delay = self._options.first_seconds
        with self._grace:
            while not self.shutdown.requested.is_set():
                try:
                    if await self._connect_once():
                        delay = self._options.first_seconds
                except ConnectError as error:
                    return error
                with self._idling():
                    await trio.sleep(delay * random.uniform(0.5, 1.0))
                delay = min(2 * delay, self._options.last_seconds)
        return None

    @contextmanager
    def _idling(self) -> Iterator[None]:
        with trio.CancelScope() as self._idle:
            if self.shutdown.requested.is_set():
                self._idle.cancel()
            yield

    async def _connect_once(self) -> bool:
        """One attempt, and the connection that it makes. True if a message arrived over it.

        Raises `ConnectError` if another attempt would be refused too.
        """
        websocket: FramedWebSocket | None = None
        try:
            with self._idling():
                async with opened(self._url, DEFAULT_LIMITS, WebSocketOptions(subprotocols=())) as (
                    stream,
                    _subprotocol,
                    received,
                ):
                    self._idle = trio.CancelScope()  # a shutdown waits for what follows
                    self._report(True, f"connected to {self._place}")
                    websocket = await self._serve(stream, received)
        except AccessDeniedError as error:
            raise self._refused(f"HTTP {error.status}") from error
        except ConnectError as error:
            if isinstance(error, UpgradeRefusedError) and not is_retryable(error.status):
                raise
            self._report(False, str(error))
        if websocket is None:
            return False
        ending, closed = "it ended", websocket.closed
        if closed is not None:
            ending = f"code {closed.code}" + (f", {escape_line(closed.reason)}" if closed.reason else "")
            is_refusal = closed.end is End.PEER and closed.code == CloseReason.POLICY_VIOLATION
            if is_refusal and not websocket.received_any:
                raise self._refused(ending)
        if not self.shutdown.requested.is_set():
            self._report(False, f"the connection to {self._place} ended ({ending})")
        return websocket.received_any

    async def _serve(self, stream: trio.abc.Stream, received: bytes) -> FramedWebSocket:
        """Serve a connection to its end."""

        async def accept(_message: Message) -> bytes:
            return received

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await self._endpoint(WebSocket(scope, receive, send))

        websocket = FramedWebSocket(
            Wire(stream, self._http.send_seconds),
            self._serving.slots,
            role=ConnectionType.CLIENT,
            closing_seconds=self._http.closing_seconds,
            accept=accept,
        )

        with suppress(OSError, trio.BrokenResourceError):  # the endpoint has left
            await run_app(
                app, self._scope(), websocket.receive, websocket.send, lambda: websocket.closed is not None
            )
            await websocket.finish()
        return websocket

    def _scope(self) -> Scope:
        address = WebAddress.parse(self._url)
        return {
            "type": "websocket",
            "asgi": ASGI_VERSIONS,
            "http_version": "1.1",
            "scheme": address.scheme,
            "path": address.path,
            "root_path": "",
            "query_string": b"",  # it holds the token
            "headers": [],
            "subprotocols": [],
            "state": {},
            "extensions": {SERVING_EXTENSION: self._serving},
        }

    def _refused(self, how: str) -> ConnectError:
        return ConnectError(
            f"{self._place} refused access ({how}): the token is wrong or no longer valid; copy the"
            " endpoint's address again"
        )

    def _report(self, is_up: bool, text: str) -> None:
        if is_up is not self._is_up:
            self._is_up = is_up
            sys.stderr.write(f"{self._name}: {text}{'' if is_up else '; trying again'}\n")
            sys.stderr.flush()
