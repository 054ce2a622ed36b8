"""A request whose caller waits for its answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from playhead.client.session.arrivals import Arrivals
from playhead.errors import PlayheadError
from playhead.protocol.exchange import Answered, Outgoing

ProgressReport = tuple[float, float | None, str | None]
"""Progress, total and message of a report."""


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """One request, from its sending to its answer, its failure or its deadline. Times are trio's."""

    outgoing: Outgoing
    silent_seconds: float
    """The longest silence after the newest sign of life."""
    total_seconds: float
    """The longest time from start to answer."""
    started: float
    report: Callable[[ProgressReport], None] | None
    on_link: Callable[[object], None] | None
    """Called with each link that a report of the progress names."""
    arrivals: Arrivals | None
    original: WaitingRequest | None
    """The request of which this one is a copy. A sign of life of a copy counts for the original too."""
    copies: list[trio.CancelScope] = field(default_factory=list)
    """The scopes of the copies of this request, which are cancelled when it ends."""
    touched: float = 0.0
    """The time of the last byte of its answer or report of its progress."""
    is_sent: bool = False
    """True once `Carrier.request` has returned."""
    answered: trio.Event = field(default_factory=trio.Event)
    answer: Answered | None = None
    failure: PlayheadError | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """The scope in which the caller waits."""
    exceeded_seconds: float | None = None
    """The limit that the request exceeded: `silent_seconds`, `total_seconds`, or None so far."""

    def touch(self, now: float) -> None:
        """Record a sign of life, unless the request is answered."""
        if self.answer is not None:
            return
        self.touched = now
        if self.original is not None:
            self.original.touched = now
        if self.arrivals is not None:
            self.arrivals.note(now)

    def set_answer(self, answer: Answered) -> None:
        self.answer = answer
        self.answered.set()

    def fail(self, error: PlayheadError) -> None:
        """Raise `error` in the caller, unless the request was answered or has failed."""
        if self.failure is None and not self.answered.is_set():
            self.failure = error
            self.scope.cancel()

    def due_at(self, last_asked: float) -> float:
        """Return the time at which the request is overdue if no sign of life arrives until then. The time
        before `last_asked` does not count as silence."""
        if self.exceeded_seconds is not None:
            return math.inf  # it is cancelled already, and may take a while to end
        heard = max(self.started, self.touched, last_asked)
        return min(heard + self.silent_seconds, self.started + self.total_seconds)

    def expire(self, now: float) -> None:
        """Cancel the request, which is overdue."""
        in_total = self.started + self.total_seconds <= now
        self.exceeded_seconds = self.total_seconds if in_total else self.silent_seconds
        self.scope.cancel()
