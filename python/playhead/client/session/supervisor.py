"""Replacement of a session's lost connections.

A lost HTTP session is renewed once for all requests that noticed the loss (single flight). A server process
that ended is started again at the next request, if its `restart` setting allows. No request is repeated here:
the planner retries the reads of streams, and other callers decide for themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from playhead.client.session.backchannel import Backchannel
from playhead.client.session.connection import Connection, connect_error
from playhead.client.session.elicitation import Elicitor, handlers
from playhead.client.session.list_changed import ToolListChanges
from playhead.client.session.resource_updates import ResourceUpdates
from playhead.client.transports.carrier import CarrierFactory
from playhead.errors import (
    AuthorizationNeededError,
    ClosedError,
    ConnectError,
    ConnectionLostError,
    PlayheadError,
    ServerEndedError,
    WebSocketClosedError,
)
from playhead.limits import Limits
from playhead.protocol.exchange import Witness
from playhead.protocol.faults import ProtocolFaults


@dataclass(slots=True, eq=False)
class _Renewal:
    """One attempt at a new connection, and its outcome."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    over: trio.Event = field(default_factory=trio.Event)
    connection: Connection | None = None
    error: ConnectError | None = None


class Supervisor:
    """Owns the current connection of a session, inside the session's nursery."""

    def __init__(
        self,
        factory: CarrierFactory,
        *,
        nursery: trio.Nursery,
        limits: Limits,
        mode: str,
        restart: str,
        changes: ToolListChanges,
        elicitor: Elicitor | None = None,
        backchannel: Backchannel | None = None,
        new_witness: Callable[[], Witness] | None = None,
    ) -> None:
        self._factory = factory
        self.nursery = nursery
        """The session's nursery: its tasks live as long as the session."""
        self._limits = limits
        self._mode = mode
        self._restart = restart
        self._changes = changes
        self.updates = ResourceUpdates(self.connection, limits=limits, start_soon=nursery.start_soon)
        """The subscriptions of the session's streams."""
        self._elicitor = elicitor
        self._backchannel = backchannel
        self._new_witness = new_witness
        self._current: Connection | None = None
        self._opened: list[Connection] = []
        """The current connection, and retired ones that still have requests in flight."""
        self._past_faults = ProtocolFaults()
        """Faults of the server on connections that have ended."""
        self._renewal: _Renewal | None = None
        self._renewed = trio.Event()
        self._closed = False
        self.reconnects = 0

    def faults(self) -> ProtocolFaults:
        """Protocol faults of the server so far, on all connections."""
        return sum((each.faults() for each in self._opened), start=self._past_faults)

    async def connect(self) -> Connection:
        """Make the first connection. Raises `ConnectError`.

        Some old servers exit on the unknown method `server/discover`, or close the WebSocket. The supervisor
        then connects once more, with the old handshake. If a person has to grant access, they are asked here
        and nowhere else, outside the handshake's time limit.
        """
        try:
            self._current = await self._open()
        except ConnectError as error:
            if self._factory.authorize is not None and isinstance(error.__cause__, AuthorizationNeededError):
                await self._authorize(self._factory.authorize)
                self._current = await self._open()
                return self._current
            lost = ConnectionLostError if self._factory.is_process else WebSocketClosedError
            if self._mode != "auto" or not isinstance(error.__cause__, lost):
                raise
            self._mode = "legacy"
            self._current = await self._open()
            self._past_faults += ProtocolFaults(ended_by_discovery=1)
        return self._current

    async def _authorize(self, authorize: Callable[[], Awaitable[None]]) -> None:
        try:
            await authorize()
        except PlayheadError as error:
            raise connect_error(error, self._factory.server) from error

    async def _open(self) -> Connection:
        asking, renewed = self._backchannel or self._elicitor, self.reconnects > 0
        opening = Connection(
            self._factory.new(),
            server=self._factory.server,
            limits=self._limits,
            handlers=asking.handlers() if isinstance(asking, Backchannel) else handlers(asking),
            capabilities=asking.capabilities if isinstance(asking, Backchannel) else None,
            on_notification=self._on_notification,
            last_asked=(lambda: 0.0) if asking is None else (lambda: asking.last_asked),
            replace=self.renew,
            witness=None if self._new_witness is None else self._new_witness(),
        )

        async def run(*, task_status: trio.TaskStatus[Connection]) -> None:
            self._opened.append(opening)
            try:
                follow = partial(self._changes.follow, renewed=renewed)
                await opening.hold(mode=self._mode, follow=follow, task_status=task_status)
            finally:
                self._opened.remove(opening)
                self._past_faults += opening.faults()

        connection: Connection = await self.nursery.start(run)
        return connection

    def _on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        self._changes.on_notification(method, params)
        self.updates.on_notification(method, params)
        if self._backchannel is not None:
            self._backchannel.on_notification(method, params)

    async def connection(self) -> Connection:
        """Return the live connection. A dead one is replaced first, if `restart` allows.

        Raises `ClosedError` after `close`, `ServerEndedError` if no (further) restart is allowed, and
        `ConnectError` if the attempt fails.
        """
        if self._closed:
            raise self._was_closed()
        current = self._current
        if current is not None and not current.ended:
            return current
        return await self.renew(current)

    async def wait_lost(self) -> str:
        """Wait until the current connection has ended by itself, and return the reason if known."""
        while True:
            current = self._current
            if current is None:
                await self._renewed.wait()
                continue
            reason = await current.wait_ended()
            if self._closed:
                await trio.sleep_forever()  # `close` has ended it, so it is not lost
            if self._current is current:
                return reason

    async def wait_connected(self) -> None:
        """Wait until there is a live connection."""
        await trio.lowlevel.checkpoint()
        while self._current is None or self._current.ended:
            await self._renewed.wait()

    async def renew(self, broken: Connection | None) -> Connection:
        """Replace `broken`, unless another caller already has. All waiters get the same new connection.

        The attempt runs in a task of the session. If it ran in the first caller's, a page whose deadline
        passes while a server starts would stop the start and use up the only restart. Raises as `connection`.
        """
        if self._closed:
            raise self._was_closed()
        current = self._current
        if current is not None and current is not broken and not current.ended:
            return current
        if self._renewal is None:
            if self._factory.is_process and (
                self._restart == "never" or (self._restart == "once" and self.reconnects > 0)
            ):
                raise ServerEndedError(
                    f"{self._factory.server} has ended and is not restarted (restart = {self._restart!r})"
                )
            self.reconnects += 1
            self._renewal = _Renewal()
            self.nursery.start_soon(self._renew, self._renewal, current)
        renewal = self._renewal
        await renewal.over.wait()
        if renewal.error is not None:
            wait = renewal.error.retry_after_seconds
            raise ConnectError(str(renewal.error), retry_after_seconds=wait) from renewal.error
        if renewal.connection is None:
            raise self._was_closed()
        return renewal.connection

    async def _renew(self, renewal: _Renewal, broken: Connection | None) -> None:
        if broken is not None and self._factory.is_process:
            broken.leave()
        try:
            with renewal.scope:
                self._current = renewal.connection = await self._open()
                self._renewed.set()
                self._renewed = trio.Event()
                if broken is not None:
                    broken.retire()  # its requests in flight may still be answered
        except PlayheadError as error:
            renewal.error = connect_error(error, self._factory.server)
        finally:
            self._renewal = None
            renewal.over.set()

    def start_soon(self, function: Callable[..., Awaitable[object]], *args: object) -> None:
        """Start a task of the session. Raises `ClosedError` after `close`."""
        if self._closed:
            raise self._was_closed()
        self.nursery.start_soon(function, *args)

    def _was_closed(self) -> ClosedError:
        return ClosedError(f"the session with {self._factory.server} was closed")

    def close(self) -> None:
        """Close all connections. Later requests raise `ClosedError`. Idempotent."""
        self._closed = True
        self._current = None  # it refers to `renew`
        if self._renewal is not None:
            self._renewal.scope.cancel()
        for connection in self._opened:
            connection.leave()
