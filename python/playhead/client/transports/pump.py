"""Message pump shared by the stdio and WebSocket transports: connection → inbox → session → outbox.

A direct request shares all of it but the session: its answer is handed to the task that waits for it.

What ends a connection (the peer, a limit) is recorded once as `failure`; every request in flight is answered
with it, and the session's stream ends. Reading never waits for writing, so a server that fills one direction
before it empties the other cannot deadlock both sides; a slow session makes the server wait, not memory grow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import anyio
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from playhead.client.transports.outcomes import PendingRequest
from playhead.concurrency import SingleUse
from playhead.errors import ConnectionLostError, PlayheadError, UsageError
from playhead.protocol import sdk_messages as messages
from playhead.protocol.faults import ProtocolFaults
from playhead.protocol.sdk_inbox import Inbox

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

    def cancel(self, request_id: types.RequestId) -> None:
        """Tell the server that nobody waits for the answer any more, unless the queue is full."""
        message = messages.cancellation(request_id)
        self._inbox.sending(message)
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._queue.send_nowait(SessionMessage(message))

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


@dataclass(slots=True)
class _Waiting:
    """The task that waits for the answer to a direct request."""

    pending: PendingRequest
    answered: trio.Event = field(default_factory=trio.Event)
    answer: types.JSONRPCResponse | types.JSONRPCError | None = None


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
        self._outbox: Outbox
        self._waiting: dict[str, _Waiting] = {}
        inbox.views_for = self._waiting
        self._lost = trio.Event()
        self._written = trio.Event()
        """Set once everything that the session has sent is written, or can't be."""
        self._sent_messages = 0
        self._is_writing = False
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

    async def send(
        self, request: types.JSONRPCRequest, *, headers: Mapping[str, str], pending: PendingRequest
    ) -> types.JSONRPCResponse | types.JSONRPCError:
        """Send a direct request; see `session.connection.DirectRequests`."""
        key = messages.key_of(request.id)
        waiting = self._waiting[key] = _Waiting(pending)
        try:
            if not self._send_at_once(request):
                await self._outbox.send(SessionMessage(request))
            await waiting.answered.wait()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return messages.error_answer(request.id, self._gone())
        except trio.Cancelled:
            if waiting.answer is None:
                self._outbox.cancel(request.id)
            raise
        finally:
            del self._waiting[key]
        assert waiting.answer is not None
        return waiting.answer

    def _send_at_once(self, request: types.JSONRPCRequest) -> bool:
        """Write `request` without the writer's task; False if it has to wait for its turn there."""
        if self._is_writing or self._outgoing.statistics().current_buffer_used:
            return False
        encoded = messages.encode(request)
        if isinstance(encoded, UsageError):
            return False
        self._inbox.sending(request)
        if not self._write_at_once(encoded):
            return False
        self._sent_messages += 1
        return True

    def _write_at_once(self, message: bytes) -> bool:
        """Write `message` if all of it can be written now; False, with nothing written, if not."""
        return False

    def _gone(self) -> PlayheadError:
        return self.failure or ConnectionLostError("expected an answer, but the connection was closed")

    def _is_direct(self, message: types.JSONRPCMessage) -> bool:
        """Hand `message` to the task that waits for it; False if it is the session's."""
        if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError) or message.id is None:
            return False
        waiting = self._waiting.get(messages.key_of(message.id))
        if waiting is None:
            return False
        waiting.answer = message
        waiting.answered.set()
        return True

    def _is_direct_progress(self, message: types.JSONRPCMessage) -> bool:
        """Report `message` to the task that waits for the answer; False if it is not about its request."""
        if not isinstance(message, types.JSONRPCNotification) or message.method != "notifications/progress":
            return False
        about = message.params or {}
        token = about.get("progressToken")
        waiting = self._waiting.get(str(token)) if isinstance(token, int | str) else None
        if waiting is None:
            return False
        waiting.pending.notified(about)
        return True

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
        self._outbox = write_stream
        with self._deliver, read_stream, write_stream, self._outgoing:
            self.last_received = trio.current_time()
            try:
                yield read_stream, write_stream
            finally:
                for key in self._waiting:
                    self._is_direct(messages.error_answer(int(key), self._gone()))

    async def _deliver_messages(self) -> None:
        """Pass on the messages that the last bytes fed to the inbox completed."""
        try:
            while (message := self._inbox.next_message()) is not None:
                self._note_activity()
                if not self._is_direct(message) and not self._is_direct_progress(message):
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
                encoded = messages.encode(message)
                if not isinstance(encoded, UsageError):
                    self._is_writing = True
                    await send(encoded)
                    self._is_writing = False
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
            if self._is_direct(answer):
                continue
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
