"""The notifications of a server that a resource has changed, for streams of resources that grow.

A stream follows its resource while it grows (`RangeForm.follow_growth`). In revisions with a handshake that
is a `resources/subscribe`, whose notifications name the URI, and a `resources/unsubscribe` at the end. Since
2026-07-28 (SEP-2575) it is a `subscriptions/listen` of its own, whose notifications name the id of that
request. A lost subscription is made again; meanwhile the stream polls.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import trio

from playhead.client.session.connection import COURTESY_SECONDS, Connection
from playhead.client.session.list_changed import ACKNOWLEDGED, CANCELLED, hold_again
from playhead.errors import PlayheadError
from playhead.limits import Limits
from playhead.protocol.revisions import REVISIONS, SUBSCRIPTION_META
from playhead.stream.negotiation import GrowthListener

RESOURCE_UPDATED: Final = "notifications/resources/updated"


class ResourceUpdates:
    """The subscriptions of one session's streams, which outlive its connections."""

    def __init__(
        self,
        connection: Callable[[], Awaitable[Connection]],
        *,
        limits: Limits,
        start_soon: Callable[..., None],
    ) -> None:
        """
        Args:
            connection: returns the live connection.
            start_soon: starts a task of the session, which unsubscribes for a stream that is cancelled.
        """
        self._connection = connection
        self._limits = limits
        self._start_soon = start_soon
        self._by_uri: dict[str, list[GrowthListener]] = {}
        self._by_id: dict[str, tuple[GrowthListener, trio.CancelScope]] = {}
        """The listeners by the id of their `subscriptions/listen`, with the scope in which it waits."""
        self._count = 0

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Handle a notification of the server's. Never blocks."""
        meta, uri = params.get("_meta"), params.get("uri")
        id = meta.get(SUBSCRIPTION_META) if isinstance(meta, Mapping) else None
        if method == RESOURCE_UPDATED and id is None and isinstance(uri, str):
            for watched, listeners in self._by_uri.items():
                if uri.startswith(watched):  # it may name a part of the resource
                    for each in listeners:
                        each.on_notified()
        if method == CANCELLED:
            id = params.get("requestId")
        if not isinstance(id, str) or id not in self._by_id:
            return
        listener, scope = self._by_id[id]
        if method == CANCELLED:
            scope.cancel()
        elif method == ACKNOWLEDGED:
            accepted = params.get("notifications")
            scope.deadline = math.inf
            if isinstance(accepted, Mapping) and accepted.get("resourceSubscriptions"):
                listener.set_notifies(True)
        elif method == RESOURCE_UPDATED:
            listener.on_notified()

    async def follow(self, uri: str, listener: GrowthListener) -> None:
        """Subscribe to `uri` for `listener`, and again whenever that ends. Returns if the server does not
        notify.

        Cancelled: unsubscribes in the background.
        """

        async def hold() -> bool:
            try:
                connection = await self._connection()
                if not _can_subscribe(connection):
                    return False
                if REVISIONS[connection.protocol_version].has_listen:
                    await self._listen(connection, uri, listener)
                else:
                    await self._subscribe(connection, uri, listener)
            finally:
                listener.set_notifies(False)
            return True

        await hold_again(hold)  # if it was lost, the reads report the reason

    async def _listen(self, connection: Connection, uri: str, listener: GrowthListener) -> None:
        """Hold one subscription until the server ends it, or fails to acknowledge it in time."""
        self._count += 1
        id = f"growth-{self._count}"
        with trio.move_on_after(self._limits.page_seconds) as scope:
            self._by_id[id] = listener, scope
            try:
                await connection.listen(id, {"notifications": {"resourceSubscriptions": [uri]}})
            finally:
                del self._by_id[id]

    async def _subscribe(self, connection: Connection, uri: str, listener: GrowthListener) -> None:
        """Hold one subscription until the connection ends."""
        listeners = self._by_uri.setdefault(uri, [])
        listeners.append(listener)
        try:
            await self._send(connection, "resources/subscribe", uri)
            listener.set_notifies(True)
            await connection.wait_ended()
        finally:
            listeners.remove(listener)
            if not listeners:
                self._by_uri.pop(uri, None)
                if not connection.ended:
                    self._start_soon(self._unsubscribe, connection, uri)

    async def _unsubscribe(self, connection: Connection, uri: str) -> None:
        with trio.move_on_after(COURTESY_SECONDS), suppress(PlayheadError):
            if uri not in self._by_uri:  # no other stream has subscribed meanwhile
                await self._send(connection, "resources/unsubscribe", uri)

    async def _send(self, connection: Connection, method: str, uri: str) -> None:
        seconds = self._limits.page_seconds
        await connection.request(method, {"uri": uri}, silent_seconds=seconds, total_seconds=seconds)


def _can_subscribe(connection: Connection) -> bool:
    """Return whether the server announces notifications of resources, or had no handshake in which to."""
    match connection.capabilities:
        case {"resources": {"subscribe": True}}:
            return True
    return not connection.capabilities and REVISIONS[connection.protocol_version].has_listen
