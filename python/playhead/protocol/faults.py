"""Counts of a server's protocol faults that sessions tolerate, such as lines that are not messages.

Tests of servers read them in `Session.protocol_faults`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolFaults:
    """Counts since the session began, over all its connections."""

    not_messages: int = 0
    """Lines or frames that are not JSON-RPC messages, including broken answers."""
    repeated: int = 0
    """Further answers to requests that were answered before."""
    unasked: int = 0
    """Answers with an id that no request ever had."""
    retyped: int = 0
    """Answers whose id equals the request's in another type: "7" for 7."""
    late: int = 0
    """Answers to cancelled requests. Not a fault: the answer may have crossed the cancellation."""
    late_results: int = 0
    """Late answers that were results, not errors."""
    first: str | None = None
    """The beginning of the first line that is not a message, and the reason. The line is not escaped."""
    revisions_refused: int = 0
    """`initialize` requests that the server refused instead of offering another revision. Each was repeated
    for 2024-11-05."""
    bare_initialized: int = 0
    """Connections that worked only after the notification was sent as `initialized` instead of
    `notifications/initialized`."""
    nameless_errors: int = 0
    """Errors without an id, each matched to the only request that it can be about."""
    ended_by_discovery: int = 0
    """Connections that the server closed on `server/discover`. Each was opened again without that request."""

    def __add__(self, other: ProtocolFaults) -> ProtocolFaults:
        names = [each.name for each in fields(self) if each.name != "first"]
        counts = {name: getattr(self, name) + getattr(other, name) for name in names}
        return ProtocolFaults(first=self.first if self.first is not None else other.first, **counts)
