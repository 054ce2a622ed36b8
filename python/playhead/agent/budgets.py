"""What one turn may use up, and the count of it.

A budget that is used up never fails a turn: calls that would pass it get a result that says so, and the model
is called once more, without tools and told why, so that the turn ends with an answer.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from playhead.agent.conversation import ToolCall
from playhead.agent.model import Usage
from playhead.errors import UsageError

Exhausted = Literal["depth", "calls", "seconds", "tokens", "repeats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The bounds of one turn; None is no bound. Raises `UsageError` for one that is negative or no whole
    number; only the seconds may have a fraction."""

    max_depth: int | None = 10
    """Rounds of tool calls. After ten the model is called an eleventh time, without tools. Ten are more than
    real tasks need, and stop a model that goes in circles within a minute."""
    max_calls: int | None = 1000
    """Calls of all rounds together: more than a reply can ask for on purpose, and few enough that one that
    runs wild costs seconds."""
    max_seconds: float | None = 900.0
    """From the turn's begin, with the time that people take to approve. When it is over, calls that still run
    are cancelled; a reply that comes is let come (its client's timeout bounds it). A single call may take
    600 s (`Limits.tool_total_seconds`), which leaves room to go on after it."""
    max_tokens: int | None = 1_000_000
    """Input and output of all model calls together, where the provider tells: ten rounds over a context of
    100,000. Known when a reply is over, so the reply that passes it and the last answer come on top."""
    max_repeats: int | None = 10
    """How often the same call (name and arguments) may be made: polling once in each round is no circle."""
    max_parallel: int = 32
    """Calls of one reply that run at once; the others wait for their turn. Servers work on fewer at a time,
    and each call in flight holds a task and its arguments on both sides."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            least = 1 if name == "max_parallel" else 0
            if value is None and name != "max_parallel":
                continue
            kind = int | float if name == "max_seconds" else int
            if isinstance(value, bool) or not isinstance(value, kind) or not value >= least:
                what = "number" if name == "max_seconds" else "whole number"
                raise UsageError(f"Budgets.{name}: expected a {what} of at least {least}, came {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A budget that was used up."""

    budget: Exhausted
    reason: str
    """For people and for the model."""


class Meter:
    """What a turn has used. `clock` gives seconds; the turn begins when this is made."""

    def __init__(self, budgets: Budgets, *, clock: Callable[[], float]) -> None:
        self._budgets = budgets
        self._clock = clock
        self._made: Counter[tuple[str, str]] = Counter()
        self._tokens = 0
        self._calls = 0
        self.hit: Hit | None = None
        """The first budget that was used up."""
        self.deadline = math.inf if budgets.max_seconds is None else clock() + budgets.max_seconds
        """When calls have to end, by the clock."""

    @property
    def max_parallel(self) -> int:
        return self._budgets.max_parallel

    def count_call(self, call: ToolCall) -> Hit | None:
        """Count a call that is about to run; what it would pass, if it may not run."""
        budgets = self._budgets
        if self._over_time():
            return self.note_time()
        if budgets.max_calls is not None and self._calls >= budgets.max_calls:
            return self._note("calls", f"the {budgets.max_calls} calls that a turn may make were made")
        key = (call.name, _canonical(call))
        if budgets.max_repeats is not None and self._made[key] >= budgets.max_repeats:
            return self._note(
                "repeats",
                f"{call.name} was called with the same arguments {budgets.max_repeats} times, and no call may"
                " be repeated more often in one turn",
            )
        self._made[key] += 1
        self._calls += 1
        return None

    def count_tokens(self, usage: Usage) -> None:
        """Count what a model call used."""
        self._tokens += (usage.input_tokens or 0) + (usage.output_tokens or 0)

    def check(self, depth: int) -> Hit | None:
        """What forbids another round after `depth` of them."""
        budgets = self._budgets
        if self.hit is not None:
            return self.hit
        if self._over_time():
            return self.note_time()
        if budgets.max_tokens is not None and self._tokens >= budgets.max_tokens:
            return self._note("tokens", f"the {budgets.max_tokens} tokens that a turn may use were used")
        if budgets.max_depth is not None and depth >= budgets.max_depth:
            return self._note(
                "depth", f"the {budgets.max_depth} rounds of calls that a turn may have were had"
            )
        return None

    def note_time(self) -> Hit:
        """The time is over."""
        return self._note("seconds", f"the {self._budgets.max_seconds:g} seconds of this turn are over")

    def _over_time(self) -> bool:
        return self._clock() >= self.deadline

    def _note(self, budget: Exhausted, reason: str) -> Hit:
        hit = Hit(budget=budget, reason=reason)
        self.hit = self.hit or hit
        return hit


def _canonical(call: ToolCall) -> str:
    if call.arguments is None:
        return call.arguments_text
    try:
        return json.dumps(call.arguments, sort_keys=True, separators=(",", ":"), default=repr)
    except (TypeError, ValueError, RecursionError):  # no JSON after all: as the model wrote it
        return call.arguments_text
