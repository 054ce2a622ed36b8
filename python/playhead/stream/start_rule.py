"""The rule for starting to play a stream before all of it has arrived."""

from __future__ import annotations

from dataclasses import dataclass

from playhead._core import Pipe, Planner
from playhead.stream.in_flight import InFlight
from playhead.stream.negotiation import FormNegotiation
from playhead.stream.ring_writer import RingWriter

SEQUENTIAL_START_SECONDS = 0.5
"""Audio to have before playing starts in the phase `SEQUENTIAL`, where the next page's arrival is unknown."""
UNFORESEEN_START_SECONDS = 2.0
"""Audio to have while reads may be queued behind another process's reads. Earlier pages were served by the
cache, at a rate that says nothing about the server; a busy one took 0.8 s for a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRule:
    """Decides whether playing may start, or resume, without a foreseeable stall. It changes nothing but the
    byte rate of `in_flight`."""

    pipe: Pipe
    writer: RingWriter
    planner: Planner
    in_flight: InFlight
    forms: FormNegotiation

    def can_play(
        self,
        in_hand_bytes: int,
        bytes_per_second: float,
        now: float,
        *,
        total_bytes: int | None,
        is_sequential: bool,
    ) -> bool:
        """See `RangeStream.can_play`. `total_bytes` is the resource's size, if known. From any thread.

        Of a live source the bytes up to the present end count. The arrival of more is unknown, and waiting
        for it would delay the audio.
        """
        self.in_flight.bytes_per_second = bytes_per_second
        if self.pipe.closed:  # every byte has arrived
            return True
        if self.forms.is_queue:
            return in_hand_bytes > 0  # waiting gains nothing: the arrival of the next chunk is unknown
        if is_sequential:
            return in_hand_bytes >= SEQUENTIAL_START_SECONDS * bytes_per_second
        if (present_bytes := self.planner.present_bytes) is not None:
            total_bytes = present_bytes
        left_bytes = None if total_bytes is None else max(0, total_bytes - self.pipe.tail + in_hand_bytes)
        first_at = self.writer.first_byte_at
        wanted = self.in_flight.wait_bytes(now if first_at is None else first_at)
        if self.forms.form.waits_for_others():
            unforeseen = UNFORESEEN_START_SECONDS * bytes_per_second
            wanted = max(wanted, min(unforeseen, self.pipe.ahead_bytes / 2))
        if left_bytes is not None:
            wanted = min(wanted, left_bytes)
        if in_hand_bytes < wanted:
            return False
        return self.planner.can_play(now, in_hand_bytes, bytes_per_second, left_bytes)
