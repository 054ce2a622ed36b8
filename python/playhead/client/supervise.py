"""A connection that can be replaced: whose turn it is to reconnect, and when not to.

A lost HTTP session is renewed once for everybody who noticed (single flight); their pages are then retried by
the planner. A server process that ended is started again when the next request comes, as its `restart`
setting allows. Nothing here repeats a request: that is its caller's decision.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from playhead.client.changes import ToolChanges
from playhead.client.connection import Connection, Opener, connect_error, hold
from playhead.client.elicitation import Asker
from playhead.client.wire import WireLog
from playhead.errors import (
    AuthorizationNeededError,
    ClosedError,
    ConnectError,
    ConnectionLostError,
    PlayheadError,
    WebSocketClosedError,
)
from playhead.limits import Limits


@dataclass(slots=True, eq=False)
class _Renewal:
    """One attempt at a new connection, and who waits for it."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    over: trio.Event = field(default_factory=trio.Event)
    connection: Connection | None = None
    error: PlayheadError | None = None


class Supervisor:
    """Owns the current connection of a session, inside the session's nursery."""

    def __init__(
        self,
        opener: Opener,
        *,
        nursery: trio.Nursery,
        limits: Limits,
        mode: str,
        restart: str,
        changes: ToolChanges,
        asker: Asker | None = None,
    ) -> None:
        self._opener = opener
        self._nursery = nursery
        self._limits = limits
        self._mode = mode
        self._restart = restart
        self._changes = changes
        self._asker = asker
        self._current: Connection | None = None
        self._renewal: _Renewal | None = None
        self._renewed = trio.Event()
        self._closed = False
        self.reconnects = 0
        self.wire = WireLog()

    async def connect(self) -> Connection:
        """Make the first connection. Raises `ConnectError`.

        A server that ends while being asked `server/discover` is connected to once more, in the old way:
        some old servers exit on a method they don't know, or close the WebSocket. Where a person has to
        allow the access, that is waited for here, outside the handshake's time, and only here.
        """
        try:
            self._current = await self._open()
        except ConnectError as error:
            if self._opener.authorize is not None and isinstance(error.__cause__, AuthorizationNeededError):
                await self._authorize(self._opener.authorize)
                self._current = await self._open()
                return self._current
            lost = ConnectionLostError if self._opener.is_process else WebSocketClosedError
            if self._mode != "auto" or not isinstance(error.__cause__, lost):
                raise
            self._mode = "legacy"
            self._current = await self._open()
        return self._current

    async def _authorize(self, authorize: Callable[[], Awaitable[None]]) -> None:
        try:
            await authorize()
        except PlayheadError as error:
            raise connect_error(error, self._opener.server) from error

    async def _open(self) -> Connection:
        async def run(*, task_status: trio.TaskStatus[Connection]) -> None:
            await hold(
                self._opener,
                limits=self._limits,
                mode=self._mode,
                changes=self._changes,
                asker=self._asker,
                wire=self.wire,
                renewed=self.reconnects > 0,
                task_status=task_status,
            )

        connection: Connection = await self._nursery.start(run)
        return connection

    async def connection(self) -> Connection:
        """The live connection; a dead one is replaced first, where `restart` allows.

        Raises `ClosedError` after `close`, `ConnectionLostError` where no restart is allowed (any more),
        `ConnectError` when the attempt fails.
        """
        if self._closed:
            raise self._was_closed()
        current = self._current
        if current is not None and not current.ended:
            return current
        return await self.renew(current)

    async def wait_lost(self) -> str:
        """Wait until the current connection has ended by itself, and give what is known of why."""
        while True:
            current = self._current
            if current is None:
                await self._renewed.wait()
                continue
            reason = await current.wait_ended()
            if self._closed:
                await trio.sleep_forever()  # left, not lost
            if self._current is current:
                return reason

    async def wait_live(self) -> None:
        """Wait until there is a connection that has not ended."""
        await trio.lowlevel.checkpoint()
        while self._current is None or self._current.ended:
            await self._renewed.wait()

    async def renew(self, broken: Connection | None) -> Connection:
        """Replace `broken`, unless somebody else already has: everybody who waits gets the same new one.

        The attempt is the session's, not its first caller's: a page whose deadline passes while a server
        starts must neither stop the start nor spend the one restart that there is. Raises as `connection`.
        """
        if self._closed:
            raise self._was_closed()
        current = self._current
        if current is not None and current is not broken and not current.ended:
            return current
        if self._renewal is None:
            if self._opener.is_process and (
                self._restart == "never" or (self._restart == "once" and self.reconnects > 0)
            ):
                raise ConnectionLostError(
                    f"{self._opener.server} has ended and is not started again (restart = {self._restart!r})"
                )
            self.reconnects += 1
            self._renewal = _Renewal()
            self._nursery.start_soon(self._renew, self._renewal, current)
        renewal = self._renewal
        await renewal.over.wait()
        if renewal.error is not None:
            raise ConnectError(str(renewal.error)) from renewal.error
        if renewal.connection is None:
            raise self._was_closed()
        return renewal.connection

    async def _renew(self, renewal: _Renewal, broken: Connection | None) -> None:
        if broken is not None and self._opener.is_process:
            broken.leave()
        try:
            with renewal.scope:
                self._current = renewal.connection = await self._open()
                self._renewed.set()
                self._renewed = trio.Event()
                if broken is not None:
                    # Only now: others still hear on it that the session is gone.
                    broken.leave()
        except PlayheadError as error:
            renewal.error = error
        finally:
            self._renewal = None
            renewal.over.set()

    def _was_closed(self) -> ClosedError:
        return ClosedError(f"the session with {self._opener.server} was closed")

    def close(self) -> None:
        """Leave the connection; requests from now on raise `ClosedError`. Idempotent."""
        self._closed = True
        if self._renewal is not None:
            self._renewal.scope.cancel()
        if self._current is not None:
            self._current.leave()
