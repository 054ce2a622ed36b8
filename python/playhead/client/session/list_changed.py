"""Changes of a server's list of tools, in every protocol revision, as a channel of items.

An item means "list the tools again". It does not tell the change, so one item stands for all changes since
the last one was received. After a lost subscription or connection was renewed, an item is sent too, because
servers do not repeat the notifications that were missed.

In revisions with a handshake, servers send the notification unasked, on any stream. Since 2026-07-28
(SEP-2575) a client must subscribe with `subscriptions/listen`, a request that is answered when the
subscription ends. Each of its notifications names the id of that request, and the first one acknowledges it
and lists the kinds of notifications that will be sent. It is sent on each connection once the program has
called `subscribe`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
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
"""Waits before another subscription. After the last one there is none until the next connection."""
STEADY_SECONDS: Final = 60.0
"""A subscription that lasted longer than this makes the waits start over."""


class Listener(Protocol):
    """The part of a connection that a subscription needs."""

    @property
    def protocol_version(self) -> str: ...
    @property
    def capabilities(self) -> Mapping[str, Any]: ...

    async def listen(self, request_id: str, params: Mapping[str, Any]) -> object:
        """Send `subscriptions/listen` with this id, and return when it is answered, however late. Cancelling
        cancels the request.

        The request has no deadline. Raises `ServerError`, or a `TransportError` when it is lost.
        """


async def hold_again(hold: Callable[[], Awaitable[bool]]) -> None:
    """Call `hold`, which holds a subscription until it ends, again and again, with waits in between.

    Returns once `hold` returns False, which means that the server does not notify, or has no such method, and
    after the last of the waits.
    """
    tries = 0
    while True:
        began = trio.current_time()
        try:
            if not await hold():
                return
        except ServerError as error:
            if error.code == METHOD_NOT_FOUND:
                return
        except PlayheadError:
            pass  # the subscription was lost
        if trio.current_time() - began > STEADY_SECONDS:
            tries = 0
        if tries == len(RETRY_SECONDS):
            return
        await trio.sleep(RETRY_SECONDS[tries])
        tries += 1


@dataclass(slots=True, eq=False)
class _Subscription:
    """A subscription with the server, on one connection."""

    scope: trio.CancelScope
    is_renewed: bool
    """True if there was another one before, so that changes may have been missed between them."""
    accepted: Mapping[str, Any] | None = None
    """The notifications that the server will send; None before its acknowledgement."""


class ToolListChanges:
    """The channels of one session, which outlive its connections."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._wanted = trio.Event()
        self._changes = Broadcast[None](capacity=1)
        self._subscriptions: dict[str, _Subscription] = {}
        """The subscriptions by id. While a connection is replaced, the old and the new one have one each."""
        self._count = 0

    def subscribe(self) -> trio.MemoryReceiveChannel[None]:
        """Return a new channel, which holds one item and ends after `close`."""
        self._wanted.set()
        return self._changes.subscribe()

    def close(self) -> None:
        """End the channels. Idempotent."""
        self._changes.close()

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Handle a notification of the server's. Never blocks."""
        meta = params.get("_meta")
        id = meta.get(SUBSCRIPTION_META) if isinstance(meta, Mapping) else None
        if id is None and method == TOOLS_CHANGED:
            self._changes.send(None)
        if method == CANCELLED:
            id = params.get("requestId")
        subscription = self._subscriptions.get(id) if isinstance(id, str) else None
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

    async def follow(self, connection: Listener, *, renewed: bool) -> None:
        """Subscribe with the server, and again whenever that ends. Cancelled with the connection.

        `renewed` is True if this is not the session's first connection.
        """
        await self._wanted.wait()
        revision = REVISIONS[connection.protocol_version]
        if renewed and not revision.has_listen:
            self._changes.send(None)
        if not revision.has_listen or not _announces_changes(connection.capabilities):
            return
        is_renewed = renewed

        async def hold() -> bool:
            nonlocal is_renewed
            was_renewed, is_renewed = is_renewed, True
            await self._listen(connection, is_renewed=was_renewed)
            return True

        await hold_again(hold)

    async def _listen(self, connection: Listener, *, is_renewed: bool) -> None:
        """Hold one subscription until the server ends it, or fails to acknowledge it in time."""
        self._count += 1
        with trio.move_on_after(self._limits.tool_seconds) as scope:
            id = f"listen-{self._count}"
            self._subscriptions[id] = _Subscription(scope, is_renewed=is_renewed)
            try:
                await connection.listen(id, {"notifications": {"toolsListChanged": True}})
            finally:
                del self._subscriptions[id]


def _announces_changes(capabilities: Mapping[str, Any]) -> bool:
    """Return whether the server announces notifications, or had no handshake in which to announce them."""
    match capabilities:
        case {"tools": {"listChanged": True}}:
            return True
    return not capabilities
