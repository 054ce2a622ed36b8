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

MOST_CLIENTS: Final = 1_000
MOST_REQUESTS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The size of a load: each of `clients` sends `requests`, one after the other."""

    clients: int
    requests: int
    seconds: float = 30.0
    """The load ends after this time in any case: figures of half a minute don't change much."""

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
    """`quick`: connection, handshake, discovery; no tool is called. `full`: all tools, resources, prompts."""
    seed: int = 0
    """Seed of the generated arguments; the report names it, so that a run can be repeated."""
    examples: int = 5
    """Random valid arguments per tool, in addition to the boundary cases."""
    timeout_seconds: float = 10.0
    """The longest silence of one request. People wait no longer for a tool."""
    total_seconds: float = 1800.0
    """Limit of the whole check; the rest is reported as skipped. Real servers take seconds to minutes."""
    calls_at_once: int = 8
    """Calls of the concurrency check: as many as a stream has reads in flight."""
    allow_destructive: bool = False
    """Also call tools with an explicit `destructiveHint: true`."""
    expectations: Expectations | None = None
    level: Level = "should"
    """`must`: violations of a SHOULD are reported, but don't fail the check."""
    ignored: tuple[IgnoredCheck, ...] = ()
    """Checks whose failures are reported, but don't fail the check."""
    baseline: Baseline | None = None
    """Findings in the baseline don't fail the check; changed definitions are findings (`drift.…`)."""
    load: LoadPlan | None = None
    """The load of repeated requests to measure in a full check; None measures none."""
