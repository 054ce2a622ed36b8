"""The arrival of the answers to one stream's reads."""

from __future__ import annotations


class Arrivals:
    """The time of the newest byte of any answer to one stream's reads. Times are trio's; 0.0 is never.

    A stream's patience stands still while an answer is arriving. HTTP knows the bytes of each answer; a pipe
    or a WebSocket only knows that some awaited answer is arriving, and counts for every read in flight on it.
    """

    newest = 0.0

    def note(self, at: float) -> None:
        """Record a byte that arrived at `at`."""
        self.newest = max(self.newest, at)

    def last_received(self) -> float:
        return self.newest
