"""What a server sends beside the protocol: lines that are no messages, answers that nobody awaits.

A session works in spite of it. Who tests servers wants to know, and reads `Session.wire_faults`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_REMEMBERED: Final = 4096
"""Requests whose end is remembered. An answer to an older one counts as late: nothing can be proven of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFaults:
    """Counted since the session began, over all its connections."""

    not_messages: int = 0
    """Lines or frames that are no JSON-RPC message, broken answers among them."""
    repeated: int = 0
    """Answers to requests that had been answered."""
    unasked: int = 0
    """Answers with an id that no request ever had."""
    retyped: int = 0
    """Answers whose id is the request's, but of another type: "7" for 7."""
    late: int = 0
    """Answers to requests that were given up. Not a fault: they may have crossed the cancellation."""
    late_results: int = 0
    """Those of them that were no errors."""
    first: str | None = None
    """How the first line that is no message began, and why it is none. The server's text, not escaped."""

    def __add__(self, other: WireFaults) -> WireFaults:
        return WireFaults(
            not_messages=self.not_messages + other.not_messages,
            repeated=self.repeated + other.repeated,
            unasked=self.unasked + other.unasked,
            retyped=self.retyped + other.retyped,
            late=self.late + other.late,
            late_results=self.late_results + other.late_results,
            first=self.first if self.first is not None else other.first,
        )


class PastRequests:
    """What became of the requests that are over, so that an answer nobody awaits can be told apart.

    Keys are ids as texts: a server may echo 7 as "7".
    """

    def __init__(self) -> None:
        self._answered: dict[str, bool] = {}
        self._highest = -1
        self.repeated = 0
        self.unasked = 0
        self.retyped = 0
        self.late = 0
        self.late_results = 0

    def sent(self, key: str) -> None:
        """A request went out."""
        if key.isdecimal():
            self._highest = max(self._highest, int(key))

    def over(self, key: str, *, answered: bool) -> None:
        """It was answered, or given up."""
        self._answered[key] = answered
        if len(self._answered) > _REMEMBERED:
            del self._answered[next(iter(self._answered))]

    def unclaimed(self, key: str | None, *, is_result: bool) -> None:
        """An answer came that nobody awaits; `key` is None for one whose id can't be told."""
        if key is None:
            return
        if self._answered.get(key):
            self.repeated += 1
        elif key in self._answered or (key.isdecimal() and int(key) <= self._highest):
            self.late += 1
            self.late_results += is_result
        else:
            self.unasked += 1

    def faults(self) -> WireFaults:
        return WireFaults(
            repeated=self.repeated,
            unasked=self.unasked,
            retyped=self.retyped,
            late=self.late,
            late_results=self.late_results,
        )


class WireLog:
    """The faults of one session: of the connections that ended, and of the one that is."""

    def __init__(self) -> None:
        self._before = WireFaults()
        self._now: list[Callable[[], WireFaults]] = []

    def opened(self, faults: Callable[[], WireFaults]) -> None:
        self._now.append(faults)

    def ended(self, faults: Callable[[], WireFaults]) -> None:
        """The connection that was `opened` with `faults` is over: only the numbers are kept."""
        self._now.remove(faults)
        self._before += faults()

    def faults(self) -> WireFaults:
        return sum((now() for now in self._now), start=self._before)
