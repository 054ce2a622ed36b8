"""Count protocol faults: lines that are not messages, answers that nobody awaits, what was worked around.

Sessions tolerate them. Tests of servers read the counts in `Session.protocol_faults`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_RUNS: Final = 8
"""Runs of ids to remember: there are two on a connection, from 0 and from `FIRST_DIRECT_ID`."""
_REMEMBERED: Final = 4096
"""Ended requests to remember. An answer to an older one counts as late, since nothing can be proven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolFaults:
    """Counts since the session began, over all its connections."""

    not_messages: int = 0
    """Lines or frames that are not JSON-RPC messages, including broken answers."""
    repeated: int = 0
    """Answers to requests that had been answered."""
    unasked: int = 0
    """Answers with an id that no request ever had."""
    retyped: int = 0
    """Answers whose id is the request's, but of another type: "7" for 7."""
    late: int = 0
    """Answers to requests that were given up. Not a fault: they may have crossed the cancellation."""
    late_results: int = 0
    """Late answers that were results, not errors."""
    first: str | None = None
    """The beginning of the first line that is not a message, and why. The server's text, not escaped."""
    revisions_refused: int = 0
    """`initialize` requests refused, not answered with another revision, and sent again for 2024-11-05."""
    bare_initialized: int = 0
    """Connections that worked only after a notification `initialized`, without its prefix."""
    nameless_errors: int = 0
    """Errors without an id, each assigned to the request that it could only be about."""
    ended_by_discovery: int = 0
    """Connections that the unknown method `server/discover` ended, and that were opened again without it."""

    def __add__(self, other: ProtocolFaults) -> ProtocolFaults:
        return ProtocolFaults(
            not_messages=self.not_messages + other.not_messages,
            repeated=self.repeated + other.repeated,
            unasked=self.unasked + other.unasked,
            retyped=self.retyped + other.retyped,
            late=self.late + other.late,
            late_results=self.late_results + other.late_results,
            first=self.first if self.first is not None else other.first,
            revisions_refused=self.revisions_refused + other.revisions_refused,
            bare_initialized=self.bare_initialized + other.bare_initialized,
            nameless_errors=self.nameless_errors + other.nameless_errors,
            ended_by_discovery=self.ended_by_discovery + other.ended_by_discovery,
        )


class PastRequests:
    """The outcomes of ended requests, to classify answers that nobody awaits.

    Keys are ids as strings: a server may echo 7 as "7".
    """

    def __init__(self) -> None:
        self._answered: dict[str, bool] = {}
        self._asked: list[range] = []
        """The ids that were sent, in runs: the SDK's and those of direct requests."""
        self.repeated = 0
        self.unasked = 0
        self.retyped = 0
        self.late = 0
        self.late_results = 0

    def sent(self, key: str) -> None:
        """A request was sent."""
        if not key.isdecimal():
            return
        number = int(key)
        for index, run in enumerate(self._asked):
            if run.start <= number <= run.stop:
                self._asked[index] = range(run.start, max(run.stop, number + 1))
                return
        self._asked = [*self._asked[-(_RUNS - 1) :], range(number, number + 1)]

    def over(self, key: str, *, answered: bool) -> None:
        """A request was answered or given up."""
        self._answered[key] = answered
        if len(self._answered) > _REMEMBERED:
            del self._answered[next(iter(self._answered))]

    def unclaimed(self, key: str | None, *, is_result: bool) -> None:
        """An unclaimed answer arrived; `key` is None if its id is unknown."""
        if key is None:
            return
        if self._answered.get(key):
            self.repeated += 1
        elif key in self._answered or (key.isdecimal() and any(int(key) in run for run in self._asked)):
            self.late += 1
            self.late_results += is_result
        else:
            self.unasked += 1

    def faults(self) -> ProtocolFaults:
        return ProtocolFaults(
            repeated=self.repeated,
            unasked=self.unasked,
            retyped=self.retyped,
            late=self.late,
            late_results=self.late_results,
        )


class FaultLog:
    """The faults of one session: of its earlier connections and the current one."""

    def __init__(self) -> None:
        self._before = ProtocolFaults()
        self._now: list[Callable[[], ProtocolFaults]] = []

    def opened(self, faults: Callable[[], ProtocolFaults]) -> None:
        self._now.append(faults)

    def note(self, faults: ProtocolFaults) -> None:
        """Add what no open connection counts."""
        self._before += faults

    def ended(self, faults: Callable[[], ProtocolFaults]) -> None:
        """The connection that was `opened` with `faults` has ended; only its counts remain."""
        self._now.remove(faults)
        self._before += faults()

    def faults(self) -> ProtocolFaults:
        return sum((now() for now in self._now), start=self._before)
