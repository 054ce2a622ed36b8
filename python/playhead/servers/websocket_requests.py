"""The requests of one connection: which are worked on, and which wait for their turn. No clock, no socket.

A client may send as many requests as it likes without waiting for answers; that many tasks and answers are
more than a server can hold. So a few are in flight, the next ones wait as they came, and one too many is
refused. A request is in flight until its answer was sent: a client that does not read gets no further.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import mcp_types as types

from playhead.servers.websocket_memory import ANSWER_BYTES, NO_ROOM, Account
from playhead.servers.websocket_messages import Refusal

CANCELLED: Final = "notifications/cancelled"
_SUBSCRIBE: Final = "subscriptions/listen"
"""Has no end of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """See `websocket.WebSocketOptions`."""

    json_depth: int
    json_values: int
    in_flight: int
    waiting: int
    waiting_bytes: int
    """Of texts."""


@dataclass(slots=True)
class _Held:
    request: types.JSONRPCRequest
    size_bytes: int
    """Of its text."""
    cost_bytes: int
    """In the account; once it is in flight with its answer."""


class Requests:
    """Each request is waiting, then in flight, then forgotten."""

    def __init__(self, limits: RequestLimits, account: Account) -> None:
        self._limits = limits
        self._account = account
        self._waiting: OrderedDict[types.RequestId, _Held] = OrderedDict()
        self._in_flight: dict[types.RequestId, _Held] = {}
        self._bytes = 0
        self.closed = False
        """Nothing new is taken; what was begun is finished."""

    @property
    def none_left(self) -> bool:
        """Every request has its answer, but for those that never have one."""
        held = (*self._waiting.values(), *self._in_flight.values())
        return all(one.request.method == _SUBSCRIBE for one in held)

    def take(self, request: types.JSONRPCRequest, *, size_bytes: int, cost_bytes: int) -> Refusal | None:
        """Lets a request wait for its turn, or says why not.

        Args:
            request: what came.
            size_bytes: the length of its text.
            cost_bytes: what it costs in the account, as long as it has no answer.
        """
        if self.closed:
            return self._refuse(request, "the server is shutting down; ask elsewhere")
        if request.id in self._waiting or request.id in self._in_flight:
            why = "this id is in use by a request that has no answer yet; give each request its own"
            return Refusal(types.INVALID_REQUEST, why, request.id)
        limits = self._limits
        held = len(self._waiting) + len(self._in_flight)
        if held >= limits.waiting or (held and self._bytes + size_bytes > limits.waiting_bytes):
            return self._refuse(
                request,
                f"too many requests without an answer: {limits.waiting} and {limits.waiting_bytes} bytes are"
                f" allowed on one connection, {held} and {self._bytes} bytes wait; wait for answers",
            )
        if not self._account.take(cost_bytes):
            return self._refuse(request, NO_ROOM)
        self._waiting[request.id] = _Held(request, size_bytes, cost_bytes)
        self._bytes += size_bytes
        return None

    def next_due(self) -> types.JSONRPCRequest | None:
        """The next request to be worked on.

        None when none waits, as many as may be are in flight, or there is no room for one more answer.
        """
        if not self._waiting or len(self._in_flight) >= self._limits.in_flight:
            return None
        # The first one always: so each connection goes on by itself, however little room the others leave.
        if self._in_flight and not self._account.take(ANSWER_BYTES):
            return None
        request_id, held = self._waiting.popitem(last=False)
        held.cost_bytes += ANSWER_BYTES if self._in_flight else 0
        self._in_flight[request_id] = held
        return held.request

    def done(self, request_id: types.RequestId | None) -> bool:
        """A request in flight has its answer, or will have none; whether there was such a request."""
        held = self._in_flight.pop(request_id, None) if request_id is not None else None
        return self._forget(held)

    def cancel_waiting(self, notification: types.JSONRPCNotification) -> bool:
        """Drops a request that is cancelled before its turn, which then has no answer; whether it did."""
        request_id = (notification.params or {}).get("requestId")
        if not isinstance(request_id, str | int):
            return False
        return self._forget(self._waiting.pop(request_id, None))

    def _forget(self, held: _Held | None) -> bool:
        if held is None:
            return False
        self._bytes -= held.size_bytes
        self._account.give_back(held.cost_bytes)
        return True

    def _refuse(self, request: types.JSONRPCRequest, why: str) -> Refusal:
        return Refusal(types.INTERNAL_ERROR, why, request.id)
