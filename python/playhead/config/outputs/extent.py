"""Which bytes of an output are there, where they come in any order."""

from __future__ import annotations

import bisect


class Extent:
    """Which bytes are there: sorted half-open ranges that neither touch nor overlap."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        first = bisect.bisect_left(self._ends, start)
        last = bisect.bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def missing(self, end: int) -> tuple[tuple[int, int], ...]:
        """The gaps in [0, `end`)."""
        edges = zip([0, *self._ends], [*self._starts, end], strict=True)
        return tuple((a, min(b, end)) for a, b in edges if a < min(b, end))

    @property
    def end(self) -> int:
        """One past the highest byte."""
        return self._ends[-1] if self._ends else 0

    @property
    def total(self) -> int:
        return sum(self._ends) - sum(self._starts)
