"""The byte rate of a decoder, which turns bytes in hand into audio in hand.

A decoder of a constant rate knows it from the first frame. Other rates are measured while decoding. The
highest ten-second mean counts, because a link has to carry the densest part of the music.
"""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 10.0
"""The audio over which a mean rate is measured: shorter than a verse, longer than a drum break."""

_MARK_SECONDS = 0.5
"""The distance between two places where the window may begin. 20 of these places are remembered."""

_TRUSTED_SECONDS = 2.0
"""The least audio whose measured mean counts in addition to the header's rate. A decoder reads 2 KiB at a
time, which distorts the mean over less audio."""


class ByteRate:
    """The byte rate of one decoder.

    `announced` is the rate in the stream's header, if any. The decoder first reads `lookahead_bytes`, and
    only then keeps pace with the audio, so measuring starts after these bytes.
    """

    def __init__(self, announced: float | None = None, *, lookahead_bytes: int = 0) -> None:
        self._announced = announced or 0.0
        self._lookahead_bytes = lookahead_bytes
        self._marks: deque[tuple[float, int]] = deque()
        """The places in the newest window, as (seconds, bytes), the oldest first."""
        self._mean = 0.0
        self._highest = 0.0

    @property
    def bytes_per_second(self) -> float:
        """The highest ten-second mean; before ten seconds have been decoded, the mean so far. Never less than
        the header's rate."""
        return max(self._announced, self._highest or self._mean)

    def add(self, read_bytes: int, audio_seconds: float) -> None:
        """Record how many bytes the decoder has read, and how much audio it made of them. Both only grow."""
        if not self._marks:
            self._mean = 0.0 if self._announced else read_bytes / audio_seconds
            if read_bytes >= self._lookahead_bytes:
                self._marks.append((audio_seconds, read_bytes))
            return
        start_seconds, start_bytes = self._marks[0]
        seconds = audio_seconds - start_seconds
        if seconds >= (_TRUSTED_SECONDS if self._announced else 0.0) and read_bytes > start_bytes:
            self._mean = (read_bytes - start_bytes) / seconds
        if audio_seconds - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((audio_seconds, read_bytes))
        if seconds >= WINDOW_SECONDS:
            self._highest = max(self._highest, self._mean)
            self._marks.popleft()
