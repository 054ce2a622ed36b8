"""Repetition of the reads that wait on a silent connection.

`Liveness` decides when to act. `ReadRepeats` asks the server for a sign of life, or sends copies of the
waiting reads. Other requests are not repeated, because they may have effects.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import trio

from playhead.client.session.liveness import GRACE_SECONDS, QUIET_SECONDS, Liveness, LivenessStep
from playhead.client.session.waiting_request import WaitingRequest
from playhead.client.transports.carrier import Carrier
from playhead.errors import PlayheadError, RemoteError
from playhead.protocol.exchange import Answered

SendCopy = Callable[[WaitingRequest], Awaitable[dict[str, Any]]]
"""Sends a copy of a request over one connection, and returns its raw result."""


class ReadRepeats:
    """Repeats the waiting reads of one connection. The first of two answers counts."""

    def __init__(self, carrier: Carrier, waiting: Mapping[int | str, WaitingRequest]) -> None:
        """`waiting` has the connection's waiting requests by their ids, in the order of their start."""
        self._carrier = carrier
        self._waiting = waiting
        self._liveness = Liveness()
        self.is_possible = carrier.repeat_via != "none"
        """False if no read of this connection can be repeated, and once the connection is retired."""
        self.first_step_seconds = QUIET_SECONDS if self.is_possible else math.inf
        """The time from a request to the first step."""
        self.heard = 0.0
        """The time of the server's last sign of life, for any request."""

    def next_step_at(self) -> float:
        """Return the time of the next step if nothing arrives until then."""
        if not self.is_possible:
            return math.inf
        return self._liveness.due(oldest=self._oldest(), heard=self.heard)

    def next_step(self, now: float) -> LivenessStep | None:
        """Return the step that is due, if any, and count it as taken. Pass it to `take_step`."""
        return self._liveness.step(now, oldest=self._oldest(), heard=self.heard)

    def _originals(self) -> list[WaitingRequest]:
        """Return the waiting reads, the oldest first, without copies."""
        return [
            each
            for each in self._waiting.values()
            if each.outgoing.method == "resources/read" and each.original is None
        ]

    def _oldest(self) -> float:
        """Return the time at which the oldest read was sent; infinite if no read waits."""
        return next((each.started for each in self._originals()), math.inf)

    async def take_step(
        self,
        step: LivenessStep | None,
        send_copy: SendCopy,
        replace: Callable[[], Awaitable[SendCopy]] | None,
    ) -> None:
        """Ask the server for a sign of life, or repeat the waiting reads.

        `send_copy` sends over this connection. `replace` opens the session's next one, and returns its
        `send_copy`. Neither is stored: a closed connection would be in a reference cycle.
        """
        if self._carrier.repeat_via == "request":
            # The carrier has no ping, so the copies of the reads ask for the sign of life.
            if step is LivenessStep.ASK:
                await self._repeat(send_copy, is_other_connection=False)
        elif step is LivenessStep.ASK:
            with trio.move_on_after(GRACE_SECONDS):
                if await self._carrier.ping():
                    self.heard = trio.current_time()
        elif replace is not None:
            with suppress(PlayheadError):  # this connection stays, and the next step tries again
                await self._repeat(await replace(), is_other_connection=True)

    async def _repeat(self, send_copy: SendCopy, *, is_other_connection: bool) -> None:
        """Send a copy of each waiting read, one after another.

        Over this same connection (HTTP: a POST per read) only silent reads are repeated, and no more once an
        original answers before its copy: the connection is alive.
        """
        for original in self._originals():
            if original.outgoing.id not in self._waiting:
                continue  # it was answered meanwhile
            silent_seconds = trio.current_time() - max(original.started, original.touched)
            if not is_other_connection and silent_seconds < GRACE_SECONDS:
                continue
            with trio.CancelScope() as scope:  # cancelled when the original is answered
                original.copies.append(scope)
                try:
                    result = await send_copy(original)
                except RemoteError as error:
                    original.fail(error)
                except PlayheadError:
                    return  # the original goes on waiting
                else:
                    original.set_answer(Answered(original.outgoing.id, result, None))
                    original.scope.cancel()
            if scope.cancelled_caught and not is_other_connection:
                return
