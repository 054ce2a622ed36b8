"""Places of a stream with their times: a search between them, and an index that is built while decoding.

A locator sees every byte that its decoder reads, so it knows the headers, and reads further ones itself when
it searches. It returns a `Landing`: a fresh decoder that reads the landing's prefix, and then the stream from
its offset, delivers PCM from the landing's frame on, which is at or before the wanted one. The frames between
are decoded and dropped.

A format whose pages or frames state their time (FLAC, Ogg) is searched by interpolation. MPEG audio and ADTS
state none, so their frames are counted while they are read.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from playhead.content.coded_frames import CodedFrame
from playhead.errors import SeekError

if TYPE_CHECKING:
    from playhead.playback.decoder_source import DecoderSource
    from playhead.playback.formats import SampleFormat

_Found = TypeVar("_Found")

NEAR_BYTES = 24 * 1024
"""A place this close before the wanted one is near enough to decode from: it arrives with the first pages of
new reads, and a further look would cost a round trip. Each such look doubles the distance."""
_MOST_LOOKS = 16
"""Limits a search, which takes five looks at most as a rule; in a damaged stream it would not end."""
LOOK_BYTES = 8 * 1024
"""First window of a look for a page or frame: as the first page of new reads. It doubles."""
MOST_LOOK_BYTES = 256 * 1024
"""The largest window. No page, and no FLAC frame in practice, is longer than half of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekPoint:
    """Decoding may start at byte `offset`; the first output is PCM frame `frame` or later."""

    offset: int
    frame: int


def search(
    frame: int,
    source: DecoderSource,
    *,
    low: SeekPoint,
    high: SeekPoint | None,
    bytes_per_frame: float,
    look: Callable[[int], SeekPoint | None],
    unit_bytes: int = 0,
) -> SeekPoint:
    """Return a point at or before `frame`, near it.

    `low` is a known point at or before `frame`, and `high` one after it (the end), if any is known. `look`
    reads the source at an offset and returns the first point from there on, or None; inside `free_range` it
    costs no round trip. `bytes_per_frame` is an estimate, and `unit_bytes` a large distance between points.
    """
    free = source.free_range
    bound = source.size_bytes if high is None else high.offset  # nothing from here on is a place for `low`
    near = NEAR_BYTES + 2 * unit_bytes
    over_frames = 0  # how far the last look was behind `frame`
    for _look in range(_MOST_LOOKS):
        if high is not None and high.frame > low.frame:
            bytes_per_frame = (high.offset - low.offset) / (high.frame - low.frame)
        distance = int((frame - low.frame) * bytes_per_frame)
        if distance <= near or (bound is not None and bound - low.offset <= near):
            break
        if high is not None and over_frames:
            # Where the rate falls between the two, the line leads too far again: usually by less than half.
            distance -= min(int(over_frames * bytes_per_frame / 2), 2 * near)
        aim = low.offset + max(distance - near // 2, near // 2)
        if bound is not None:
            aim = min(aim, max(bound - near, (low.offset + bound) // 2))
        aim = _near_bytes_in_hand(free, aim, low.offset + near // 2, bound)
        if not free[0] <= aim <= free[1]:
            near *= 2  # the more round trips, the less another one is worth
        point = look(aim)
        if point is not None and point.frame <= frame:
            bytes_per_frame = (point.offset - low.offset) / max(1, point.frame - low.frame)
            low = point
            over_frames = 0
        else:
            over_frames = 0 if point is None else point.frame - frame
            bound = aim
            high = point
            if point is None:
                bytes_per_frame /= 2  # past the end, by an estimate that is too high
    return low


def _near_bytes_in_hand(free: tuple[int, int], aim: int, least: int, bound: int | None) -> int:
    """Move an aim outside the bytes in hand to their edge: a look there is free, and shows the bit rate up to
    there. Encoders need not announce a rate, so without that look the first aim may be far off."""
    first, last = free[0], free[1] - NEAR_BYTES
    if last < aim and max(first, least) < last and (bound is None or last < bound):
        return last
    if aim < first < last and least < first and (bound is None or first < bound):
        return first
    return aim


class HeaderParser:
    """Runs a parser of headers on a stream that is read in any pieces.

    The parser yields the number of bytes that it needs next, or, negative, that it skips. It returns at the
    end of the headers, which is then `offset`.
    """

    def __init__(self, parser: Generator[int, bytes, None]) -> None:
        self._parser = parser
        self._wanted = next(parser)
        self._data = bytearray()
        self.offset = 0
        """Offset of the next byte that the parser wants or skips."""
        self.is_done = False

    def feed(self, offset: int, data: bytes) -> None:
        """Take bytes of the stream at `offset`. Those that the parser skips may be missing."""
        while not self.is_done:
            if self._wanted < 0:
                self.offset -= self._wanted
                self._send(b"")
                continue
            begin = self.offset + len(self._data) - offset
            if begin < 0 or (begin >= len(data) and self._wanted > len(self._data)):
                return
            self._data += data[begin : begin + self._wanted - len(self._data)]
            if len(self._data) < self._wanted:
                return
            self.offset += self._wanted
            taken = bytes(self._data)
            self._data.clear()
            self._send(taken)

    def _send(self, data: bytes) -> None:
        try:
            self._wanted = self._parser.send(data)
        except StopIteration:
            self.is_done = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """A place to start a decoder; see this file's header."""

    offset: int
    frame: int
    """PCM frame that the decoder delivers first; negative if that is before the beginning."""
    prefix: bytes = b""
    is_exact: bool = True
    """`frame` is known, not estimated."""


class Locator(Protocol):
    """Used by the decoder's thread alone."""

    @property
    def sample(self) -> SampleFormat | None:
        """The samples to decode to: floats for more than 16 bits. None until the headers are read."""
        ...

    @property
    def end_frame(self) -> int | None:
        """Frames of the whole stream, if its headers state them."""
        ...

    @property
    def bytes_per_second(self) -> float | None:
        """The rate of the stream, if its headers state it."""
        ...

    def feed(self, offset: int, data: bytes) -> None:
        """Take the bytes that the decoder reads at `offset`."""
        ...

    def locate(self, frame: int, source: DecoderSource, *, bytes_per_frame: float) -> Landing:
        """Find the landing for `frame`; this may `restart` and read the source.

        `bytes_per_frame` is the mean so far. Raises `SeekError` if the headers do not allow to find it, and
        the stream's error.
        """
        ...


def look_for(source: DecoderSource, offset: int, find: Callable[[bytes], _Found | None]) -> _Found | None:
    """Read from `offset` on until `find` returns something, and return it; None at the end of the stream, or
    after `MOST_LOOK_BYTES`."""
    source.restart(offset)
    window = LOOK_BYTES
    while True:
        data = source.peek(window)
        match = find(data)
        if match is not None or len(data) < window or window >= MOST_LOOK_BYTES:
            return match
        window *= 2


def finish_headers(headers: HeaderParser, source: DecoderSource, name: str) -> None:
    """Read the rest of the headers, which the decoder may not have needed yet. Raises `SeekError`."""
    if headers.is_done:
        return
    source.restart(headers.offset)
    while source.take():
        if headers.is_done:
            return
    raise not_ready(name)


def not_ready(name: str) -> SeekError:
    """Return the error for a stream whose headers do not allow to seek."""
    return SeekError(
        f"expected complete {name} headers to seek by, got none so far: the file is damaged or unusual; it "
        "plays from its beginning only"
    )


def find_frame(data: bytes, header: Callable[[bytes, int], CodedFrame | None]) -> int | None:
    """Return the place of the first frame (its sync code begins with 0xFF) that another one follows."""
    at = -1
    while (at := data.find(b"\xff", at + 1)) >= 0:
        frame = header(data, at)
        if frame is not None and header(data, at + frame.size_bytes) is not None:
            return at
    return None


class FrameIndex:
    """Offsets of the coded frames of a stream, counted while they are read.

    The offset of every `stride`th frame is stored; once there are too many, every second one is dropped. So a
    stream of any length takes at most 64 KiB, and the entries are at most a second apart in the first two
    hours of music.
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
        self.first_number = self.frames = number
        """`frames`: number of the frame at `end_offset`, the first that was not read."""
        self.is_exact = is_exact
        self.sizes: tuple[int, int] | None = None
        """The smallest and the largest frame."""
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
        data, place = self._rest + data[begin:], 0
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
        self.frames += 1
        count = self.frames - self.first_number
        if count % self._stride == 0:
            self._offsets.append(self.end_offset)
            if len(self._offsets) > self.MOST_POINTS:
                self._offsets = self._offsets[::2]
                self._stride *= 2

    @property
    def mean_bytes(self) -> float:
        """The mean size of a frame so far."""
        return (self.end_offset - self.first_offset) / max(1, self.frames - self.first_number)

    def least_offset(self, number: int) -> int:
        """Return the lowest possible offset of frame `number`, by the smallest frame so far."""
        return self.end_offset + (number - self.frames) * (self.sizes or (1, 1))[0]

    def count_to(self, number: int, source: DecoderSource) -> None:
        """Count the frames in hand up to frame `number`, by reading the source, which feeds this."""
        first, last = source.free_range
        if number > self.frames and not self.is_over and first <= self.end_offset < last:
            source.restart(self.end_offset)
            while number > self.frames and source.offset < last and source.take():
                pass

    def before(self, number: int) -> SeekPoint | None:
        """Return the last stored frame up to `number`; None if that one was not read."""
        if not self.first_number <= number <= self.frames:
            return None
        place = min((number - self.first_number) // self._stride, len(self._offsets) - 1)
        return SeekPoint(offset=self._offsets[place], frame=self.first_number + place * self._stride)
