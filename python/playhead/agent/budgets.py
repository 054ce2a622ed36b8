"""The limits of one turn, and the meter that counts against them.

An exhausted budget never fails a turn. Calls that would exceed it get a result that says so. The loop calls
the model once more, without tools and with the reason, so that the turn ends with an answer.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from playhead.agent.conversation import TokenUsage, ToolCall
from playhead.errors import UsageError

Exhausted = Literal["depth", "calls", "seconds", "tokens", "repeats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The limits of one turn; None means unlimited. Raises `UsageError` for a limit that is negative or not
    an integer; only the seconds may have a fraction."""

    max_depth: int | None = 10
    """Limits the rounds of tool calls. After ten, the loop calls the model an eleventh time, without tools.
    Real tasks need fewer rounds, and ten stop a looping model within a minute."""
    max_calls: int | None = 1000
    """Limits the calls of all rounds together. Any task needs fewer, and so many by a runaway model cost only
    seconds."""
    max_seconds: float | None = 900.0
    """Limits the whole turn, including the time that people take to approve. When it is over, running calls
    are cancelled; a streaming reply continues (its client's timeout bounds it). A single call may take 600 s
    (`Limits.tool_total_seconds`), which leaves room to continue after it."""
    max_tokens: int | None = 1_000_000
    """Limits the input and output of all model calls together, if the provider reports them: to ten rounds
    over a context of 100,000. The count is known only after a reply, so the reply that exceeds it and the
    last answer are extra."""
    max_repeats: int | None = 10
    """Limits how often the same call (name and arguments) is made. Polling once per round is legitimate."""
    max_parallel: int = 32
    """Limits the concurrent calls of one reply; further calls wait. Servers rarely work on more at a time,
    and each call in flight holds a task and its arguments on both sides."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            minimum = 1 if name == "max_parallel" else 0
            if value is None and name != "max_parallel":
                continue
            kind = int | float if name == "max_seconds" else int
            if isinstance(value, bool) or not isinstance(value, kind) or not value >= minimum:
                expected = "a number" if name == "max_seconds" else "an integer"
                raise UsageError(f"Budgets.{name}: expected {expected} of at least {minimum}, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """An exhausted budget."""

    budget: Exhausted
    reason: str
    """A sentence that people and the model can read."""


class Meter:
    """Counts a turn's use of its budgets. `clock` returns seconds; the turn starts with the meter."""

    def __init__(self, budgets: Budgets, *, clock: Callable[[], float]) -> None:
        self._budgets = budgets
        self._clock = clock
        self._repeats: Counter[tuple[str, str]] = Counter()
        """The calls so far, by name and arguments."""
        self._tokens = 0
        self._calls = 0
        self.hit: Hit | None = None
        """The first exhausted budget, if any."""
        self.deadline = math.inf if budgets.max_seconds is None else clock() + budgets.max_seconds
        """The time on `clock` at which calls must end."""

    @property
    def max_parallel(self) -> int:
        return self._budgets.max_parallel

    def count_call(self, call: ToolCall) -> Hit | None:
        """Count a call that is about to run; return the budget it would exceed, if any."""
        budgets = self._budgets
        if self._over_time():
            return self.note_time()
        if budgets.max_calls is not None and self._calls >= budgets.max_calls:
            return self._note("calls", f"this turn has used its {budgets.max_calls} calls")
        key = (call.name, _canonical(call))
        if budgets.max_repeats is not None and self._repeats[key] >= budgets.max_repeats:
            return self._note(
                "repeats",
                f"{call.name} was called with the same arguments {budgets.max_repeats} times, the limit for"
                " one turn",
            )
        self._repeats[key] += 1
        self._calls += 1
        return None

    def count_tokens(self, usage: TokenUsage) -> None:
        """Count the tokens of a model call."""
        self._tokens += (usage.input_tokens or 0) + (usage.output_tokens or 0)

    def check(self, depth: int) -> Hit | None:
        """Return the budget that forbids another round after `depth` rounds, if any."""
        budgets = self._budgets
        if self.hit is not None:
            return self.hit
        if self._over_time():
            return self.note_time()
        if budgets.max_tokens is not None and self._tokens >= budgets.max_tokens:
            return self._note("tokens", f"this turn has used its {budgets.max_tokens} tokens")
        if budgets.max_depth is not None and depth >= budgets.max_depth:
            return self._note("depth", f"this turn has used its {budgets.max_depth} rounds of calls")
        return None

    def note_time(self) -> Hit:
        """Note that the time is over."""
        return self._note("seconds", f"this turn has used its {self._budgets.max_seconds:g} seconds")

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
    except (TypeError, ValueError, RecursionError):  # not JSON, from a custom model
        return call.arguments_text
