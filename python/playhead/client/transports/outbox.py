"""The session's end of the way out: a bounded queue that registers requests and never blocks a farewell."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from playhead.client.transports.inbox import Inbox

QUEUE_MESSAGES = 64
"""Messages that wait for a server which does not read. The SDK starts a request's clock when its message
has been taken, so an unbuffered write to such a server would never time out."""


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
        """Close at once; idempotent."""
        self._queue.close()

    async def aclose(self) -> None:
        """Close; idempotent."""
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
