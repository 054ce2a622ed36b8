"""MPEG audio, layer III (ISO 11172-3): its frames, and the index in the first one.

No frame states its time. Frames that were read are counted, so a place among them is exact. A place in the
bytes in hand is exact too, because their frames are counted on demand. Elsewhere a place is estimated: at a
constant bit rate to one frame, by a VBRI table to one entry, by a Xing table to about a percent, and
otherwise by the mean frame so far.

The data of a frame may begin up to 511 bytes before it (the bit reservoir), and a frame overlaps the one
before it. So decoding starts some frames earlier. A decoder drops a frame whose reservoir is missing, which
would shift the count. So the prefix of a landing is one silent frame, which is large enough as a reservoir.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from playhead.content.coded_frames import MPEG_HEADER_BYTES, MpegFrame, find_frame, mpeg_frame
from playhead.content.tags import ID3_HEADER_BYTES, ID3V1_BYTES, after_id3, before_tags
from playhead.playback.formats import SampleFormat
from playhead.playback.frame_index import FrameIndex
from playhead.playback.header_parser import HeaderParser, finish_headers, not_ready
from playhead.playback.locator import Landing
from playhead.playback.seek_search import SeekPoint, look_for

if TYPE_CHECKING:
    from playhead.playback.decoder_source import DecoderSource

RESERVOIR_BYTES = 511
_OVERLAP_FRAMES = 2
"""The frames before the wanted one that must be decoded correctly. The wanted frame overlaps the previous
one. In MPEG-2, whose frames have a single granule, the filter state of that one depends on a third."""
_MOST_DROPPED = 64
_DECODER_DELAY = 529
"""The samples by which a decoder is late. LAME's numbers do not include them."""
_XING_FIELDS: Final = {1: 4, 2: 4, 4: 100, 8: 4}
"""The size of each field by its flag: the number of frames, the number of bytes, the table of places in
percent, the quality."""
_VBRI_AT = 36
_VBRI = struct.Struct(">4s6xIIHHHH")


@dataclass(frozen=True, slots=True, kw_only=True)
class MpegIndex:
    """The index in the first frame, which describes the whole stream."""

    name: str = ""
    """Xing, Info (of a constant bit rate), VBRI; empty if there is none."""
    frames: int | None = None
    stream_bytes: int | None = None
    delay: int = 0
    padding: int = 0
    places: tuple[tuple[int, int], ...] = ()
    """(number of a frame, its offset from the first frame), ascending."""


def read_index(frame: bytes, header: MpegFrame) -> MpegIndex:
    """Read the index of the first frame, if it has one, as miniaudio does."""
    if frame[_VBRI_AT : _VBRI_AT + 4] == b"VBRI" and len(frame) >= _VBRI_AT + _VBRI.size:
        return _read_vbri(frame)
    at = header.side_bytes + (0 if frame[1] & 1 else 2)
    name = frame[at : at + 4]
    if name not in (b"Xing", b"Info") or len(frame) < at + 8:
        return MpegIndex()
    flags, at = frame[at + 7], at + 8
    fields: dict[int, bytes] = {}
    for flag, size in _XING_FIELDS.items():
        if flags & flag:
            fields[flag], at = frame[at : at + size], at + size
    frames, stream_bytes = (
        int.from_bytes(fields[flag], "big") if flag in fields else None for flag in (1, 2)
    )
    toc = fields.get(4, b"")
    delay = padding = 0
    if frame[at : at + 1] not in (b"", b"\0") and at + 21 + 14 < len(frame):
        packed = int.from_bytes(frame[at + 21 : at + 24], "big")
        delay = (packed >> 12) + _DECODER_DELAY
        padding = max(0, (packed & 0xFFF) - _DECODER_DELAY)
    places: tuple[tuple[int, int], ...] = ()
    if frames and stream_bytes and len(toc) == 100 and sorted(toc) == list(toc):
        marks = [(frames * percent // 100, mark * stream_bytes // 256) for percent, mark in enumerate(toc)]
        places = (*marks, (frames, stream_bytes))
    return MpegIndex(
        name=name.decode(),
        frames=frames,
        stream_bytes=stream_bytes,
        delay=delay,
        padding=padding,
        places=places,
    )


def _read_vbri(frame: bytes) -> MpegIndex:
    name, stream_bytes, frames, entries, scale, width, step = _VBRI.unpack_from(frame, _VBRI_AT)
    begin = _VBRI_AT + _VBRI.size
    table = frame[begin : begin + entries * width]
    places: tuple[tuple[int, int], ...] = ()
    if width in (1, 2, 3, 4) and step and scale and len(table) == entries * width:
        sizes = [int.from_bytes(table[at : at + width], "big") * scale for at in range(0, len(table), width)]
        offsets = enumerate(accumulate(sizes, initial=0))
        places = tuple((entry * step, offset) for entry, offset in offsets)
    return MpegIndex(name=name.decode(), frames=frames or None, stream_bytes=stream_bytes, places=places)


# --- the place of a time ---------------------------------------------------------------------------------


class MpegLocator:
    """A `Locator` of layer III with a bit rate in each header."""

    sample = SampleFormat.S16
    """The format has no depth of its own; miniaudio's decoder gives 16 bits."""
    end_frame: int | None = None

    def __init__(self) -> None:
        self._stated = MpegIndex()
        self._first: MpegFrame
        self._first_bytes: bytes
        self._first_offset: int
        """The offset of the first frame, audio or not. All three are set once that frame was read."""
        self._dropped = 0
        """The number of frames at the beginning whose reservoir is missing, which the decoder drops."""
        self._newest: MpegFrame
        """The last frame that was counted or searched for."""
        self._counted: list[FrameIndex] = []
        """The index from the first frame on, once that was read. A second index begins at the newest
        estimated place, if any, so that another seek agrees with it."""
        self._headers = HeaderParser(self._parse())

    def _parse(self) -> Generator[int, bytes, None]:
        window = yield ID3_HEADER_BYTES
        if tag_bytes := after_id3(window):
            yield ID3_HEADER_BYTES - tag_bytes
            window = b""
        while True:
            window += yield max(0, MPEG_HEADER_BYTES - len(window))
            header = mpeg_frame(window, 0)
            if header is not None:
                window += yield max(0, header.size_bytes + MPEG_HEADER_BYTES - len(window))
                following = mpeg_frame(window, header.size_bytes)
                if following is not None and _is_like(window, header.size_bytes, window):
                    break
            window = window[1:]
        self._first = self._newest = header
        self._first_bytes, self._first_offset = window[:4], self._headers.offset - len(window)
        self._stated = read_index(window[: header.size_bytes], header)
        if self._stated.frames is not None:
            total = self._stated.frames * header.samples - self._stated.padding - self._stated.delay
            self.end_frame = max(0, total)
        if self._stated.name in ("Xing", "Info"):  # instead of audio
            window = window[header.size_bytes :]
        self._count_from(self._headers.offset - len(window)).feed(self._headers.offset - len(window), window)
        # Count the frames at the beginning whose reservoir reaches back before the first frame.
        have = 0
        while self._dropped < _MOST_DROPPED:
            window += yield max(0, 8 - len(window))
            frame = mpeg_frame(window, 0)
            if frame is None:
                return
            side = window[4 if window[1] & 1 else 6 :]
            wanted = side[0] << 1 | side[1] >> 7 if frame.samples == 1152 else side[0]
            if wanted <= have:
                return
            self._dropped += 1
            have = min(RESERVOIR_BYTES, have + frame.size_bytes - frame.side_bytes)
            window += yield max(0, frame.size_bytes - len(window))
            window = window[frame.size_bytes :]

    @property
    def bytes_per_second(self) -> float | None:
        """The mean rate by the index, else the first frame's rate."""
        if not self._counted:
            return None
        if self._stated.frames and self._stated.stream_bytes:
            return self._stated.stream_bytes * self._first.frames_per_second / self._stated.frames
        return self._first.bytes_per_second

    def _header(self, data: bytes, at: int) -> MpegFrame | None:
        frame = mpeg_frame(data, at) if _is_like(data, at, self._first_bytes) else None
        if frame is not None:
            self._newest = frame
        return frame

    def _count_from(self, offset: int, *, number: int = 0) -> FrameIndex:
        """Start an index at `offset`, in place of the one at an earlier estimated place."""
        is_exact = not self._counted
        index = FrameIndex(
            self._header, header_bytes=MPEG_HEADER_BYTES, offset=offset, number=number, is_exact=is_exact
        )
        self._counted[1:] = [index]
        return index

    def feed(self, offset: int, data: bytes) -> None:
        self._headers.feed(offset, data)
        for index in self._counted:
            index.feed(offset, data)

    def locate(self, frame: int, source: DecoderSource, *, bytes_per_frame: float) -> Landing:
        finish_headers(self._headers, source, "MPEG layer III")
        if not self._counted:
            raise not_ready("MPEG layer III")
        number = self._dropped + (frame + self._stated.delay) // self._first.samples
        for index in self._counted:
            # The frames in hand are counted up to the wanted one, if it may be among them.
            if index.least_offset(number) <= source.free_range[1]:
                index.count_to(number, source)
        for index in self._counted:
            if (point := self._before(index, number)) is not None:
                return self._landing(point, is_exact=index.is_exact)
        return self._landing(self._estimate(number, source), is_exact=False)

    def _landing(self, point: SeekPoint, *, is_exact: bool) -> Landing:
        if point.frame <= self._dropped:
            return Landing(offset=self._counted[0].first_offset, frame=-self._stated.delay)
        _sync, kind, rate, mode = self._first_bytes
        primer = bytes([0xFF, kind | 1, 0xE0 | rate & 0x0C, mode])
        silent = mpeg_frame(primer, 0)
        assert silent is not None
        frame = (point.frame - self._dropped - 1) * self._first.samples - self._stated.delay
        return Landing(
            offset=point.offset,
            frame=frame,
            prefix=primer + bytes(silent.size_bytes - MPEG_HEADER_BYTES),
            is_exact=is_exact,
        )

    def _before(self, index: FrameIndex, number: int) -> SeekPoint | None:
        """Return a counted frame far enough before frame `number` to decode that one correctly."""
        if not index.first_number <= number <= index.next_number:
            return None
        side_bytes = self._first.side_bytes + 2
        near = index.before(max(index.first_number, number - _OVERLAP_FRAMES))
        point = near
        while near is not None and point is not None and point.frame > index.first_number:
            main_bytes = near.offset - point.offset - (near.frame - point.frame) * side_bytes
            if main_bytes >= RESERVOIR_BYTES:
                return point
            point = index.before(point.frame - 1)
        return point if index.is_exact else None

    @property
    def bytes_per_frame(self) -> float | None:
        return self._mean_bytes / self._first.samples if self._counted else None

    @property
    def _is_constant(self) -> bool:
        size_bytes = self._first.size_bytes
        least, most = self._counted[0].sizes or (size_bytes, size_bytes)
        return most - least <= 1 and (self._stated.name == "Info" or not self._stated.places)

    @property
    def _mean_bytes(self) -> float:
        """The mean size of a coded frame: that of the bit rate if it is constant."""
        index = self._counted[0]
        if index.next_number and not self._is_constant:
            return index.mean_bytes
        return self._newest.bytes_per_second / self._newest.frames_per_second

    def _estimate(self, number: int, source: DecoderSource) -> SeekPoint:
        index, header = self._counted[0], self._first
        mean_bytes, is_constant = self._mean_bytes, self._is_constant
        early = _OVERLAP_FRAMES + 2 + int(RESERVOIR_BYTES / max(8.0, mean_bytes - header.side_bytes - 2))
        wanted = max(0, number - early)
        if self._stated.places and not is_constant:
            begin = self._stated_place(wanted)
        else:
            begin = SeekPoint(offset=index.first_offset + int(wanted * mean_bytes), frame=wanted)
        if source.size_bytes is not None:
            begin = SeekPoint(offset=min(begin.offset, source.size_bytes), frame=begin.frame)
        at = look_for(source, begin.offset, lambda data: find_frame(data, self._header))
        if at is None:
            return begin  # the end: a decoder finds nothing there
        offset, counted = source.offset + at, begin.frame
        if is_constant:
            counted = round((offset - index.first_offset) / mean_bytes)
        self._count_from(offset, number=counted)
        return SeekPoint(offset=offset, frame=counted)

    def _stated_place(self, number: int) -> SeekPoint:
        places = self._stated.places
        after = next((place for place in range(1, len(places)) if places[place][0] > number), len(places) - 1)
        (low, low_offset), (high, high_offset) = places[after - 1], places[after]
        if self._stated.name == "VBRI":  # the entry itself
            return SeekPoint(offset=self._first_offset + low_offset, frame=low)
        part = min(1.0, (number - low) / max(1, high - low))
        offset = low_offset + int(part * (high_offset - low_offset))
        return SeekPoint(offset=self._first_offset + offset, frame=number)


def _is_like(data: bytes, at: int, first: bytes) -> bool:
    """Return whether version, layer and rate are the same, as the decoder expects of the next frame."""
    head = data[at : at + MPEG_HEADER_BYTES]
    return len(head) == MPEG_HEADER_BYTES and not ((head[1] ^ first[1]) & 0xFE or (head[2] ^ first[2]) & 0x0C)


# --- a whole file against itself -------------------------------------------------------------------------

_MOST_SEARCHED: Final = 64 * 1024
"""Limits the bytes before the first frame: padding, or a tag that does not say its length."""
_SLACK_BYTES: Final = ID3V1_BYTES + 8
_MARKS: Final = (b"LYRICSBEGIN", b"APETAGEX", b"TAG")


def mpeg_problem(data: bytes) -> str | None:
    """Return the first contradiction between the frames up to the end, and with their index.

    A file without an index that was cut exactly between two frames looks like a shorter one.
    """
    start, end = after_id3(data), before_tags(data)
    if start >= end:
        return f"expected audio after a tag of {start} bytes, got a file of {len(data)}: it is cut short"
    first = _first_frame(data, start, end)
    if first is None:
        return None  # another layer, or a free bit rate: nothing states a length
    at, frames, cut = first, 0, None
    while at < end:
        frame = mpeg_frame(data, at)
        if frame is None:
            if data.startswith(_MARKS, at) or not any(data[at:end]):
                break
            return f"expected an MPEG frame at byte {at}, got {data[at : at + 4].hex(' ')}"
        if at + frame.size_bytes > end:
            cut = f"expected {frame.size_bytes} bytes in the MPEG frame at byte {at}, got {end - at}"
            break
        frames += 1
        at += frame.size_bytes
    indexed = _index_problem(data, first, frames=frames, size=at - first)
    problem = indexed or cut
    return f"{problem}: the file is cut short" if cut else problem


def _first_frame(data: bytes, start: int, end: int) -> int | None:
    """Return the place of the first header that another one follows, or the end."""
    only = mpeg_frame(data, start)
    if only is not None and start + only.size_bytes >= end:
        return start
    place = find_frame(data[start : start + _MOST_SEARCHED], mpeg_frame)
    return None if place is None else start + place


def _index_problem(data: bytes, first: int, *, frames: int, size: int) -> str | None:
    """Compare the frames and their bytes with the index. Some encoders count its own frame, some don't."""
    frame = mpeg_frame(data, first)
    assert frame is not None
    index = read_index(data[first : first + frame.size_bytes], frame)
    if index.frames is not None and index.frames not in (frames - 1, frames):
        return f"expected {index.frames} MPEG frames, as the {index.name} index says, got {frames - 1}"
    # As many bytes as the frames, with or without the first one, and up to a frame of padding or tags.
    total = index.stream_bytes
    if total is not None and not size - 2 * frame.size_bytes <= total <= size + _SLACK_BYTES:
        return f"expected {total} bytes of MPEG frames, as the {index.name} index says, got {size}"
    return None
