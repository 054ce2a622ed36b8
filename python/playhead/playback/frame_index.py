"""The index of a stream's coded frames, counted while they are read."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from playhead.content.coded_frames import CodedFrame
from playhead.playback.seek_search import SeekPoint

if TYPE_CHECKING:
    from playhead.playback.decoder_source import DecoderSource


class FrameIndex:
    """Offsets of the coded frames of a stream, counted while they are read.

    The offset of every `stride`th frame is stored; once there are too many, every second one is dropped. So
    the offsets of a stream of any length take at most 32 KiB. In an hour of MP3 they are less than two
    seconds apart.
    """

    MOST_POINTS = 4096

    def __init__(
        self,
        header: Callable[[bytes, int], CodedFrame | None],
        *,
        header_bytes: int,
        offset: int,
        number: int = 0,
        is_exact: bool = True,
    ) -> None:
        """`header` parses the frame header at a place in bytes. Frame `number` is at `offset`."""
        self._header = header
        self._header_bytes = header_bytes
        self.first_offset = self.end_offset = offset
        self.first_number = self.next_number = number
        """`next_number` is the number of the frame at `end_offset`, the first that was not read."""
        self.is_exact = is_exact
        """False if `number` is only estimated."""
        self.sizes: tuple[int, int] | None = None
        """The sizes of the smallest and the largest frame; None before the first."""
        self.is_over = False
        """True if bytes that are not a frame follow."""
        self._rest = b""
        self._stride = 8
        self._offsets = array("Q", [offset])

    def feed(self, offset: int, data: bytes) -> None:
        """Take bytes of the stream. Bytes that do not continue the frames so far are ignored."""
        begin = self.end_offset + len(self._rest) - offset
        if self.is_over or begin < 0 or begin >= len(data):
            return
        data, place = self._rest + data[begin:], 0  # `begin`: the first byte that was not fed yet
        while len(data) - place >= self._header_bytes:
            frame = self._header(data, place)
            if frame is None:
                self.is_over = True
                return
            least, most = self.sizes or (frame.size_bytes, frame.size_bytes)
            self.sizes = min(least, frame.size_bytes), max(most, frame.size_bytes)
            place += frame.size_bytes
            self._add(frame.size_bytes)
        self._rest = data[place:]

    def _add(self, size_bytes: int) -> None:
        self.end_offset += size_bytes
        self.next_number += 1
        count = self.next_number - self.first_number
        if count % self._stride == 0:
            self._offsets.append(self.end_offset)
            if len(self._offsets) > self.MOST_POINTS:
                self._offsets = self._offsets[::2]
                self._stride *= 2

    @property
    def mean_bytes(self) -> float:
        """The mean size of a frame so far."""
        return (self.end_offset - self.first_offset) / max(1, self.next_number - self.first_number)

    def least_offset(self, number: int) -> int:
        """Return the lowest possible offset of frame `number`, by the smallest frame so far."""
        return self.end_offset + (number - self.next_number) * (self.sizes or (1, 1))[0]

    def count_to(self, number: int, source: DecoderSource) -> None:
        """Read the source on up to frame `number`, as far as its bytes are in hand. It passes what it reads
        to `feed`."""
        first, last = source.free_range
        if number > self.next_number and not self.is_over and first <= self.end_offset < last:
            source.restart(self.end_offset)
            while number > self.next_number and source.offset < last and source.take():
                pass

    def before(self, number: int) -> SeekPoint | None:
        """Return the last stored frame up to frame `number`; None if frame `number` was not read."""
        if not self.first_number <= number <= self.next_number:
            return None
        place = min((number - self.first_number) // self._stride, len(self._offsets) - 1)
        return SeekPoint(offset=self._offsets[place], frame=self.first_number + place * self._stride)
