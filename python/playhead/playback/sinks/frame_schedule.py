"""The times at which the frames of a session are due and heard."""

from __future__ import annotations

import math

LATE_SHARE = 0.5
"""The share of a frame's duration by which a delivery may be late without shifting the schedule. The jitter
of timers must not slow the audio down, and two frames less than half a duration apart would be a burst."""


class FrameSchedule:
    """The times at which the frames of one session are due and heard. Pure: times are arguments, in seconds.

    After a start, all but one of the `lead_frames` are due at once. The next frame is due at the session's
    next slot, and each further frame a duration later, so that never more than `lead_frames` are ahead of the
    playhead. Slots are one duration apart. `slot` (0 to 1) is the share of a duration by which a session's
    slots differ from those of the others.
    """

    def __init__(self, frame_seconds: float, *, lead_frames: int = 2) -> None:
        self.slot = 0.0
        self._at_once = lead_frames - 1
        self.late_frames = 0
        self._frame_seconds = frame_seconds
        self._zero: float | None = None
        self._start = -math.inf
        self._to_slot_seconds = 0.0
        self._count = 0

    @property
    def due(self) -> float:
        """The time to deliver the next frame."""
        if self._count < self._at_once:
            return self._start
        return self._start + self._to_slot_seconds + (self._count - self._at_once) * self._frame_seconds

    @property
    def heard(self) -> float:
        """The time at which the last delivered frame will have been heard."""
        return self._start + self._count * self._frame_seconds

    @property
    def lead_seconds(self) -> float:
        """Audio ahead of the playhead when a frame is due."""
        return self._at_once * self._frame_seconds

    def restart(self, now: float, *, alone: bool = True) -> None:
        """Begin again, after every delivered frame was heard or dropped. A session that plays `alone` needs
        no slot, so the rest of its lead is due at once, too."""
        self._start, self._count = now, 0
        self._to_slot_seconds = (
            0.0 if alone else (self.slot * self._frame_seconds - now) % self._frame_seconds
        )
        if self._zero is None:
            self._zero = now

    def deliver(self, now: float) -> float:
        """Count the next frame as delivered at `now`, and return its timestamp.

        If it is late, the schedule shifts by whole durations: the session keeps its slots.
        """
        late_seconds = now - self.due
        if late_seconds > LATE_SHARE * self._frame_seconds:
            self._start += math.ceil(late_seconds / self._frame_seconds) * self._frame_seconds
            self.late_frames += 1
        assert self._zero is not None
        timestamp_seconds = self.heard - self._zero
        self._count += 1
        return timestamp_seconds
