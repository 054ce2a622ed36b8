"""The seam between a transport and the SDK's session, where raw answers are taken out.

The SDK validates every result as a whole: one unknown block, and the answer to a tool call is lost. Here the
answer to each of our requests is stored in its `PendingRequest` as received, and the SDK gets a small valid
stand-in: it keeps ids, protocol versions and cancellation, and we keep the bytes. The pending request travels
from the caller to the outgoing message in a context variable, because the SDK sends in the caller's task and
chooses the id itself.

It also shows where an error comes from: `answer_error` was sent by the peer, `failure` was reported by our
transport, and any other error was made up by the SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Self

import trio
from anyio import EndOfStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from playhead.client.session.arrivals import Arrivals as Arrivals
from playhead.client.transports.outcomes import BegunAnswer, PendingRequest
from playhead.errors import ConnectionLostError, LimitError, PlayheadError
from playhead.limits import Limits
from playhead.protocol.faults import PastRequests, ProtocolFaults
from playhead.sdk_internals import ReadStream, WriteStream, coerce_request_id

CURRENT_REQUEST: Final[ContextVar[PendingRequest | None]] = ContextVar(
    "playhead_pending_request", default=None
)

FILES_CAPABILITY: Final = {"download": True, "transports": ["https"]}
"""Files are read out of band (SEP-2631, a draft)."""

HANDSHAKES: Final = frozenset({"initialize", "server/discover"})

STAND_IN: Final[dict[str, Any]] = {
    # The required fields of every method's result, in every revision; unknown keys are ignored.
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
    """The nesting depth of lists and objects in `value`; stops counting one past `limit`."""
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


class ResponseTap:
    """The requests in flight on one connection, and the event of its end."""

    def __init__(
        self, limits: Limits, *, on_notification: Callable[[str, dict[str, Any]], None] = lambda *_: None
    ) -> None:
        """`on_notification` is called with each notification's method and parameters, and must not wait."""
        self._limits = limits
        self._on_notification = on_notification
        self._pending: dict[RequestId, PendingRequest] = {}
        self._direct: dict[RequestId, PendingRequest] = {}
        """Those that are sent past the session."""
        self._begun: dict[RequestId, BegunAnswer] = {}
        """Until the transport takes them, whoever still waits: without it, the request would be sent."""
        self._past = PastRequests()
        self.handshake: dict[str, Any] | None = None
        """The raw result of the handshake; None before it, or without one."""
        self._asked = 0
        """Requests of the server without an answer. Counted, not told apart: a server may use one id for all
        of them, and each costs the SDK a task until the transport has taken its answer."""
        self.ended = trio.Event()
        """Set when the peer has ended the connection, or its owner leaves it."""

    @contextmanager
    def pending(self, method: str, *, take: bool = True) -> Iterator[PendingRequest]:
        """Track what this task sends inside the context: one request, or the few of a handshake."""
        pending = PendingRequest(method, take)
        token = CURRENT_REQUEST.set(pending)
        try:
            yield pending
        finally:
            CURRENT_REQUEST.reset(token)
            self._forget(pending)

    @contextmanager
    def tracked(self, pending: PendingRequest, request_id: RequestId) -> Iterator[None]:
        """Track what is sent past the session as `request_id`, for its progress and the connection's end."""
        self._pending[request_id] = self._direct[request_id] = pending
        try:
            yield
        finally:
            del self._pending[request_id], self._direct[request_id]

    def note_type(self, pending: PendingRequest, answer: JSONRPCResponse | JSONRPCError) -> None:
        """Count the answer to `pending` if its id has another type: "7" for 7."""
        self._past.retyped += type(answer.id) is not type(pending.request_id)

    def touch(self, request_id: RequestId) -> None:
        """A byte of the answer to `request_id` has arrived. Called by transports that can tell."""
        pending = self._pending.get(request_id)
        if pending is not None:
            pending.touched = trio.current_time()

    def fail(self, request_id: RequestId, error: PlayheadError) -> None:
        """The transport reports why `request_id` gets no answer. The first reason counts."""
        pending = self._pending.get(request_id)
        if pending is not None and pending.failure is None:
            pending.failure = error

    def sent(self, message: SessionMessage) -> None:
        """The transport has accepted `message`."""
        if isinstance(message.message, JSONRPCResponse | JSONRPCError):
            self._asked = max(self._asked - 1, 0)

    def issued(self, message: SessionMessage) -> None:
        pending = CURRENT_REQUEST.get()
        request = message.message
        if pending is not None and isinstance(request, JSONRPCRequest):
            if pending.request_id is not None:
                self._forget(pending)
                pending.answer_error = pending.failure = None
                pending.answered = pending.taken = False
            pending.request_id = request.id
            self._pending[request.id] = pending
            if pending.begun is not None:
                self._begun[request.id], pending.begun = pending.begun, None
        if isinstance(request, JSONRPCRequest):
            self._past.sent(str(request.id))

    def faults(self) -> ProtocolFaults:
        """Unclaimed answers. Only transports that pass them on show any: stdio drops them unread."""
        return self._past.faults()

    def _forget(self, pending: PendingRequest) -> None:
        if pending.request_id is not None and self._pending.pop(pending.request_id, None) is not None:
            self._past.over(str(pending.request_id), answered=pending.answered)

    def arrived(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        """Take the answer to one of our requests out of `item`; pass everything else through."""
        if not isinstance(item, SessionMessage):
            return item
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._note_asked()
        if isinstance(message, JSONRPCNotification):
            if message.method == "notifications/progress":
                self._on_progress(message.params or {})
            self._on_notification(message.method, message.params or {})
        if not isinstance(message, JSONRPCResponse | JSONRPCError) or message.id is None:
            return item
        pending = self._pending.get(coerce_request_id(message.id))
        if pending is None:
            self._past.unclaimed(str(message.id), is_result=isinstance(message, JSONRPCResponse))
            return item
        if pending.taken:
            pending.taken = False
            return item
        if pending.answered:
            self._past.repeated += 1
        self.note_type(pending, message)
        pending.answered = True
        pending.touched = trio.current_time()
        if isinstance(message, JSONRPCError):
            self.note_error(pending, message)
            return item
        if not pending.take:
            if pending.method in HANDSHAKES:
                self.handshake = message.result
            return item
        limit = self._limits.json_depth
        if depth_of(message.result, limit) > limit:
            pending.failure = LimitError(
                f"expected an answer to {pending.method} nested at most {limit} levels deep, got more; raise"
                " Limits.json_depth if you trust this server",
                limit="json_depth",
                allowed=limit,
                got=limit + 1,
            )
        else:
            pending.result = message.result
        return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=message.id, result=dict(STAND_IN)))

    def _on_progress(self, about: dict[str, Any]) -> None:
        """Report the progress of a request that was sent past the session, which does not know its token."""
        token = about.get("progressToken")
        pending = self._direct.get(coerce_request_id(token)) if isinstance(token, int | str) else None
        if pending is not None:
            pending.notified(about)

    def begun(self, request_id: RequestId, *, keep: bool = False) -> BegunAnswer | None:
        """The answer that has arrived already to `request_id`, not to be sent; once, unless `keep`."""
        return self._begun.get(request_id) if keep else self._begun.pop(request_id, None)

    def takes(self, request_id: RequestId) -> bool:
        """True if the SDK is not to see the result of `request_id`."""
        pending = self._pending.get(request_id)
        return pending is not None and pending.take

    def take(self, answer: JSONRPCResponse) -> JSONRPCMessage:
        """Take the result of a request out of `answer`, which the transport has parsed within the limits.

        Returns the stand-in that the transport delivers in its place.
        """
        request_id = coerce_request_id(answer.id)
        item = self.arrived(SessionMessage(answer))
        assert isinstance(item, SessionMessage)
        if (pending := self._pending.get(request_id)) is not None:
            pending.taken = True
        return item.message

    def note_error(self, pending: PendingRequest, answer: JSONRPCError) -> None:
        """Take the error that `pending` was answered with, by the peer or by our own transport."""
        if not isinstance(answer.error.data, PlayheadError):
            pending.answer_error = answer.error
            return
        # Put there by our own transport: no peer can send an exception object.
        pending.failure = answer.error.data
        if isinstance(pending.failure, ConnectionLostError):
            # Known before the stream ends: the next request must not be sent to a dead process.
            self.ended.set()

    def _note_asked(self) -> None:
        self._asked += 1
        allowed = self._limits.server_requests
        if self._asked <= allowed:
            return
        error = LimitError(
            f"expected at most {allowed} server requests in flight (limit server_requests), got one more;"
            " a server must read the answers to its requests",
            limit="server_requests",
            allowed=allowed,
            got=self._asked,
        )
        for pending in self._pending.values():
            pending.failure = pending.failure or error
        self.ended.set()


def declare_files(method: str, params: dict[str, Any]) -> None:
    """Add file transfer to the client's capabilities in `params`: the SDK's type has no member for it.

    They are sent in `initialize`, and since revision 2026-07-28 with every request.
    """
    holder, key = params, "capabilities"
    if method != "initialize":
        holder, key = params.get("_meta") or {}, CLIENT_CAPABILITIES_META_KEY
    if isinstance(declared := holder.get(key), dict):
        holder[key] = {**declared, "files": FILES_CAPABILITY}


class TappedReader:
    """A transport's read stream, without the answers that the tap takes out."""

    def __init__(self, inner: ReadStream, tap: ResponseTap) -> None:
        self._inner = inner
        self._tap = tap

    async def receive(self) -> SessionMessage | Exception:
        if self._tap.ended.is_set():
            raise EndOfStream  # given up: what still arrives is not read, so that it cannot pile up
        try:
            item = await self._inner.receive()
        except EndOfStream:
            self._tap.ended.set()
            raise
        return self._tap.arrived(item)

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


class TappedWriter:
    """A transport's write stream that notes the id that the SDK gave to each pending request."""

    def __init__(self, inner: WriteStream, tap: ResponseTap) -> None:
        self._inner = inner
        self._tap = tap

    async def send(self, item: SessionMessage, /) -> None:
        if isinstance(item.message, JSONRPCRequest) and item.message.params is not None:
            declare_files(item.message.method, item.message.params)
        self._tap.issued(item)
        await self._inner.send(item)
        self._tap.sent(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_details: object) -> None:
        await self.aclose()
