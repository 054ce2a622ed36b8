"""Message pump shared by the stdio and WebSocket transports: connection → inbox → session → outbox.

What ends a connection (the peer, a limit) is recorded once as `failure`; every request in flight is answered
with it, and the session's stream ends. Reading never waits for writing, so a server that fills one direction
before it empties the other cannot deadlock both sides; a slow session makes the server wait, not memory grow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Final, Self

import anyio
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from playhead.concurrency import SingleUse
from playhead.errors import PlayheadError, UsageError
from playhead.jsonrpc import codec
from playhead.jsonrpc.faults import ProtocolFaults
from playhead.jsonrpc.inbox import Inbox

Received = SessionMessage | Exception
"""The items that the SDK reads from a transport."""

QUEUE_MESSAGES: Final = 64
"""Messages queued for a server that does not read. The SDK starts a request's clock when its message has been
accepted, so an unbuffered write to such a server would never time out."""


class Outbox:
    """An SDK write stream. Every request is registered with the inbox before it can be answered."""

    def __init__(self, queue: MemoryObjectSendStream[SessionMessage], inbox: Inbox) -> None:
        self._queue = queue
        self._inbox = inbox

    @classmethod
    def create(cls, inbox: Inbox) -> tuple[Self, MemoryObjectReceiveStream[SessionMessage]]:
        """The session's end and the writer's end."""
        send, receive = anyio.create_memory_object_stream[SessionMessage](QUEUE_MESSAGES)
        return cls(send, inbox), receive

    async def send(self, item: SessionMessage, /) -> None:
        """Queue a message; waits while the queue is full.

        Raises:
            anyio.ClosedResourceError: the session closed this end.
            anyio.BrokenResourceError: the transport is closed.
        """
        message = item.message
        self._inbox.sending(message)
        if isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            # The SDK shields this write for five seconds, and Ctrl-C would wait for it. A server that has
            # left 64 messages unread will not read this one either.
            try:
                self._queue.send_nowait(item)
            except anyio.WouldBlock:
                return
            return
        await self._queue.send(item)

    def close(self) -> None:
        """Close at once. Idempotent."""
        self._queue.close()

    async def aclose(self) -> None:
        """Close. Idempotent."""
        await self._queue.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


SessionStreams = tuple[MemoryObjectReceiveStream[Received], Outbox]


class PumpedTransport:
    """An SDK transport, `async with transport as (read, write)`, over a connection of JSON-RPC messages.

    Usable once. `failure`, `last_received` and `faults()` stay readable afterwards.
    """

    def __init__(
        self,
        inbox: Inbox,
        open_it: Callable[[], AbstractAsyncContextManager[SessionStreams]],
        *,
        again: str,
    ) -> None:
        self._inbox = inbox
        self._use = SingleUse(open_it, again=again)
        self._deliver: MemoryObjectSendStream[Received]
        self._outgoing: MemoryObjectReceiveStream[SessionMessage]
        self._lost = trio.Event()
        self._written = trio.Event()
        """Set once everything that the session has sent is written, or can't be."""
        self._sent_messages = 0
        self._closing = False
        self._listening = True
        """True while incoming bytes are parsed; afterwards they are only read off."""
        self.failure: PlayheadError | None = None
        """The error with which the connection ended by itself: a `ConnectionLostError` or a `LimitError`.
        None while it works and after its owner closed it."""
        self.last_received: float = 0.0
        """Time of the last byte that may belong to an awaited answer, on trio's clock (`current_time`). Log
        lines, pongs, unclaimed answers and plain notifications do not count: chatter does not show
        progress."""

    def faults(self) -> ProtocolFaults:
        """Protocol faults received so far."""
        return self._inbox.faults()

    async def __aenter__(self) -> SessionStreams:
        """Connect. Raises what the transport's function lists, and `ClosedError` the second time."""
        return await self._use.enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Close gracefully, or at once if `error` is a cancellation or Ctrl-C."""
        return await self._use.leave(kind, error, trace)

    @contextmanager
    def _session_streams(self) -> Iterator[SessionStreams]:
        # Nothing is buffered for the session: what it has not read stays in the pipe or socket.
        self._deliver, read_stream = anyio.create_memory_object_stream[Received](0)
        write_stream, self._outgoing = Outbox.create(self._inbox)
        with self._deliver, read_stream, write_stream, self._outgoing:
            self.last_received = trio.current_time()
            yield read_stream, write_stream

    async def _deliver_messages(self) -> None:
        """Pass on the messages that the last bytes fed to the inbox completed."""
        try:
            while (message := self._inbox.next_message()) is not None:
                self._note_activity()
                await self._deliver.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._listening = False
        self._note_activity()
        if self._inbox.failure is not None:
            self._listening = False
            self._lose(self._inbox.failure)

    def _note_activity(self) -> None:
        if self._inbox.is_active:
            self.last_received = trio.current_time()

    async def _write(
        self, send: Callable[[bytes], Awaitable[None]], on_broken: Callable[[], Awaitable[None]]
    ) -> None:
        """Write the session's messages with `send` until the session ends or the connection breaks."""
        try:
            async for session_message in self._outgoing:
                message = session_message.message
                encoded = codec.encode(message)
                if not isinstance(encoded, UsageError):
                    await send(encoded)
                    self._sent_messages += 1
                elif isinstance(message, types.JSONRPCRequest):
                    answer = self._inbox.fail(message, encoded)
                    await self._answer([answer] if answer is not None else [])
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await on_broken()
        finally:
            self._written.set()

    async def _answer(self, answers: Iterable[types.JSONRPCMessage]) -> None:
        """Give `answers` to the session, unless it is gone."""
        for answer in answers:
            try:
                await self._deliver.send(SessionMessage(answer))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    def _lose(self, error: PlayheadError | None) -> None:
        """Record the loss of the connection, unless it is recorded or we are closing."""
        if not self._lost.is_set() and not self._closing:
            self.failure = error
            self._lost.set()

    async def _end_session(self, failure: PlayheadError) -> None:
        """Answer everything awaited with `failure` and end the stream, then drop what is still sent.

        Requests that wait for room in the queue are among the answered ones; their senders must not wait on.
        Returns when the session has closed its end.
        """
        await self._answer(self._inbox.fail_awaited(failure))
        self._deliver.close()
        async for _ in self._outgoing:
            pass
