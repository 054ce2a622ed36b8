"""Count protocol faults: lines that are not messages, answers that nobody awaits, what was worked around.

Sessions tolerate them. Tests of servers read the counts in `Session.protocol_faults`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


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
