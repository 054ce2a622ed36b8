"""The CPU time of a decoder's thread, compared with the audio that it gives."""

from __future__ import annotations

import time

from playhead.errors import DecodeError

DECODE_SECONDS = 1.5
"""The CPU time that a decoder may take before its first audio, and again for each second of audio: a hundred
times what music needs. A call into C is not interrupted, and may add half a second."""


class DecodingTime:
    """The CPU time that a decoder has spent beyond what its audio allows.

    The time is checked when the decoder reads bytes, because nothing can interrupt a call into C, and only at
    every eighth read, because asking for the time costs as much as the read.
    """

    def __init__(self) -> None:
        self._spent_seconds = 0.0
        self._checks = 0
        self._since = time.thread_time()

    def resume(self) -> None:
        """Count from now on, in this thread."""
        self._since = time.thread_time()

    def check(self) -> None:
        """Raise `DecodeError` if the decoder took too long for its audio."""
        self._checks += 1
        if self._checks % 8:
            return
        now = time.thread_time()
        self._spent_seconds += now - self._since
        self._since = now
        if self._spent_seconds > DECODE_SECONDS:
            raise DecodeError(
                f"expected at most {DECODE_SECONDS:g} s of CPU time per second of audio, got a file that"
                " takes longer: it is damaged or hostile"
            )

    def add_audio(self, seconds: float) -> None:
        self._spent_seconds = max(0.0, self._spent_seconds - DECODE_SECONDS * seconds)
