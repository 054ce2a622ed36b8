"""One server of a hub: a session held open by a task of its own, and the tools it lists.

The task lives in the hub's nursery. It connects, watches the connection and the list of tools, and waits to
be told to leave; whatever goes wrong with the server becomes its state and ends nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import trio
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import Tool

from playhead.client.connect import connect
from playhead.client.elicitation import OnElicitation
from playhead.client.hub_state import ServerState, ServerStatus
from playhead.client.oauth import ShowUrl
from playhead.client.session import Session
from playhead.config.servers import ServerConfig
from playhead.errors import ConnectError, ConnectionLostError, PlayheadError, SessionLostError
from playhead.limits import Limits
from playhead.results.policy import Policy

HubTarget = ServerConfig | Server[Any] | MCPServer

RELIST_SECONDS: Final = 1.0
"""Between two listings that the server's word of a change asked for. One that says so without end costs a
listing a second, and not all that there is."""


@dataclass(slots=True, eq=False)
class _Visit:
    """One stay at the server, from connecting to having left."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    settled: trio.Event = field(default_factory=trio.Event)
    """Connected, or given up."""
    leave: trio.Event = field(default_factory=trio.Event)
    over: trio.Event = field(default_factory=trio.Event)


class HubServer:
    """`changed` is told of a new state, `listed` of a new list of tools; neither waits."""

    def __init__(
        self,
        name: str,
        target: HubTarget,
        *,
        nursery: trio.Nursery,
        limits: Limits,
        policy: Policy,
        show_url: ShowUrl | None,
        on_elicitation: OnElicitation | None,
        changed: Callable[[ServerState], None],
        listed: Callable[[HubServer], None],
    ) -> None:
        self.name = name
        # Its name in messages is the one that it has here.
        self.config = replace(target, name=name) if isinstance(target, ServerConfig) else None
        self._target = self.config or target
        self._nursery = nursery
        self._limits = limits
        self._policy = policy
        self._show_url = show_url
        self._on_elicitation = on_elicitation
        self._changed = changed
        self._listed = listed
        self._status = ServerStatus.DISCONNECTED
        self._reason = "not connected yet"
        self._visit: _Visit | None = None
        self._closed = False
        self._dead = False
        """Whether the connection has ended, and there is no other yet."""
        self._listing = trio.Lock()
        self.session: Session | None = None
        self.tools: tuple[Tool, ...] | None = None
        """What it offers: allowed, and each name once. None before the first listing."""

    @property
    def state(self) -> ServerState:
        return ServerState(
            name=self.name,
            status=self._status,
            reason=self._reason,
            tools=None if self.tools is None else len(self.tools),
        )

    def _set(self, status: ServerStatus, reason: str = "") -> None:
        if (status, reason) != (self._status, self._reason):
            self._status, self._reason = status, reason
            self._changed(self.state)

    # --- coming and going ------------------------------------------------------------------------------

    async def connect(self) -> ServerState:
        """Connect, unless it is connected; see `Hub.connect_to_server`."""
        while self._visit is not None and (
            self._visit.leave.is_set() or self._status in (ServerStatus.LOST, ServerStatus.FAILED)
        ):
            await self.disconnect()
        if self._closed:
            return self.state  # nobody would tell a new visit to leave
        if self._visit is None:
            self._visit = _Visit()
            self._set(ServerStatus.CONNECTING, "connecting")
            self._nursery.start_soon(self._stay, self._visit)
        await self._visit.settled.wait()
        return self.state

    def leave(self) -> None:
        """Begin to disconnect: politely from a session, at once where none is there yet."""
        visit = self._visit
        if visit is not None:
            visit.leave.set()
            if not visit.settled.is_set():
                visit.scope.cancel()

    def close(self) -> None:
        """Begin to disconnect, for good: nobody connects any more. Idempotent."""
        self._closed = True
        self.leave()

    async def disconnect(self) -> None:
        """Disconnect and wait until the server's process is gone."""
        visit = self._visit
        if visit is not None:
            self.leave()
            await visit.over.wait()

    async def _stay(self, visit: _Visit) -> None:
        status, reason = ServerStatus.DISCONNECTED, "disconnected"
        try:
            with visit.scope:
                async with self._connected() as session:
                    self.session = session
                    self._set(ServerStatus.CONNECTED)
                    visit.settled.set()
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._watch, session)
                        nursery.start_soon(self._follow, session)
                        await visit.leave.wait()
                        nursery.cancel_scope.cancel()
                    self.session = None
        except PlayheadError as error:
            status, reason = ServerStatus.FAILED, str(error)
        finally:
            self.session, self._visit, self._dead = None, None, False
            had_tools, self.tools = self.tools is not None, None
            self._set(status, reason)
            if had_tools:
                self._listed(self)
            visit.settled.set()
            visit.over.set()

    def _connected(self) -> AbstractAsyncContextManager[Session]:
        return connect(
            self._target,
            limits=self._limits,
            policy=self._policy,
            show_url=self._show_url,
            on_elicitation=self._on_elicitation,
        )

    # --- while it is there -----------------------------------------------------------------------------

    async def _watch(self, session: Session) -> None:
        """A server's process that ends is noticed when it does, not by the next call."""
        while True:
            why = await session.wait_lost()
            self._dead = True
            self._set(ServerStatus.LOST, f"the connection ended: {why}" if why else "the connection ended")
            await session.wait_live()
            self._dead = False
            self.note_reached()
            await self._list_again()

    async def _follow(self, session: Session) -> None:
        async for _change in session.tool_list_changes():
            await self._list_again()
            await trio.sleep(RELIST_SECONDS)  # what changes meanwhile waits in the channel

    async def _list_again(self) -> None:
        # Also while the first listing is under way: its earlier pages may be old already.
        if self.tools is not None or self._listing.locked():
            try:
                await self.list_tools()
            except PlayheadError as error:
                # The old list stays: a call says what is wrong, and the server may list them better later.
                self.note_failure(error)

    async def list_tools(self) -> tuple[Tool, ...]:
        """List the tools, all pages. Raises what `Session.list_tools` does, and as `live_session`."""
        async with self._listing:
            session = self.live_session()
            try:
                found = await session.list_tools()
            except PlayheadError as error:
                self.note_failure(error)
                raise
            if self.session is session:
                self.note_reached()
                allowed = self.config.allowed_tools if self.config is not None else None
                offered = {
                    tool.name: tool for tool in reversed(found) if allowed is None or tool.name in allowed
                }
                self.tools = tuple(reversed(offered.values()))
                self._listed(self)
            return self.tools or ()

    def live_session(self) -> Session:
        """The session. Raises `ConnectError` with the state's reason where there is none."""
        if self.session is None:
            raise ConnectError(
                f"the server {self.name!r} is not connected ({self._status}): {self._reason}; connect to it"
                " with connect_to_server"
            )
        return self.session

    def note_failure(self, error: PlayheadError) -> None:
        """A request failed with `error`. Over HTTP nothing else tells that a server is gone."""
        if self._status is ServerStatus.CONNECTED:
            if isinstance(error, SessionLostError):
                return  # renewed before anybody heard of it
            if isinstance(error, ConnectError | ConnectionLostError):
                self._set(ServerStatus.LOST, str(error))
        elif self._status is ServerStatus.LOST and isinstance(error, ConnectError):
            self._set(ServerStatus.LOST, str(error))

    def note_reached(self) -> None:
        """A request was answered. One that a process answered before it ended tells nothing any more."""
        if self._status is ServerStatus.LOST and not self._dead:
            self._set(ServerStatus.CONNECTED)
