"""Notice that the server's list of tools has changed, in every protocol revision.

Revisions with a handshake send the notification unasked, on any stream. Since 2026-07-28 (SEP-2575) it is
sent to clients that called `subscriptions/listen`: a request that is answered when the subscription ends. It
is called once per connection, as soon as somebody subscribes, with an id of its own that each notification
repeats. The server acknowledges it first, and says which notifications it will send.

An item means "list the tools again", not what changed, so any number of changes not yet received are one
item. Nothing is replayed: after a subscription or a connection was lost and renewed an item is sent as well,
because nobody knows what was missed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import trio

from playhead.concurrency import Broadcast
from playhead.errors import PlayheadError, ServerError
from playhead.limits import Limits
from playhead.protocol.messages import METHOD_NOT_FOUND
from playhead.protocol.revisions import REVISIONS, SUBSCRIPTION_META

TOOLS_CHANGED: Final = "notifications/tools/list_changed"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
CANCELLED: Final = "notifications/cancelled"
RETRY_SECONDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Waits before another subscription. After the last the server is left alone until there is a new
connection."""
STEADY_SECONDS: Final = 60.0
"""A subscription that lasted this long was a good one: the waits start over after it."""


class Listener(Protocol):
    """The part of a connection that a subscription needs."""

    @property
    def protocol_version(self) -> str: ...
    @property
    def capabilities(self) -> Mapping[str, Any]: ...

    async def listen(self, request_id: str, params: Mapping[str, Any]) -> object:
        """Send `subscriptions/listen` with this id, and return when it is answered, however late. Cancelling
        cancels the request.

        It is not in flight: it has no deadline, and neither it nor its notifications are a sign of life.
        Raises `ServerError`, or a `TransportError` when it is lost.
        """


@dataclass(slots=True, eq=False)
class _Subscription:
    scope: trio.CancelScope
    is_renewed: bool
    """Changes may have been missed before it."""
    accepted: Mapping[str, Any] | None = None
    """The notifications that the server will send; None before it says so."""


class ToolListChanges:
    """The subscribers of one session, whatever happens to its connections."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._wanted = trio.Event()
        self._changes = Broadcast[None](capacity=1)
        self._subscriptions: dict[str, _Subscription] = {}
        """Keyed by id: while a connection is replaced, the old one and the new one have one each."""
        self._count = 0

    def subscribe(self) -> trio.MemoryReceiveChannel[None]:
        """A channel that holds one item. It ends after `close`."""
        self._wanted.set()
        return self._changes.subscribe()

    def close(self) -> None:
        """End the channels. Idempotent."""
        self._changes.close()

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Take note of a notification. Never waits."""
        meta = params.get("_meta")
        name = meta.get(SUBSCRIPTION_META) if isinstance(meta, Mapping) else None
        if name is None and method == TOOLS_CHANGED:
            self._changes.send(None)
        subscription = self._named(params.get("requestId") if method == CANCELLED else name)
        if subscription is None:
            return
        accepted = params.get("notifications")
        if method == CANCELLED:
            subscription.scope.cancel()
        elif method == ACKNOWLEDGED and subscription.accepted is None and isinstance(accepted, Mapping):
            subscription.accepted, subscription.scope.deadline = accepted, math.inf
            if subscription.is_renewed:
                self._changes.send(None)
        elif method == TOOLS_CHANGED and (subscription.accepted or {}).get("toolsListChanged") is True:
            self._changes.send(None)

    def _named(self, name: object) -> _Subscription | None:
        return self._subscriptions.get(name) if isinstance(name, str) else None

    async def follow(self, connection: Listener, *, renewed: bool) -> None:
        """Keep the server notifying for as long as its connection lives; cancelled when that ends.

        `renewed` says that this is not the first connection.
        """
        await self._wanted.wait()
        revision = REVISIONS[connection.protocol_version]
        if renewed and not revision.has_listen:
            self._changes.send(None)
        if not revision.has_listen or not _announces_changes(connection.capabilities):
            return
        again, tries = renewed, 0
        while True:
            began = trio.current_time()
            try:
                await self._listen(connection, again=again)
            except ServerError as error:
                if error.code == METHOD_NOT_FOUND:
                    return
            except PlayheadError:
                pass  # it was lost, and is renewed
            if trio.current_time() - began > STEADY_SECONDS:
                tries = 0
            if tries == len(RETRY_SECONDS):
                return
            await trio.sleep(RETRY_SECONDS[tries])
            again, tries = True, tries + 1

    async def _listen(self, connection: Listener, *, again: bool) -> None:
        """Hold one subscription until the server ends it, or has not acknowledged it in time."""
        self._count += 1
        with trio.move_on_after(self._limits.tool_seconds) as scope:
            name = f"listen-{self._count}"
            self._subscriptions[name] = _Subscription(scope, is_renewed=again)
            try:
                await connection.listen(name, {"notifications": {"toolsListChanged": True}})
            finally:
                del self._subscriptions[name]


def _announces_changes(capabilities: Mapping[str, Any]) -> bool:
    """True if the server promises notifications, or said nothing because there was no handshake."""
    match capabilities:
        case {"tools": {"listChanged": True}}:
            return True
    return not capabilities
