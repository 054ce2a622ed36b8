"""A WebSocket that the server opens itself, and opens again whenever it ends.

Endpoints like those of xiaozhi forward the messages of a client to the servers that have connected to them.
So the server dials, and then serves the connection like one that a client has opened.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import trio
from starlette.types import Message, Receive, Scope, Send
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
from playhead.servers.http_connection import ASGI_VERSIONS, HttpServerOptions, run_app
from playhead.servers.serving import SERVING_EXTENSION, Serving, Shutdown
from playhead.servers.websocket_frames import FramedWebSocket
from playhead.servers.wire import Wire
from playhead.web_address import WebAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class DialOptions:
    """The pauses between two attempts to connect. Each failure doubles the pause. A random part, up to one
    half, is subtracted from each pause, so that all servers of a house do not return at the same moment."""

    first_seconds: float = 1.0
    """The first pause, also after a connection over which a message has arrived."""
    last_seconds: float = 60.0
    """Limits the pause, so that music returns at most a minute after its endpoint."""


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

    TLS certificates are verified. Each connection is a new session, with the bounds of one that a client has
    opened. On SIGTERM (in the main thread only) the requests in flight are answered first.

    Args:
        endpoint: from `websocket_endpoint`.
        url: `wss://`, or `ws://` on loopback. Its query, the token, is never shown.
        name: the beginning of each line on stderr. A line reports each connection and each loss of it, but
            not each attempt.
        options: the time between two attempts.
        task_status: started at once, before the first attempt.

    Raises:
        UsageError: see `check_endpoint`.
        ConnectError: the endpoint refuses this server, and would again: HTTP 401, 403 or another status
            except 408, 429 and 5xx; or close code 1008 before the first message.
    """
    check_endpoint(url)
    connection = _DialledConnection(endpoint, url, name, options)
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.shutdown.listen)
        nursery.start_soon(connection.stop_at_shutdown)
        task_status.started()
        refusal = await connection.run()
        nursery.cancel_scope.cancel()
    if refusal is not None:  # raise it outside the nursery, which would wrap it in a group
        raise refusal


class _DialledConnection:
    """The connection to one endpoint. It opens again whenever it ends."""

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
        self._idle_scope = trio.CancelScope()
        """The scope around the waits that a shutdown cancels at once."""
        self._grace_scope = trio.CancelScope()
        self._reported_up: bool | None = None
        """The state that was reported last."""

    async def stop_at_shutdown(self) -> None:
        """Wait for the shutdown; then limit the requests in flight to the grace."""
        await self.shutdown.requested.wait()
        self._idle_scope.cancel()
        self._grace_scope.deadline = trio.current_time() + self.shutdown.grace_seconds

    async def run(self) -> ConnectError | None:
        """Serve until the shutdown (None) or until the endpoint refuses (the error)."""
        delay = self._options.first_seconds
        with self._grace_scope:
            while not self.shutdown.requested.is_set():
                try:
                    if await self._connect_once():
                        delay = self._options.first_seconds
                except ConnectError as error:
                    return error
                with self._within_idle_scope():
                    await trio.sleep(delay * random.uniform(0.5, 1.0))
                delay = min(2 * delay, self._options.last_seconds)
        return None

    @contextmanager
    def _within_idle_scope(self) -> Iterator[None]:
        """Let a shutdown cancel the `with` block at once."""
        with trio.CancelScope() as self._idle_scope:
            if self.shutdown.requested.is_set():
                self._idle_scope.cancel()
            yield

    async def _connect_once(self) -> bool:
        """Serve one connection; True if a message arrived. Raises `ConnectError` if refused for good."""
        websocket: FramedWebSocket | None = None
        try:
            with self._within_idle_scope():
                async with opened(self._url, DEFAULT_LIMITS, WebSocketOptions(subprotocols=())) as (
                    stream,
                    _subprotocol,
                    received,
                ):
                    self._idle_scope = trio.CancelScope()  # from here on a shutdown waits for the requests
                    self._report(True, f"connected to {self._place}")
                    websocket = await self._serve(stream, received)
        except AccessDeniedError as error:
            raise self._access_refused(f"HTTP {error.status}") from error
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
                raise self._access_refused(ending)
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
            "query_string": b"",  # the real one has the token
            "headers": [],
            "subprotocols": [],
            "state": {},
            "extensions": {SERVING_EXTENSION: self._serving},
        }

    def _access_refused(self, how: str) -> ConnectError:
        return ConnectError(
            f"{self._place} refused access ({how}): the token is wrong or no longer valid; copy the"
            " endpoint's address again"
        )

    def _report(self, is_up: bool, text: str) -> None:
        if is_up is not self._reported_up:
            self._reported_up = is_up
            sys.stderr.write(f"{self._name}: {text}{'' if is_up else '; trying again'}\n")
            sys.stderr.flush()
