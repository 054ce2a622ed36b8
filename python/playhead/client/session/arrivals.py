"""The arrival of a stream's bytes: the sign of life that its patience depends on."""

from __future__ import annotations


class Arrivals:
    """The time of the newest byte of any answer to one stream's reads, on trio's clock. 0.0 means never.

    While an answer is arriving, the stream does not lose patience. HTTP assigns bytes to their answer. A pipe
    or a WebSocket only knows that some answer is arriving, which counts for every read in flight on it.
    """

    newest = 0.0

    def note(self, at: float) -> None:
        """Record a byte that arrived at `at`."""
        self.newest = max(self.newest, at)

    def last_received(self) -> float:
        return self.newest
