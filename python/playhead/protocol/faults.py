"""Count protocol faults: lines that are not messages, answers that nobody awaits, what was worked around.

Sessions tolerate them. Tests of servers read the counts in `Session.protocol_faults`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


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
        names = [each.name for each in fields(self) if each.name != "first"]
        counts = {name: getattr(self, name) + getattr(other, name) for name in names}
        return ProtocolFaults(first=self.first if self.first is not None else other.first, **counts)
