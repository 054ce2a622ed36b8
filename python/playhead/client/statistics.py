"""What a session has done, as one frozen snapshot."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatistics:
    """What a session has done so far."""

    requests: int
    reconnects: int
