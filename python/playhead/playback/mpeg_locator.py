"""Find the frame of MPEG audio (layer III, ISO 11172-3; AAC at the end) to start at: see seek_index.py.

No frame states its time. Frames that were read are counted, so a place among them is exact, and so is one
in the bytes in hand, whose frames are counted then. Elsewhere a place is estimated: at a constant bit rate
to one frame, by a VBRI table to one entry, by a Xing table to about a percent, and otherwise by the mean
frame so far.

The data of a frame may begin up to 511 bytes before it (the bit reservoir), and a frame overlaps the one
before it. So decoding starts that many frames earlier. A decoder drops a frame whose reservoir is missing,
which would shift the count: the prefix is one silent frame that is large enough to be it.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from playhead.content.audio_files import MpegFrame, mpeg_frame
from playhead.playback.seek_index import (
    CodedFrame,
    FrameIndex,
    HeaderParser,
    Landing,
    SeekPoint,
    finish_headers,
    look_for,
    not_ready,
)

if TYPE_CHECKING:
    from playhead.playback.decoder_source import DecoderSource

RESERVOIR_BYTES = 511
_OVERLAP_FRAMES = 2
"""Frames that must be right before the wanted one: it overlaps the one before, whose filter state depends on
the one before that in MPEG-2, with its single granule."""
_MOST_DROPPED = 64
_DECODER_DELAY = 529
"""Samples by which a decoder is late; LAME's numbers do not include them."""
_VBRI_AT = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Mp3Tables:
    """Statements of the first frame about all of them."""

    skipped_first: bool = False
    """The first frame holds the tables instead of audio."""
    frames: int | None = None
    stream_bytes: int | None = None
    delay: int = 0
    padding: int = 0
    is_constant: bool = False
    places: tuple[tuple[int, int], ...] = ()
    """(number of a frame, its offset from the first frame), ascending."""


def read_tables(frame: bytes, header: MpegFrame) -> Mp3Tables:
    """Read the Xing, Info or VBRI header of the first frame, if it has one, as miniaudio does."""
    if frame[_VBRI_AT : _VBRI_AT + 4] == b"VBRI" and len(frame) >= _VBRI_AT + 26:
        return _read_vbri(frame)
    at = header.side_bytes + (0 if frame[1] & 1 else 2)
    name = frame[at : at + 4]
    if name not in (b"Xing", b"Info") or len(frame) < at + 8:
        return Mp3Tables()
    flags, at = frame[at + 7], at + 8
    frames = stream_bytes = None
    toc = b""
    if flags & 1:
        frames, at = int.from_bytes(frame[at : at + 4], "big"), at + 4
    if flags & 2:
        stream_bytes, at = int.from_bytes(frame[at : at + 4], "big"), at + 4
    if flags & 4:
        toc, at = frame[at : at + 100], at + 100
    if flags & 8:
        at += 4
    delay = padding = 0
    if frame[at : at + 1] not in (b"", b"\0") and at + 21 + 14 < len(frame):
        packed = int.from_bytes(frame[at + 21 : at + 24], "big")
        delay = (packed >> 12) + _DECODER_DELAY
        padding = max(0, (packed & 0xFFF) - _DECODER_DELAY)
    places: tuple[tuple[int, int], ...] = ()
    if frames and stream_bytes and len(toc) == 100 and sorted(toc) == list(toc):
        marks = [(frames * percent // 100, mark * stream_bytes // 256) for percent, mark in enumerate(toc)]
        places = (*marks, (frames, stream_bytes))
    return Mp3Tables(
        skipped_first=True,
        frames=frames,
        stream_bytes=stream_bytes,
        delay=delay,
        padding=padding,
        is_constant=name == b"Info",
        places=places,
    )


def _read_vbri(frame: bytes) -> Mp3Tables:
    frames, entries, scale, width, step = struct.unpack_from(">IHHHH", frame, _VBRI_AT + 14)
    table = frame[_VBRI_AT + 26 : _VBRI_AT + 26 + entries * width]
    if width not in (1, 2, 3, 4) or not step or not scale or len(table) < entries * width:
        return Mp3Tables(frames=frames or None)
    sizes = [int.from_bytes(table[at : at + width], "big") * scale for at in range(0, len(table), width)]
    places = enumerate(accumulate(sizes, initial=0))
    return Mp3Tables(frames=frames or None, places=tuple((entry * step, place) for entry, place in places))


class MpegLocator:
    """Layer III with a bit rate in each header."""

    end_frame: int | None = None

    def __init__(self) -> None:
        self._tables = Mp3Tables()
        self._first: tuple[MpegFrame, bytes] | None = None
        self._first_offset = 0
        """Of the first frame, audio or not."""
        self._dropped = 0
        """Frames at the beginning whose reservoir is missing: the decoder drops them."""
        self._newest: MpegFrame
        """The last frame that was counted or found."""
        self._index: FrameIndex | None = None
        self._segment: FrameIndex | None = None
        """Frames after the newest estimated place, so that another seek agrees with it."""
        self._headers = HeaderParser(self._parse())

    def _parse(self) -> Generator[int, bytes, None]:
        window = yield 10
        if window[:3] == b"ID3":
            size = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(window[9:5:-1]))
            yield -(size + (10 if window[5] & 0x10 else 0))
            window = b""
        while True:
            window += yield max(0, 4 - len(window))
            header = mpeg_frame(window, 0)
            if header is not None:
                window += yield max(0, header.size_bytes + 4 - len(window))
                if _follows(window, header.size_bytes):
                    break
            window = window[1:]
        self._first, self._first_offset = (header, window[:4]), self._headers.offset - len(window)
        self._newest = header
        self._tables = read_tables(window[: header.size_bytes], header)
        if self._tables.frames is not None:
            total = self._tables.frames * header.samples - self._tables.padding - self._tables.delay
            self.end_frame = max(0, total)
        if self._tables.skipped_first:
            window = window[header.size_bytes :]
        index = self._index = FrameIndex(
            self._header, header_bytes=4, offset=self._headers.offset - len(window)
        )
        index.feed(index.first_offset, window)
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
        """The mean rate by a Xing header, else that of the first frame."""
        if self._first is None:
            return None
        header, tables = self._first[0], self._tables
        if tables.frames and tables.stream_bytes:
            return tables.stream_bytes * header.frames_per_second / tables.frames
        return header.bytes_per_second

    def _header(self, data: bytes, at: int) -> CodedFrame | None:
        assert self._first is not None
        frame = mpeg_frame(data, at) if _is_like(data, at, self._first[1]) else None
        if frame is None:
            return None
        self._newest = frame
        return CodedFrame(size_bytes=frame.size_bytes, samples=frame.samples)

    def feed(self, offset: int, data: bytes) -> None:
        self._headers.feed(offset, data)
        for index in (self._index, self._segment):
            if index is not None:
                index.feed(offset, data)

    def locate(self, frame: int, source: DecoderSource, *, bytes_per_frame: float) -> Landing:
        finish_headers(self._headers, source, "MPEG layer III")
        if self._first is None or self._index is None:
            raise not_ready("MPEG layer III")
        header = self._first[0]
        number = self._dropped + (frame + self._tables.delay) // header.samples
        self._count_ahead(number, source)
        for index in (self._index, self._segment):
            if index is not None and (point := self._before(index, number)) is not None:
                return self._landing(point, is_exact=index.is_exact)
        return self._landing(self._estimate(number, source), is_exact=False)

    def _landing(self, point: SeekPoint, *, is_exact: bool) -> Landing:
        assert self._first is not None
        header, first_bytes = self._first
        if point.frame <= self._dropped:
            assert self._index is not None
            return Landing(offset=self._index.first_offset, frame=-self._tables.delay)
        primer = bytes([0xFF, first_bytes[1] | 1, 0xE0 | first_bytes[2] & 0x0C, first_bytes[3]])
        silent = mpeg_frame(primer, 0)
        assert silent is not None
        frame = (point.frame - self._dropped - 1) * header.samples - self._tables.delay
        return Landing(
            offset=point.offset,
            frame=frame,
            prefix=primer + bytes(silent.size_bytes - 4),
            is_exact=is_exact,
        )

    def _before(self, index: FrameIndex, number: int) -> SeekPoint | None:
        """Return a counted frame far enough before frame `number` to decode that one rightly."""
        assert self._first is not None
        if not index.first_number <= number <= index.frames:
            return None
        side_bytes = self._first[0].side_bytes + 2
        near = index.before(max(index.first_number, number - _OVERLAP_FRAMES))
        point = near
        while near is not None and point is not None and point.frame > index.first_number:
            main_bytes = near.offset - point.offset - (near.frame - point.frame) * side_bytes
            if main_bytes >= RESERVOIR_BYTES:
                return point
            point = index.before(point.frame - 1)
        return point if index is self._index else None

    def _count_ahead(self, number: int, source: DecoderSource) -> None:
        """Count the frames in hand up to the wanted one, if it may be among them."""
        first, last = source.free_range
        for index in (self._index, self._segment):
            if index is None or index.is_over or number <= index.frames:
                continue
            least = index.end_offset + (number - index.frames) * (index.sizes or (1, 1))[0]
            if first <= index.end_offset < last and least <= last:
                source.restart(index.end_offset)
                while number > index.frames and source.offset < last and source.take():
                    pass

    # --- estimates -------------------------------------------------------------------------------------

    def _estimate(self, number: int, source: DecoderSource) -> SeekPoint:
        assert self._first is not None
        assert self._index is not None
        index, header = self._index, self._first[0]
        least, most = index.sizes or (header.size_bytes, header.size_bytes)
        is_constant = most - least <= 1 and (self._tables.is_constant or not self._tables.places)
        mean_bytes = self._newest.bytes_per_second / self._newest.frames_per_second
        if not is_constant and index.frames:
            mean_bytes = (index.end_offset - index.first_offset) / index.frames
        early = _OVERLAP_FRAMES + 2 + int(RESERVOIR_BYTES / max(8.0, mean_bytes - header.side_bytes - 2))
        wanted = max(0, number - early)
        if self._tables.places and not is_constant:
            begin = self._table_place(wanted)
        else:
            begin = SeekPoint(offset=index.first_offset + int(wanted * mean_bytes), frame=wanted)
        if source.size_bytes is not None:
            begin = SeekPoint(offset=min(begin.offset, source.size_bytes), frame=begin.frame)
        found = look_for(source, begin.offset, lambda data: self._sync(data, begin))
        if found is None:
            return begin  # the end: a decoder finds nothing there
        if is_constant:
            counted = round((found.offset - index.first_offset) / mean_bytes)
            found = SeekPoint(offset=found.offset, frame=counted)
        self._segment = FrameIndex(
            self._header, header_bytes=4, offset=found.offset, number=found.frame, is_exact=False
        )
        return found

    def _table_place(self, number: int) -> SeekPoint:
        places = self._tables.places
        after = next((place for place in range(1, len(places)) if places[place][0] > number), len(places) - 1)
        (low, low_offset), (high, high_offset) = places[after - 1], places[after]
        if not self._tables.skipped_first:  # VBRI: the entry itself
            return SeekPoint(offset=self._first_offset + low_offset, frame=low)
        part = min(1.0, (number - low) / max(1, high - low))
        offset = low_offset + int(part * (high_offset - low_offset))
        return SeekPoint(offset=self._first_offset + offset, frame=number)

    def _sync(self, data: bytes, begin: SeekPoint) -> SeekPoint | None:
        assert self._first is not None
        at = -1
        while (at := data.find(b"\xff", at + 1)) >= 0:
            frame = self._header(data, at)
            if frame is None:
                continue
            following = at + frame.size_bytes
            if following + 4 <= len(data) and self._header(data, following) is not None:
                return SeekPoint(offset=begin.offset + at, frame=begin.frame)
        return None


def _is_like(data: bytes, at: int, first: bytes) -> bool:
    """Same version, layer, and rate: what the decoder expects of the next frame."""
    head = data[at : at + 4]
    return len(head) == 4 and not ((head[1] ^ first[1]) & 0xFE or (head[2] ^ first[2]) & 0x0C)


def _follows(window: bytes, at: int) -> bool:
    return mpeg_frame(window, at) is not None and _is_like(window, at, window[:4])


# --- ADTS ------------------------------------------------------------------------------------------------

ADTS_BYTES = 7
AAC_RUN_UP = 3
"""Frames before the wanted one: a frame overlaps the one before it, and the rest lets filters settle."""


def adts_frame(data: bytes, at: int) -> CodedFrame | None:
    """Read the ADTS header at `at` (ISO 14496-3, 1.A.2); None if it is not one."""
    head = data[at : at + ADTS_BYTES]
    if len(head) < ADTS_BYTES or head[0] != 0xFF or head[1] & 0xF6 != 0xF0 or head[2] >> 2 & 15 > 12:
        return None
    size = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    return CodedFrame(size_bytes=size, samples=1024 * ((head[6] & 3) + 1)) if size > ADTS_BYTES else None


class AdtsLocator:
    """AAC frames with headers: counted where they were read, elsewhere estimated by the mean frame so far."""

    def __init__(self, offset: int) -> None:
        """The first frame is at `offset`."""
        self.samples = 1024
        """PCM frames of one coded frame; twice as many if the decoder doubles the rate (HE-AAC)."""
        self._index = self._segment = FrameIndex(adts_frame, header_bytes=ADTS_BYTES, offset=offset)

    def feed(self, offset: int, data: bytes) -> None:
        for index in {self._index, self._segment}:
            index.feed(offset, data)

    def locate(self, frame: int, source: DecoderSource, *, bytes_per_frame: float) -> Landing:
        number = max(0, frame // self.samples - AAC_RUN_UP)
        first, last = source.free_range
        if number > self._index.frames and first <= self._index.end_offset < last:
            source.restart(self._index.end_offset)
            while number > self._index.frames and source.offset < last and source.take():
                pass
        is_past_end = self._index.is_over and number > self._index.frames
        counted = self._index.before(self._index.frames if is_past_end else number)
        point = counted or self._segment.before(number) or self._estimate(number, source)
        return Landing(offset=point.offset, frame=point.frame * self.samples, is_exact=counted is not None)

    def _estimate(self, number: int, source: DecoderSource) -> SeekPoint:
        index = self._index
        mean_bytes = (index.end_offset - index.first_offset) / max(1, index.frames)
        offset = index.first_offset + int(number * mean_bytes)
        if source.size_bytes is not None:
            offset = min(offset, source.size_bytes)

        def find(data: bytes) -> SeekPoint | None:
            at = -1
            while (at := data.find(b"\xff", at + 1)) >= 0:
                header = adts_frame(data, at)
                if header is not None and adts_frame(data, at + header.size_bytes) is not None:
                    return SeekPoint(offset=offset + at, frame=number)
            return None

        found = look_for(source, offset, find)
        if found is None:
            return SeekPoint(offset=offset, frame=number)  # the end
        self._segment = FrameIndex(
            adts_frame, header_bytes=ADTS_BYTES, offset=found.offset, number=number, is_exact=False
        )
        return found
