"""What one HTTP connection may cost: a listener and a stream that bound hypercorn's connections in time.

hypercorn bounds the size of a request's head and the silence between two requests. It does not bound how long
a head or a body may drip in, nor how long a client may leave its answer unread (its `send_all` is shielded,
so that not even cancelling the server would end it), nor how many connections there are; and a client that
has gone costs its task until the keep-alive time is over. All of that is bounded here, below hypercorn; but
for a request's body (`http_body.py`) and the size of a WebSocket's messages (`websocket_frames.py`).
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import trio
from hypercorn.config import Config
from hypercorn.events import Event, Updated
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState, LifespanState
from hypercorn.utils import parse_socket_addr

from playhead.servers.http_protocol import Http1

SEND_BYTES: Final = 65_536
"""The piece of an answer that `HttpOptions.send_seconds` is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """How long a client may take, and how many there may be. A connection past a limit is closed."""

    connections: int = 256
    """At once; further ones wait in the backlog. A player needs one or two; a process may often have no more
    than 1,024 files open, and a read of a remote origin takes one too."""
    head_seconds: float = 5.0
    """From connecting, or from the first byte of a later request, to the whole head of the request. The head
    is one packet; and a client that waits in the backlog behind silent ones gives up after 10 s."""
    body_seconds: float = 20.0
    """From the head to the whole body; a request to our servers is a few hundred bytes."""
    body_bytes: int = 1024 * 1024
    """The body of a request."""
    send_seconds: float = 30.0
    """For each 64 KiB of an answer: 2 KiB/s, a tenth of the slowest music. The time a client gives a page."""
    keep_alive_seconds: float = 300.0
    """Between an answer and the next request. A client reads a page of music every 6 s or so, and stops while
    the listener pauses: hypercorn's 5 s would make it connect anew each time."""
    closing_seconds: float = 2.0
    """For the request's task to end by itself when its client has gone or its connection was closed."""


class BoundedStream(trio.abc.HalfCloseableStream):
    """A connection with deadlines; `lifetime` is cancelled soon after the stream has ended in any way."""

    def __init__(self, stream: trio.SocketStream, options: HttpOptions, lifetime: trio.CancelScope) -> None:
        self._stream = stream
        self._options = options
        self._lifetime = lifetime
        self._head_deadline = trio.current_time() + options.head_seconds
        self._silence_seconds = math.inf
        self._send_seconds = options.send_seconds
        self.busy = False
        """Whether a request's head was read and its answer is not yet written: then no head is waited for. A
        WebSocket stays so to its end."""
        self.message_deadline = math.inf
        """When a WebSocket's message that has begun must be whole."""
        self.closing_seconds = options.closing_seconds
        self.overdue: str | None = None
        """What the client took too long for."""

    @property
    def socket(self) -> trio.socket.SocketType:
        """hypercorn asks it for the addresses."""
        return self._stream.socket

    def idle(self) -> None:
        """The answer is written; the next head's time begins with its first byte."""
        self.busy = False
        self._head_deadline = math.inf

    def talk(self, *, silence_seconds: float, send_seconds: float) -> None:
        """The request has become a WebSocket: it may last, but not in silence."""
        self._silence_seconds = silence_seconds
        self._send_seconds = send_seconds

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What has come; b"" at the end.

        Raises:
            trio.BrokenResourceError: the connection broke, a head or a WebSocket's message was not whole in
                time, or a WebSocket was silent for too long.
            trio.ClosedResourceError: it was closed here.
        """
        data = b""
        try:
            with trio.CancelScope(deadline=self._receive_deadline()) as waiting:
                data = bytes(await self._stream.receive_some(max_bytes))
            if waiting.cancelled_caught:
                in_message = self.message_deadline <= trio.current_time()
                self.overdue = (
                    "a message was not whole in time" if in_message else "nothing came for too long"
                )
                raise trio.BrokenResourceError(self.overdue)
        finally:
            if not data:
                self._end_soon()
        if not self.busy:
            self._head_deadline = min(self._head_deadline, trio.current_time() + self._options.head_seconds)
        return data

    def _receive_deadline(self) -> float:
        if not self.busy:
            return self._head_deadline
        # From now, not from the last byte: while the server itself does not read, nobody is silent.
        return min(self.message_deadline, trio.current_time() + self._silence_seconds)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Sends in pieces, each with its deadline.

        Raises:
            trio.BrokenResourceError: the connection broke, or the client did not take a piece in time.
            trio.ClosedResourceError: it was closed here.
        """
        sent = False
        try:
            with memoryview(data) as view:
                for start in range(0, len(view), SEND_BYTES):
                    with trio.fail_after(self._send_seconds):
                        await self._stream.send_all(view[start : start + SEND_BYTES])
            sent = True
        except trio.TooSlowError:
            raise trio.BrokenResourceError("the client does not read its answer") from None
        finally:
            if not sent:
                self.close()

    async def wait_send_all_might_not_block(self) -> None:
        """As the stream's own."""
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """As the stream's own."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Closes at once. Idempotent."""
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """As `aclose`; whoever waits for the stream gets `trio.ClosedResourceError`."""
        self._stream.socket.close()
        self._end_soon()

    def _end_soon(self) -> None:
        # With no request in flight there is nothing to wait for but hypercorn's timer of an idle connection.
        grace = self._options.closing_seconds if self.busy else 0.0
        self._lifetime.deadline = min(self._lifetime.deadline, trio.current_time() + grace)


class BoundedConnection(TCPServer):
    """hypercorn's connection over a `BoundedStream`, with TLS or without."""

    protocol: Http1  # type: ignore[assignment]  # hypercorn wraps its own, to change to HTTP/2 half-way

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        state: LifespanState,
        tls: ssl.SSLContext | None,
        wire: BoundedStream,
    ) -> None:
        stream = wire if tls is None else trio.SSLStream(wire, tls, server_side=True, https_compatible=True)
        super().__init__(app, config, context, state, stream)  # type: ignore[arg-type]  # it takes either
        self._wire = wire
        self._tls = tls is not None

    async def run(self) -> None:
        """Serves the connection to its end; the steps of hypercorn's own `run`, with our protocol."""
        try:
            if self._tls:
                # Not shielded, and within the time for the head of the first request.
                await self.stream.do_handshake()
            socket = self._wire.socket
            async with TaskGroup() as task_group:
                self._task_group = task_group
                self.protocol = Http1(
                    self.app,
                    self.config,
                    self.context,
                    task_group,
                    ConnectionState(self.state),
                    self._tls,
                    parse_socket_addr(socket.family, socket.getpeername()),
                    parse_socket_addr(socket.family, socket.getsockname()),
                    self.protocol_send,
                    wire=self._wire,
                )
                await self.idle_task.restart(task_group, self._idle_timeout)
                await self._read_data()
        except (OSError, trio.BrokenResourceError):
            pass  # the client has gone
        finally:
            await self._close()

    async def protocol_send(self, event: Event) -> None:
        """Carries out what the protocol decided."""
        if isinstance(event, Updated):
            if event.idle:
                self._wire.idle()
            else:
                self._wire.busy = True
        await super().protocol_send(event)


class BoundedListener(trio.abc.Listener[trio.SocketStream]):
    """Accepts while there are fewer than so many connections; the others wait in the kernel's backlog."""

    def __init__(self, listener: trio.SocketListener, options: HttpOptions) -> None:
        self._listener = listener
        self._options = options
        self._free = trio.Semaphore(options.connections)
        self._streams: set[BoundedStream] = set()
        self._one_ended = trio.Event()

    async def accept(self) -> trio.SocketStream:
        """The next connection, which must be given to `serve`: it holds a place.

        Raises:
            trio.ClosedResourceError: the listener was closed.
            OSError: as `trio.SocketListener.accept`.
        """
        await self._free.acquire()
        accepted = False
        try:
            stream = await self._listener.accept()
            accepted = True
            return stream
        finally:
            if not accepted:
                self._free.release()

    async def serve(
        self, run: Callable[[BoundedStream], Awaitable[None]], accepted: trio.SocketStream
    ) -> None:
        """Runs a connection in its bounds; afterwards it is closed and its place free, cancelled or not."""
        with trio.CancelScope() as lifetime:
            stream = BoundedStream(accepted, self._options, lifetime)
            self._streams.add(stream)
            try:
                await run(stream)
            finally:
                self._streams.remove(stream)
                stream.close()
                self._free.release()
                self._one_ended.set()
                self._one_ended = trio.Event()

    async def until_none_is_left(self) -> None:
        """Waits for the end of every connection."""
        while self._streams:
            await self._one_ended.wait()

    async def close_when_cancelled(self) -> None:
        """Waits to be cancelled, and then closes every connection: hypercorn shields its sending."""
        try:
            await trio.sleep_forever()
        finally:
            for stream in self._streams:
                stream.close()

    async def aclose(self) -> None:
        """Listens no more; connections go on."""
        await self._listener.aclose()
