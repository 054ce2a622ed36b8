"""One server of a hub: a session held open by its own task, its state, and its tools.

The task lives in the hub's nursery. It connects, watches the connection and the list of tools, and
disconnects on request. A failure of the server becomes its state and does not affect other servers.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from playhead.client.session.session import Session
from playhead.client.session.tool_calls import has_default_hints
from playhead.config.servers import ServerConfig
from playhead.errors import ConnectError, ConnectionLostError, PlayheadError, SessionLostError

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer
    from mcp_types import Tool


class ServerStatus(enum.StrEnum):
    """The status of a server in a hub."""

    DISCONNECTED = "disconnected"
    """Not connected yet, or disconnected on purpose."""
    CONNECTING = "connecting"
    CONNECTED = "connected"
    FAILED = "failed"
    """The connection attempt failed; `connect_to_server` tries again."""
    LOST = "lost"
    """It has ended or cannot be reached. Its tools stay known: the next call reconnects if the servers file's
    `restart` allows it, and `connect_to_server` reconnects in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """The state of one server of a hub."""

    name: str
    """The name in the servers file."""
    status: ServerStatus
    reason: str
    """The reason for the status; empty if it is connected."""
    tools: int | None
    """The number of its tools that `allowed_tools` allows; None before they are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStateChanged:
    """A server's status or reason has changed."""

    state: ServerState


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsChanged:
    """A server's tools were listed, or removed because it was disconnected. `Hub.tools` has the current
    ones."""

    server: str
    tools: int
    """The number of its tools now."""


HubEvent = ServerStateChanged | ToolsChanged


HubTarget: TypeAlias = "ServerConfig | Server[Any] | MCPServer"

RELIST_SECONDS: Final = 1.0
"""The shortest time between two listings after change notifications, so that a server that sends them without
end costs one listing per second."""


@dataclass(slots=True, eq=False)
class _Visit:
    """One session with the server, from the attempt to connect to its end."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    settled: trio.Event = field(default_factory=trio.Event)
    """Set when the attempt has succeeded or failed."""
    leave: trio.Event = field(default_factory=trio.Event)
    over: trio.Event = field(default_factory=trio.Event)


class HubServer:
    """A server with its task. `changed` is called with a new state, `listed` after a new list of tools."""

    def __init__(
        self,
        name: str,
        target: HubTarget,
        *,
        nursery: trio.Nursery,
        connect: Callable[[HubTarget], AbstractAsyncContextManager[Session]],
        changed: Callable[[ServerState], None],
        listed: Callable[[HubServer], None],
    ) -> None:
        self.name = name
        # Messages use the server's name in the hub.
        self.config = replace(target, name=name) if isinstance(target, ServerConfig) else None
        self._target = self.config or target
        self._nursery = nursery
        self._connect = connect
        self._changed = changed
        self._listed = listed
        self._status = ServerStatus.DISCONNECTED
        self._reason = "not connected yet"
        self._visit: _Visit | None = None
        self._closed = False
        self._dead = False
        """True if the connection has ended and has not been renewed."""
        self._listing = trio.Lock()
        self.session: Session | None = None
        self.tools: tuple[Tool, ...] | None = None
        """The allowed tools, each name once. None before the first listing."""
        self.has_default_hints = False
        """True if the annotations of its tools prove nothing; see the function `has_default_hints`."""

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

    # --- connecting and leaving ------------------------------------------------------------------------

    async def connect(self) -> ServerState:
        """Connect unless connected; see `Hub.connect_to_server`."""
        while self._visit is not None and (
            self._visit.leave.is_set() or self._status in (ServerStatus.LOST, ServerStatus.FAILED)
        ):
            await self.disconnect()
        if self._closed:
            return self.state
        if self._visit is None:
            self._visit = _Visit()
            self._set(ServerStatus.CONNECTING, "connecting")
            self._nursery.start_soon(self._stay, self._visit)
        await self._visit.settled.wait()
        return self.state

    def leave(self) -> None:
        """Begin to disconnect: gracefully from a session, at once from an attempt to connect."""
        visit = self._visit
        if visit is not None:
            visit.leave.set()
            if not visit.settled.is_set():
                visit.scope.cancel()

    def close(self) -> None:
        """Begin to disconnect and accept no further connect. Idempotent."""
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
                async with self._connect(self._target) as session:
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

    # --- while connected -------------------------------------------------------------------------------

    async def _watch(self, session: Session) -> None:
        """Notice the end of the connection when it happens, not at the next call."""
        while True:
            why = await session.wait_lost()
            self._dead = True
            self._set(ServerStatus.LOST, f"the connection ended: {why}" if why else "the connection ended")
            await session.wait_connected()
            self._dead = False
            self.note_reached()
            await self._list_again()

    async def _follow(self, session: Session) -> None:
        async for _change in session.tool_list_changes():
            await self._list_again()
            await trio.sleep(RELIST_SECONDS)  # changes in the meantime wait in the channel

    async def _list_again(self) -> None:
        # Also during the first listing, because its earlier pages may be out of date.
        if self.tools is not None or self._listing.locked():
            try:
                await self.list_tools()
            except PlayheadError as error:
                # The old list stays: a call reports the failure, and a later listing may succeed.
                self.note_failure(error)

    async def list_tools(self) -> tuple[Tool, ...]:
        """List the tools. Raises as `Session.list_tools` and `live_session`."""
        async with self._listing:
            session = self.live_session()
            try:
                tools = await session.list_tools()
            except PlayheadError as error:
                self.note_failure(error)
                raise
            if self.session is session:
                self.note_reached()
                self.has_default_hints = has_default_hints(tools)
                allowed = self.config.allowed_tools if self.config is not None else None
                offered = {
                    tool.name: tool for tool in reversed(tools) if allowed is None or tool.name in allowed
                }
                self.tools = tuple(reversed(offered.values()))
                self._listed(self)
            return self.tools or ()

    def live_session(self) -> Session:
        """Return the session. Without one, raises `ConnectError` with the reason of the state."""
        if self.session is None:
            raise ConnectError(
                f"the server {self.name!r} is not connected ({self._status}): {self._reason}; connect with"
                " connect_to_server"
            )
        return self.session

    def note_failure(self, error: PlayheadError) -> None:
        """Update the state after a request failed with `error`. Over HTTP only this shows that a server is
        gone."""
        if self._status is ServerStatus.CONNECTED:
            if isinstance(error, SessionLostError):
                return  # already renewed
            if isinstance(error, ConnectError | ConnectionLostError):
                self._set(ServerStatus.LOST, str(error))
        elif self._status is ServerStatus.LOST and isinstance(error, ConnectError):
            self._set(ServerStatus.LOST, str(error))

    def note_reached(self) -> None:
        """Update the state after a request was answered, unless the server's process has ended since."""
        if self._status is ServerStatus.LOST and not self._dead:
            self._set(ServerStatus.CONNECTED)
