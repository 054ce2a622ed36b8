"""What a check of a server can be told. Imports little: the command line shows its help at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from playhead.check.expectations import Expectations

Depth = Literal["quick", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """How far a check goes, and how long it waits."""

    depth: Depth = "quick"
    """`quick`: connection, handshake, discovery; no tool is called. `full`: all tools, resources, prompts."""
    seed: int = 0
    """Of the generated arguments; the report names it, so that a run can be repeated."""
    examples: int = 5
    """Random valid arguments a tool, beside the boundary cases."""
    timeout_seconds: float = 10.0
    """One request without a sign of life. A person waits for a tool no longer than that."""
    total_seconds: float = 1800.0
    """The whole check, whatever the server does; what is left then is reported as skipped. Servers in the
    field take seconds to minutes."""
    calls_at_once: int = 8
    """Of the concurrency check: as many as a stream has reads in flight."""
    allow_destructive: bool = False
    """Call tools with an explicit `destructiveHint: true` too."""
    expectations: Expectations | None = None
