"""When bytes of the answers to one stream's reads arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Arrivals:
    """The time of the newest byte of any answer to one stream's reads. Times are trio's; 0.0 is never.

    A stream's patience stands still while an answer is arriving. HTTP knows the bytes of each answer; a pipe
    or a WebSocket only knows that some awaited answer is arriving, and counts for every read in flight on it.
    """

    def __init__(self) -> None:
        self._newest = 0.0
        self._in_flight: set[Callable[[], float]] = set()

    @contextmanager
    def watching(self, last_received: Callable[[], float]) -> Iterator[None]:
        """Include the times of `last_received` while the body, one read, runs."""
        self._in_flight.add(last_received)
        try:
            yield
        finally:
            self._in_flight.discard(last_received)
            self.note(last_received())

    def note(self, at: float) -> None:
        """A byte arrived at `at`."""
        self._newest = max(self._newest, at)

    def last_received(self) -> float:
        return max((self._newest, *(each() for each in self._in_flight)))
