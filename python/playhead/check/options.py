"""The options of a check, and the size of its load."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from playhead.check.baseline import Baseline, IgnoredCheck
from playhead.check.catalogue import Level
from playhead.check.expectations import Expectations
from playhead.errors import UsageError

Depth = Literal["quick", "full"]
Mining = Literal["read-only", "all", "none"]

MOST_CLIENTS: Final = 1_000
MOST_REQUESTS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The size of a load: each of `clients` sends `requests`, one after the other."""

    clients: int
    requests: int
    seconds: float = 30.0
    """Limits the load. Figures hardly change after half a minute."""

    @classmethod
    def parse(cls, text: str) -> LoadPlan:
        """Parse `8x100`: 8 clients with 100 requests each. Raises `UsageError`."""
        match = re.fullmatch(r"(\d{1,9})x(\d{1,9})", text)
        clients, requests = (int(match[1]), int(match[2])) if match else (0, 0)
        if not (0 < clients <= MOST_CLIENTS and 0 < requests <= MOST_REQUESTS):
            raise UsageError(
                f"--load {text}: expected CLIENTSxREQUESTS such as 8x100, at most"
                f" {MOST_CLIENTS}x{MOST_REQUESTS}: 8 clients that send 100 requests each"
            )
        return cls(clients=clients, requests=requests)

    def __str__(self) -> str:
        return f"{self.clients}x{self.requests}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """The extent of a check, and its time limits."""

    depth: Depth = "quick"
    """`quick` connects and lists, but calls no tool. `full` tests all tools, resources and prompts."""
    seed: int = 0
    """The seed of the generated arguments. The report names it, so that a run can be repeated."""
    examples: int = 5
    """The number of random valid arguments per tool, in addition to the boundary cases."""
    timeout_seconds: float = 10.0
    """Limits the silence of one request. People wait no longer for a tool."""
    total_seconds: float = 1800.0
    """Limits the whole check; the rest is reported as skipped. Real servers take seconds to minutes."""
    calls_at_once: int = 8
    """The number of calls in the concurrency check. A stream has as many reads in flight."""
    allow_destructive: bool = False
    """True if tools with an explicit `destructiveHint: true` are called, too."""
    allow_unproven: bool = False
    """True if a full check may pass although tools were listed and none ever succeeded."""
    mine: Mining = "read-only"
    """The tools that are called with values that the server has named: those with `readOnlyHint: true`, `all`
    (on a server whose data may be lost), or none."""
    expectations: Expectations | None = None
    level: Level = "should"
    """The least level that fails the check. With `must`, violations of a SHOULD are only reported."""
    ignored: tuple[IgnoredCheck, ...] = ()
    """The checks whose failures are reported, but don't fail the check."""
    baseline: Baseline | None = None
    """The accepted findings, which don't fail the check. Changed definitions are findings (`drift.…`)."""
    load: LoadPlan | None = None
    """The load of repeated requests that a full check measures; None measures none."""
