"""Word that the server's list of tools has changed, in both protocol eras.

Revisions with a handshake send the notification by themselves: on a stdio server's output, or on the stream
of events that the SDK opens over HTTP where the server gave a session. Since 2026-07-28 it comes to those who
sent `subscriptions/listen`, whose answer is the stream of notifications; that is asked for once for each
connection, from when somebody wants to know. Either way the notification is seen at the link.

An item says "list the tools again", not what changed, so any number of changes that nobody took yet are one.
There is no replay: after a subscription or a connection was lost and is there again, an item comes as well,
because what was missed can't be told.
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

from playhead.limits import Limits

TOOLS_CHANGED: Final = "notifications/tools/list_changed"
RETRY_SECONDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Waits before another subscription; after the last the server is left in peace, until there is a new
connection."""
STEADY_SECONDS: Final = 60.0
"""A subscription that lasted as long was a good one: after it the waits begin anew."""


class ToolChanges:
    """Who wants to know, and what tells them. One for each session, whatever happens to its connections."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._wanted = trio.Event()
        self._closed = False
        self._listeners: set[trio.MemorySendChannel[None]] = set()

    def subscribe(self) -> trio.MemoryReceiveChannel[None]:
        """A channel of one place: what comes while an item waits in it is that item. After `close` it
        is at its end."""
        send, receive = trio.open_memory_channel[None](1)
        if self._closed:
            send.close()
            return receive
        self._listeners.add(send)
        self._wanted.set()
        return receive

    def heard(self, method: str) -> None:
        """A notification came in. Never waits."""
        if method == TOOLS_CHANGED:
            self._tell()

    def _tell(self) -> None:
        for listener in list(self._listeners):
            try:
                listener.send_nowait(None)
            except trio.WouldBlock:
                pass  # told already
            except trio.BrokenResourceError:  # nobody reads any more
                listener.close()
                self._listeners.discard(listener)

    def close(self) -> None:
        """End the channels: readers take what is waiting, then come to the end. Idempotent."""
        self._closed = True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    async def follow(self, session: ClientSession, *, renewed: bool) -> None:
        """See to it that the server tells, for as long as its connection lives; cancelled when that ends.

        `renewed` says that another connection came before this one.
        """
        await self._wanted.wait()
        modern = session.protocol_version in MODERN_PROTOCOL_VERSIONS
        if renewed and not modern:
            self._tell()
        if not modern or not _promises(session):
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
        """One subscription, until it ends."""
        async with AsyncExitStack() as stack:
            with trio.fail_after(self._limits.tool_seconds):
                subscription = await stack.enter_async_context(listen(session, tools_list_changed=True))
            if again:
                self._tell()
            async for _event in subscription:
                pass  # the link saw it already


def _promises(session: ClientSession) -> bool:
    """Whether the server says that it tells. One that was connected to without a handshake said nothing."""
    capabilities = session.server_capabilities
    if capabilities is None or not capabilities.model_fields_set:
        return True
    return capabilities.tools is not None and capabilities.tools.list_changed is True
