"""The wait of a stream's reader for its next byte."""

from __future__ import annotations

import math
from collections.abc import Callable

from playhead._core import Planner
from playhead.errors import PlayheadError
from playhead.stream.options import StreamEvent, StreamOptions, StreamResumed, StreamWaiting
from playhead.stream.source import Demand

STATUS_SECONDS = 3.0
"""A wait this long is reported to the listener. The planner has the same constant."""


class ReaderWait:
    """Tells the planner whether the reader waits, and reports long waits to the listener."""

    def __init__(self, planner: Planner, options: StreamOptions) -> None:
        self._planner = planner
        self._patience_seconds = options.patience_seconds
        self.watchers: list[Callable[[StreamEvent], None]] = []
        """Called with each event."""
        if options.on_event is not None:
            self.watchers.append(options.on_event)
        self.reader_waits = False
        self.is_endless = False
        """True for a form that decides itself when it gives up: a wait is reported, and costs nothing."""
        self._since = math.inf
        """When an endless stream's reader began to wait."""
        self._demand = Demand.WAITING
        self._reported_since: float | None = None
        """The start of the wait that `StreamWaiting` reported; None before that, and once it is over."""

    @property
    def costs_patience(self) -> bool:
        """True while the reader waits and the player has nothing left to play."""
        return self.reader_waits and self._demand is Demand.WAITING

    def update(self, now: float, *, reader_waits: bool | None = None, demand: Demand | None = None) -> None:
        """Record what has changed, and tell the planner."""
        if reader_waits is not None:
            self.reader_waits = reader_waits
        if demand is not None:
            self._demand = demand
        self._since = min(self._since, now) if self.costs_patience else math.inf
        if self._demand is Demand.PAUSED:
            self._planner.set_demand(now, "paused")
        else:
            self._planner.set_demand(
                now, "waiting" if self.costs_patience and not self.is_endless else "supplied"
            )

    def report(self, now: float, *, offset: int, last_error: PlayheadError | None) -> None:
        """Report to the watchers that the wait for the byte at `offset` has become long, or that it is
        over. Otherwise do nothing."""
        waited = max(0.0, now - self._since) if self.is_endless else self._planner.waited_seconds(now)
        is_long = waited >= STATUS_SECONDS
        was_reported = self._reported_since is not None
        if is_long == was_reported:
            return
        event: StreamEvent
        if self._reported_since is None:
            self._reported_since = now - waited
            allowed = math.inf if self.is_endless else self._planner.allowed_seconds()
            event = StreamWaiting(
                seconds=waited,
                offset=offset,
                last_error=last_error,
                patience_seconds=allowed,
                ended_by="timeout" if math.inf > allowed > self._patience_seconds else "patience",
            )
        else:
            event = StreamResumed(seconds=now - self._reported_since)
            self._reported_since = None
        self.notify(event)

    def notify(self, event: StreamEvent) -> None:
        """Report `event` to the watchers."""
        for on_event in self.watchers:
            on_event(event)
