"""Notice that the server's list of tools has changed, in every protocol revision.

Revisions with a handshake send the notification unasked: on a stdio server's output, or on the event stream
that the SDK opens over HTTP if the server gave a session. Since 2026-07-28 it is sent to clients that called
`subscriptions/listen`, whose answer is a stream of notifications; it is called once per connection, as soon
as somebody subscribes. Either way the response tap sees the notification.

An item means "list the tools again", not what changed, so any number of changes not yet received are one
item. Nothing is replayed: after a subscription or a connection was lost and renewed an item is sent as well,
because nobody knows what was missed.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final

import trio
from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from playhead.concurrency import Broadcast
from playhead.limits import Limits

TOOLS_CHANGED: Final = "notifications/tools/list_changed"
RETRY_SECONDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Waits before another subscription. After the last the server is left alone until there is a new
connection."""
STEADY_SECONDS: Final = 60.0
"""A subscription that lasted this long was a good one: the waits start over after it."""


class ToolListChanges:
    """The subscribers of one session, whatever happens to its connections."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._wanted = trio.Event()
        self._changes = Broadcast[None](capacity=1)

    def subscribe(self) -> trio.MemoryReceiveChannel[None]:
        """A channel that holds one item. It ends after `close`."""
        self._wanted.set()
        return self._changes.subscribe()

    def on_notification(self, method: str) -> None:
        """Take note of a notification's method. Never waits."""
        if method == TOOLS_CHANGED:
            self._changes.send(None)

    def close(self) -> None:
        """End the channels. Idempotent."""
        self._changes.close()

    async def follow(self, session: ClientSession, *, renewed: bool) -> None:
        """Keep the server notifying for as long as its connection lives; cancelled when that ends.

        `renewed` says that this is not the first connection.
        """
        await self._wanted.wait()
        modern = session.protocol_version in MODERN_PROTOCOL_VERSIONS
        if renewed and not modern:
            self._changes.send(None)
        if not modern or not _announces_changes(session):
            return
        again, tries = renewed, 0
        while True:
            began = trio.current_time()
            try:
                await self._listen(session, again=again)
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND:
                    return
            except (SubscriptionLost, trio.TooSlowError):
                pass
            if trio.current_time() - began > STEADY_SECONDS:
                tries = 0
            if tries == len(RETRY_SECONDS):
                return
            await trio.sleep(RETRY_SECONDS[tries])
            again, tries = True, tries + 1

    async def _listen(self, session: ClientSession, *, again: bool) -> None:
        """Hold one subscription until it ends."""
        async with AsyncExitStack() as stack:
            with trio.fail_after(self._limits.tool_seconds):
                subscription = await stack.enter_async_context(listen(session, tools_list_changed=True))
            if again:
                self._changes.send(None)
            async for _event in subscription:
                pass  # the response tap has seen it


def _announces_changes(session: ClientSession) -> bool:
    """True if the server promises notifications, or said nothing because there was no handshake."""
    capabilities = session.server_capabilities
    if capabilities is None or not capabilities.model_fields_set:
        return True
    return capabilities.tools is not None and capabilities.tools.list_changed is True
