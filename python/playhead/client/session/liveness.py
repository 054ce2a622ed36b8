"""Liveness check of a connection on which reads wait and nothing arrives. Pure: time is an argument.

    nothing for 10 s        ASK     ask the server for a sign of life
    no sign for 5 s more    REPEAT  send the waiting reads on a second connection too

A sign of life is a byte of an answer, or the reply to the question. Each REPEAT doubles the 10 s (10, 20,
40 s), so that a slow server is not flooded. The silent connection stays open, because a server that works
20 s on a page in its event loop answers no ping either.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import Final

QUIET_SECONDS: Final = 10.0
"""The silence before the server is asked. Short enough that a buffer of 30 s lasts through this wait,
`GRACE_SECONDS`, and one page over a second connection."""
GRACE_SECONDS: Final = 5.0
"""The wait for a sign of life after the question: several times the longest round trip over a satellite
link."""


class LivenessStep(Enum):
    ASK = auto()
    REPEAT = auto()


class Liveness:
    """The liveness steps of one connection."""

    def __init__(self) -> None:
        self._wait_seconds = QUIET_SECONDS
        self._stepped_at = -math.inf
        """The time of the last step, from which the next wait runs."""
        self._heard = -math.inf
        """The last sign of life that `step` has taken into account."""
        self._has_asked = False
        """True if the last step was ASK."""

    def due(self, *, oldest: float, heard: float) -> float:
        """Return the time of the next step if nothing arrives until then.

        Args:
            oldest: the time at which the oldest waiting read was sent; infinite if none waits.
            heard: the time of the last sign of life.
        """
        if heard > self._heard:
            return max(oldest, heard) + QUIET_SECONDS
        wait_seconds = GRACE_SECONDS if self._has_asked else self._wait_seconds
        return max(oldest, heard, self._stepped_at) + wait_seconds

    def step(self, now: float, *, oldest: float, heard: float) -> LivenessStep | None:
        """Return the step that is due at `now`, if any, and count it as taken."""
        due = self.due(oldest=oldest, heard=heard)
        if heard > self._heard:
            self._heard, self._has_asked, self._wait_seconds = heard, False, QUIET_SECONDS
        if now < due:
            return None
        self._stepped_at = now
        self._has_asked = not self._has_asked
        if self._has_asked:
            return LivenessStep.ASK
        self._wait_seconds *= 2
        return LivenessStep.REPEAT
