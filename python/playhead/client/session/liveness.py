"""Doubts about a connection on which reads wait and nothing arrives. Pure: time is an argument.

    nothing for 10 s        ASK     ask the server for a sign of life
    no sign for 5 s more    REPEAT  send the oldest read on a second connection too

A sign is a byte of an answer, or what the server answers to the question. Each time without one doubles the
10 s, so that a slow server is not flooded: 10, 20, 40 s. The connection in doubt stays, because a server that
works 20 s on a page in its event loop answers no ping either.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import Final

QUIET_SECONDS: Final = 10.0
"""A listener's buffer of 30 s and more outlasts this, the answer, and a page over the second connection."""
GRACE_SECONDS: Final = 5.0
"""Limits the wait for a sign of life: several times the longest round trip over a satellite link."""


class Doubt(Enum):
    ASK = auto()
    REPEAT = auto()


class Liveness:
    """The doubts about one connection."""

    def __init__(self) -> None:
        self._wait_seconds = QUIET_SECONDS
        self._since = -math.inf
        """The last step, from which the next wait runs."""
        self._heard = -math.inf
        self._has_asked = False

    def due(self, *, oldest: float, heard: float) -> float:
        """The time of the next step if nothing arrives until then.

        Args:
            oldest: when the oldest read that waits was sent; infinite if none waits.
            heard: the last sign of life.
        """
        if heard > self._heard:
            return max(oldest, heard) + QUIET_SECONDS
        return max(oldest, heard, self._since) + (GRACE_SECONDS if self._has_asked else self._wait_seconds)

    def step(self, now: float, *, oldest: float, heard: float) -> Doubt | None:
        """Take the step that is due at `now`, if any."""
        due = self.due(oldest=oldest, heard=heard)
        if heard > self._heard:
            self._heard, self._has_asked, self._wait_seconds = heard, False, QUIET_SECONDS
        if now < due:
            return None
        self._since = now
        self._has_asked = not self._has_asked
        if self._has_asked:
            return Doubt.ASK
        self._wait_seconds *= 2
        return Doubt.REPEAT
