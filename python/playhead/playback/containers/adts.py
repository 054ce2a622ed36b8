"""ADTS (ISO 14496-3, 1.A.2): AAC in frames with headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playhead.content.coded_frames import ADTS_BYTES, adts_frame, find_frame
from playhead.playback.frame_index import FrameIndex
from playhead.playback.locator import Landing
from playhead.playback.seek_search import SeekPoint, look_for

if TYPE_CHECKING:
    from playhead.playback.decoder_source import DecoderSource

AAC_RUN_UP = 3
"""Frames before the wanted one: a frame overlaps the one before it, and the rest lets filters settle."""


class AdtsLocator:
    """Finds AAC frames by counting those that were read, and elsewhere by the mean frame size so far."""

    def __init__(self, offset: int) -> None:
        """`offset` is where the first frame begins."""
        self.samples = 1024
        """PCM frames of one coded frame; twice as many if the decoder doubles the rate (HE-AAC)."""
        self._index = self._segment = FrameIndex(adts_frame, header_bytes=ADTS_BYTES, offset=offset)

    @property
    def mean_bytes(self) -> float:
        """The mean size of a frame."""
        return max(1.0, self._index.mean_bytes)

    def feed(self, offset: int, data: bytes) -> None:
        for index in {self._index, self._segment}:
            index.feed(offset, data)

    def locate(self, frame: int, source: DecoderSource) -> Landing:
        """See `Locator.locate`."""
        number, index = max(0, frame // self.samples - AAC_RUN_UP), self._index
        index.count_to(number, source)
        is_past_end = index.is_over and number > index.next_number
        counted = index.before(index.next_number if is_past_end else number)
        point = counted or self._segment.before(number) or self._estimate(number, source)
        return Landing(offset=point.offset, frame=point.frame * self.samples, is_exact=counted is not None)

    def _estimate(self, number: int, source: DecoderSource) -> SeekPoint:
        offset = self._index.first_offset + int(number * self._index.mean_bytes)
        if source.size_bytes is not None:
            offset = min(offset, source.size_bytes)
        at = look_for(source, offset, lambda data: find_frame(data, adts_frame))
        if at is not None:  # not the end
            offset = source.offset + at
            self._segment = FrameIndex(
                adts_frame, header_bytes=ADTS_BYTES, offset=offset, number=number, is_exact=False
            )
        return SeekPoint(offset=offset, frame=number)
