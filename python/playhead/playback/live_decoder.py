"""The decoder of a live stream: one decoder after another, of its parts, in the format of the first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from playhead.errors import PlaybackError
from playhead.playback.conversion import convert_decoder
from playhead.playback.decoder import PcmDecoder
from playhead.playback.decoder_source import DecoderSource
from playhead.playback.formats import PcmFormat

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from playhead.stream.live_source import LiveSource


NEWEST_FRAME: Final = 1 << 60
"""Seek there to go live: beyond any recording, also after a conversion of the rate."""


class LiveDecoder:
    """A `PcmDecoder` of all parts. A live stream has no duration, and no end that a container could lack."""

    duration_seconds: float | None = None
    position_is_exact = True
    lacks_end = False

    def __init__(
        self,
        source: DecoderSource,
        live: LiveSource,
        first: PcmDecoder,
        open_part: Callable[[], PcmDecoder],
    ) -> None:
        """`open_part` opens a decoder at the beginning of the part that `source` has begun."""
        self._source, self._live = source, live
        self._decoder: PcmDecoder | None = first
        """None at the beginning of a part, until its first bytes arrive."""
        self._open_part = open_part
        self.format: PcmFormat = first.format
        self.bytes_per_second = 0.0
        self.position_frames = 0
        self._skip_frames = 0
        """The frames to drop before the wanted one of a seek."""

    def read(self) -> Buffer:
        frame_bytes = self.format.frame_bytes
        while True:
            if self._decoder is None:
                self._decoder = self._opened()
            if self._decoder is not None and (pcm := memoryview(self._decoder.read()).cast("B")):
                self.bytes_per_second = self._decoder.bytes_per_second
                skipped = min(self._skip_frames, len(pcm) // frame_bytes)
                self._skip_frames -= skipped
                if pcm := pcm[skipped * frame_bytes :]:
                    self.position_frames += len(pcm) // frame_bytes
                    return pcm
            elif self._live.next_part():
                self._begin_part()
            else:
                return b""

    def _begin_part(self) -> None:
        self.close()
        self._decoder = None
        self._source.begin_part(self._live.position)

    def _opened(self) -> PcmDecoder | None:
        """Open a decoder of the part; None for one without a frame, such as that of a connection that was
        lost at once."""
        try:
            decoder = self._open_part()
        except PlaybackError:
            if self._source.is_at_end:
                return None
            raise
        own = self.format
        return convert_decoder(decoder, rate_hz=own.rate_hz, channels=own.channels, sample=own.sample)

    def seek(self, frame: int) -> None:
        rate_hz = self.format.rate_hz
        times = self._source.seek_time(math.inf if frame >= NEWEST_FRAME >> 10 else frame / rate_hz)
        self._begin_part()
        if times is not None:
            begin, at = times
            self.position_frames = round(at * rate_hz)
            self._skip_frames = self.position_frames - round(begin * rate_hz)

    def close(self) -> None:
        if self._decoder is not None:
            self._decoder.close()
