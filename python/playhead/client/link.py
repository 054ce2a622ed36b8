"""The seam between a transport and the SDK's session, where raw answers are taken out.

The SDK validates every result as a whole: one unknown block and the answer to a tool call is lost. Here the
answer to a request of ours is put on its ticket as it came, and the SDK gets a small valid stand-in, so that
it keeps ids, eras and cancellation, and we keep the bytes. The ticket travels from the caller to the outgoing
message in a context variable, because the SDK sends in the caller's task and chooses the id itself.

It is also where an error's origin shows: what is on the ticket as `answer_error` was sent by the peer, what
is there as `failure` was reported by our transport, and anything else the SDK raises it made up itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Self

import trio
from anyio import EndOfStream
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from playhead.client.wire import PastRequests, WireFaults
from playhead.errors import ConnectionLostError, LimitError, PlayheadError
from playhead.limits import Limits


@dataclass(slots=True)
class Ticket:
    """One request of ours, and what became of it."""

    method: str
    take: bool = True
    """Whether the result is taken from the SDK; False for the handshake, which the SDK itself reads."""
    request_id: RequestId | None = None
    touched: float = 0.0
    """When the last byte of its answer came, on trio's clock; 0.0 where the transport can't tell."""
    result: dict[str, Any] | None = None
    answered: bool = False
    answer_error: ErrorData | None = None
    failure: PlayheadError | None = None


CURRENT: Final[ContextVar[Ticket | None]] = ContextVar("playhead_ticket", default=None)

HANDSHAKES: Final = frozenset({"initialize", "server/discover"})

STAND_IN: Final[dict[str, Any]] = {
    # The union of what any method's result must have, in any revision; unknown keys are ignored.
    "content": [],
    "contents": [],
    "tools": [],
    "resources": [],
    "resourceTemplates": [],
    "prompts": [],
    "messages": [],
    "completion": {"values": []},
    "supportedVersions": [],
    "protocolVersion": "",
    "capabilities": {},
    "serverInfo": {"name": "", "version": ""},
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
}


def depth_of(value: object, limit: int) -> int:
    """How deep `value` nests lists and objects; stops counting one past `limit`."""
    depth = 0
    level: list[object] = [value]
    while depth <= limit:
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        containers = [item for item in inner if isinstance(item, dict | list)]
        depth += 1
        if not containers:
            return depth
        level = list(containers)
    return depth


class Link:
    """The requests under way on one connection, and whether the connection has ended."""

    def __init__(self, limits: Limits, *, heard: Callable[[str], None] = lambda _method: None) -> None:
        """`heard` is told the method of each notification that comes in, and must not wait."""
        self._limits = limits
        self._heard = heard
        self._tickets: dict[RequestId, Ticket] = {}
        self._past = PastRequests()
        self.handshake: dict[str, Any] | None = None
        """The result that the handshake ended with, as it came; None where there was none."""
        self._asked = 0
        """Requests of the server that have no answer yet. They are counted, not told apart: a server may use
        one id for all of them, and each costs the SDK a task until the transport has taken its answer."""
        self.ended = trio.Event()
        """Set when the peer's side is over, or when the owner wants the connection to be left."""

    @contextmanager
    def ticket(self, method: str, *, take: bool = True) -> Iterator[Ticket]:
        """A ticket for what is sent inside this context, in this task: one request, or a handshake's few."""
        ticket = Ticket(method, take)
        token = CURRENT.set(ticket)
        try:
            yield ticket
        finally:
            CURRENT.reset(token)
            self._forget(ticket)

    def touch(self, request_id: RequestId) -> None:
        """A byte of the answer to `request_id` has come. Called by transports that can tell."""
        ticket = self._tickets.get(request_id)
        if ticket is not None:
            ticket.touched = trio.current_time()

    def fail(self, request_id: RequestId, error: PlayheadError) -> None:
        """The transport knows why `request_id` gets no answer. The first reason counts."""
        ticket = self._tickets.get(request_id)
        if ticket is not None and ticket.failure is None:
            ticket.failure = error

    def sent(self, message: SessionMessage) -> None:
        """The transport has taken `message`."""
        if isinstance(message.message, JSONRPCResponse | JSONRPCError):
            self._asked = max(self._asked - 1, 0)

    def issued(self, message: SessionMessage) -> None:
        ticket = CURRENT.get()
        request = message.message
        if ticket is not None and isinstance(request, JSONRPCRequest):
            if ticket.request_id is not None:
                self._forget(ticket)
                ticket.answer_error = ticket.failure = None
                ticket.answered = False
            ticket.request_id = request.id
            self._tickets[request.id] = ticket
        if isinstance(request, JSONRPCRequest):
            self._past.sent(str(request.id))

    def faults(self) -> WireFaults:
        """Answers to nobody. Only of transports that hand them on: stdio drops them before they are read."""
        return self._past.faults()

    def _forget(self, ticket: Ticket) -> None:
        if ticket.request_id is not None and self._tickets.pop(ticket.request_id, None) is not None:
            self._past.over(str(ticket.request_id), answered=ticket.answered)

    def arrived(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        """Take the answer to one of our requests out of `item`; everything else passes through."""
        if not isinstance(item, SessionMessage):
            return item
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._note_asked()
        if isinstance(message, JSONRPCNotification):
            self._heard(message.method)
        if not isinstance(message, JSONRPCResponse | JSONRPCError) or message.id is None:
            return item
        ticket = self._tickets.get(coerce_request_id(message.id))
        if ticket is None:
            self._past.unclaimed(str(message.id), is_result=isinstance(message, JSONRPCResponse))
            return item
        if ticket.answered:
            self._past.repeated += 1
        self._past.retyped += type(message.id) is not type(ticket.request_id)
        ticket.answered = True
        ticket.touched = trio.current_time()
        if isinstance(message, JSONRPCError):
            if isinstance(message.error.data, PlayheadError):
                # Put there by our own stdio transport: no wire can carry an exception object.
                ticket.failure = message.error.data
                if isinstance(ticket.failure, ConnectionLostError):
                    # Known before the stream ends: who asks next must not be sent to a dead process.
                    self.ended.set()
            else:
                ticket.answer_error = message.error
            return item
        if not ticket.take:
            if ticket.method in HANDSHAKES:
                self.handshake = message.result
            return item
        limit = self._limits.json_depth
        if depth_of(message.result, limit) > limit:
            ticket.failure = LimitError(
                f"the answer to {ticket.method} nests deeper than {limit} levels; raise Limits.json_depth if"
                " this server is to be trusted with more",
                limit="json_depth",
                allowed=limit,
                got=limit + 1,
            )
        else:
            ticket.result = message.result
        return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=message.id, result=dict(STAND_IN)))

    def _note_asked(self) -> None:
        self._asked += 1
        allowed = self._limits.server_requests
        if self._asked <= allowed:
            return
        error = LimitError(
            f"expected at most {allowed} requests of the server waiting for our answer at once (limit"
            " server_requests), got one more; a server that asks must take the answers",
            limit="server_requests",
            allowed=allowed,
            got=self._asked,
        )
        for ticket in self._tickets.values():
            ticket.failure = ticket.failure or error
        self.ended.set()


class LinkedReader:
    """A transport's read stream, with our answers taken out on the way to the SDK."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception], link: Link) -> None:
        self._inner = inner
        self._link = link

    async def receive(self) -> SessionMessage | Exception:
        if self._link.ended.is_set():
            raise EndOfStream  # given up: what still comes is not taken, so that it cannot pile up
        try:
            item = await self._inner.receive()
        except EndOfStream:
            self._link.ended.set()
            raise
        return self._link.arrived(item)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_details: object) -> None:
        await self.aclose()


class LinkedWriter:
    """A transport's write stream that notes which id the SDK gave to which ticket."""

    def __init__(self, inner: WriteStream[SessionMessage], link: Link) -> None:
        self._inner = inner
        self._link = link

    async def send(self, item: SessionMessage, /) -> None:
        self._link.issued(item)
        await self._inner.send(item)
        self._link.sent(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_details: object) -> None:
        await self.aclose()
