"""Locators of formats that state the time of each place; see seek_index.py.

* WAV: arithmetic. The prefix is the header with the size of what is left.
* FLAC (RFC 9639): every frame header states its time and is found by its sync code and checksum. The prefix
  is STREAMINFO.
* Ogg Vorbis: every page states the time of its end. The prefix is the headers and the page, whose packets
  are decoded once beforehand to count the frames from its beginning to its end.

The pages of an Ogg stream (RFC 3533) are at the end: read, found at any place, and written.

MPEG audio is in mpeg_locator.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from playhead.content.audio_files import FlacFrame, flac_frame, flac_info, ogg_crc32
from playhead.playback.seek_index import (
    MOST_LOOK_BYTES,
    NEAR_BYTES,
    HeaderParser,
    Landing,
    SeekPoint,
    finish_headers,
    look_for,
    not_ready,
    search,
)

if TYPE_CHECKING:
    from playhead.playback.decoder_source import DecoderSource

_HEADER_BYTES = 1024 * 1024
"""Most bytes of Vorbis headers that are kept. Pictures are in the comments, which are dropped."""


# --- WAV -------------------------------------------------------------------------------------------------

_MS_ADPCM, _IMA_ADPCM, _EXTENSIBLE = 0x0002, 0x0011, 0xFFFE
_LINEAR = frozenset({0x0001, 0x0003, 0x0006, 0x0007, _EXTENSIBLE})
"""Codes of samples of one size: integers, floats, A-law and µ-law."""
_UNKNOWN_SIZES = frozenset({0, 0xFFFF_FFFF})


class WavLocator:
    """RIFF WAVE with any of the codings that miniaudio decodes."""

    end_frame: int | None = None

    def __init__(self) -> None:
        self._format = b""
        self._data_bytes: int | None = None
        self._block_bytes = self._block_frames = 0
        self._headers = HeaderParser(self._parse())

    def _parse(self) -> Generator[int, bytes, None]:
        yield 12
        while True:
            name, size = struct.unpack("<4sI", (yield 8))
            if name == b"data":
                break
            if name == b"fmt " and 16 <= size <= 1024:
                self._format = yield size
                yield -(size % 2)
            else:
                yield -(size + size % 2)
        self._data_bytes = None if size in _UNKNOWN_SIZES else size
        if len(self._format) >= 16:
            (code, self._block_bytes) = struct.unpack_from("<H10xH", self._format)
            if code in _LINEAR:
                self._block_frames = 1
            elif code in (_MS_ADPCM, _IMA_ADPCM) and len(self._format) >= 20:
                (self._block_frames,) = struct.unpack_from("<H", self._format, 18)
        if self._block_bytes and self._block_frames and self._data_bytes is not None:
            self.end_frame = self._data_bytes // self._block_bytes * self._block_frames

    def feed(self, offset: int, data: bytes) -> None:
        self._headers.feed(offset, data)

    def locate(self, frame: int, source: DecoderSource, *, bytes_per_frame: float) -> Landing:
        finish_headers(self._headers, source, "WAV")
        if not self._block_bytes or not self._block_frames:
            raise not_ready("WAV")
        block = frame // self._block_frames
        begin = block * self._block_bytes
        left = 0xFFFF_FFFF if self._data_bytes is None else max(0, self._data_bytes - begin)
        body = b"WAVEfmt " + struct.pack("<I", len(self._format)) + self._format
        body += bytes(len(self._format) % 2) + struct.pack("<4sI", b"data", left)
        riff = min(len(body) + left, 0xFFFF_FFFF)
        return Landing(
            offset=self._headers.offset + begin,
            frame=block * self._block_frames,
            prefix=struct.pack("<4sI", b"RIFF", riff) + body,
        )


# --- FLAC ------------------------------------------------------------------------------------------------

_SEEK_TABLE = 3
_PLACEHOLDER = (1 << 64) - 1


class FlacLocator:
    """Native FLAC; a seek table, if there is one, shortens the search."""

    end_frame: int | None = None

    def __init__(self) -> None:
        self._streaminfo = b""
        self._table: list[SeekPoint] = []
        """As the file states them: not verified."""
        self._first: tuple[FlacFrame, bytes] | None = None
        self._headers = HeaderParser(self._parse())

    def _parse(self) -> Generator[int, bytes, None]:
        yield 4
        is_last, table = False, b""
        while not is_last:
            head = yield 4
            is_last, kind, size = head[0] & 0x80 != 0, head[0] & 0x7F, int.from_bytes(head[1:], "big")
            if kind == 0 and size == 34:
                self._streaminfo = yield size
            elif kind == _SEEK_TABLE and size <= _HEADER_BYTES:
                table = yield size
            else:
                yield -size
        info = flac_info(self._prefix())
        self.end_frame = None if info is None else info.samples
        start = self._headers.offset
        for sample, place in struct.iter_unpack(">QQ2x", table[: len(table) // 18 * 18]):
            if sample != _PLACEHOLDER and (not self._table or sample > self._table[-1].frame):
                self._table.append(SeekPoint(offset=start + place, frame=sample))
        head = yield 16
        frame = flac_frame(head, 0, len(head))
        if frame is not None:
            self._first = frame, head

    def _prefix(self) -> bytes:
        return b"fLaC\x80\x00\x00\x22" + self._streaminfo

    def feed(self, offset: int, data: bytes) -> None:
        self._headers.feed(offset, data)

    def locate(self, frame: int, source: DecoderSource, *, bytes_per_frame: float) -> Landing:
        finish_headers(self._headers, source, "FLAC")
        if self._first is None or not self._streaminfo:
            raise not_ready("FLAC")
        start = SeekPoint(offset=self._headers.offset - 16, frame=0)
        end = None
        if self.end_frame is not None and source.size_bytes is not None:
            end = SeekPoint(offset=source.size_bytes, frame=self.end_frame)

        def look(offset: int) -> SeekPoint | None:
            return look_for(source, offset, lambda data: self._find(data, offset))

        low = max((point for point in self._table if point.frame <= frame), default=start, key=_by_frame)
        high = min((point for point in self._table if point.frame > frame), default=end, key=_by_frame)
        found = search(
            frame,
            low=low,
            high=high,
            size_bytes=source.size_bytes,
            bytes_per_frame=bytes_per_frame,
            free=source.free_range,
            look=look,
        )
        if found is low and low is not start:
            found = look(low.offset) or start  # tables of cut or retagged files are wrong
            if found.frame > frame:
                found = start
            if (frame - found.frame) * bytes_per_frame > 2 * NEAR_BYTES and high is not None:
                found = search(
                    frame,
                    low=found,
                    high=end,
                    size_bytes=source.size_bytes,
                    bytes_per_frame=bytes_per_frame,
                    free=source.free_range,
                    look=look,
                )
        return Landing(offset=found.offset, frame=found.frame, prefix=self._prefix())

    def _find(self, data: bytes, offset: int) -> SeekPoint | None:
        """Return the first frame in `data`. Chance passes its checks about once in 2 ** 30 places."""
        assert self._first is not None
        first, head = self._first
        most_samples = int.from_bytes(self._streaminfo[2:4], "big")
        at = -1
        while (at := data.find(head[:2], at + 1)) >= 0:
            frame = flac_frame(data, at, len(data))
            if frame is None or frame.samples > most_samples:
                continue
            if (data[at + 2] ^ head[2]) & 0x0F or (data[at + 3] ^ head[3]) & 0x0E:
                continue  # another rate or depth
            number = frame.number if first.is_variable else frame.number * most_samples
            if self.end_frame is None or number < self.end_frame:
                return SeekPoint(offset=offset + at, frame=number)
        return None


def _by_frame(point: SeekPoint) -> int:
    return point.frame


# --- Ogg Vorbis --------------------------------------------------------------------------------------------

_EMPTY_COMMENTS = b"\x03vorbis" + bytes(8) + b"\x01"


class VorbisLocator:
    """Ogg Vorbis, one logical stream."""

    end_frame: int | None = None

    def __init__(self, count_frames: Callable[[bytes], int]) -> None:
        """`count_frames` decodes a whole Ogg file and returns how many PCM frames it holds."""
        self._count_frames = count_frames
        self._serial = 0
        self._nominal_bytes_per_frame = 0.0
        """As the encoder announces it; 0 if it does not. Few seconds of audio say less."""
        self._prefix = b""
        self._start: int | None = None
        """Offset of the first audio page."""
        self._first_pages = b""
        self._begin: int | None = None
        """Granule position of PCM frame 0."""
        self._headers = HeaderParser(self._parse())

    def _parse(self) -> Generator[int, bytes, None]:
        packets, is_open = [b""], False
        kept = 0
        while len(packets) < 4 or is_open:
            raw = yield from _page()
            page = parse_page(raw)
            kept += 0 if len(packets) == 2 else len(raw)
            if page is None or kept > _HEADER_BYTES:
                return
            self._serial = page.serial
            for part in page.packets:
                if len(packets) != 2:  # the comments, which may hold a picture, are not needed
                    packets[-1] += part
                packets.append(b"")
            is_open = page.is_open
            if is_open:
                packets.pop()
        rate_hz, nominal = struct.unpack_from("<I4xi", packets[0].ljust(28, b"\0"), 12)
        self._nominal_bytes_per_frame = max(0, nominal) / 8 / max(1, rate_hz)
        self._prefix = paginate([packets[0], _EMPTY_COMMENTS, packets[2]], serial=self._serial)
        self._start = self._headers.offset
        while len(self._first_pages) < MOST_LOOK_BYTES:
            raw = yield from _page()
            self._first_pages += raw
            page = parse_page(raw)
            if page is None or page.granule > 0:
                return

    def feed(self, offset: int, data: bytes) -> None:
        self._headers.feed(offset, data)

    def locate(self, frame: int, source: DecoderSource, *, bytes_per_frame: float) -> Landing:
        finish_headers(self._headers, source, "Vorbis")
        if self._start is None:
            raise not_ready("Vorbis")
        if self._begin is None:
            self._begin = self._begin_granule()
        begin = self._begin
        start = SeekPoint(offset=self._start, frame=0)

        def look(offset: int) -> SeekPoint | None:
            page = look_for_page(source, offset, self._serial)
            return None if page is None else SeekPoint(offset=page.offset, frame=page.granule - begin)

        found = search(
            frame,
            low=start,
            high=None,
            size_bytes=source.size_bytes,
            bytes_per_frame=min(bytes_per_frame, self._nominal_bytes_per_frame or bytes_per_frame),
            unit_bytes=len(self._first_pages),
            free=source.free_range,
            look=look,
        )
        while found is not start:
            page = page_at(source, found.offset)
            if page is None or page.flags & LAST:
                break
            prefix = self._prefix + page.without_continuation().encode()
            if count := self._count_frames(prefix):
                return Landing(offset=page.end, frame=page.granule - begin - count, prefix=prefix)
            following = look(page.end)
            if following is None or following.frame > frame:
                break
            found = following
        return Landing(offset=self._start, frame=0, prefix=self._prefix)

    def _begin_granule(self) -> int:
        """Files may begin at another time than 0: those cut from a longer one, and live streams."""
        page = find_page(self._first_pages, offset=0, serial=self._serial)
        if page is None or page.flags & LAST:
            return 0
        return page.granule - self._count_frames(self._prefix + self._first_pages)


def look_for_page(source: DecoderSource, offset: int, serial: int) -> OggPage | None:
    """Read from `offset` on to the first page of a logical stream on which a packet ends."""
    found: list[OggPage] = []

    def find(data: bytes) -> SeekPoint | None:
        page = find_page(data, offset=offset, serial=serial)
        if page is None:
            return None
        found.append(page)
        return SeekPoint(offset=page.offset, frame=page.granule)

    look_for(source, offset, find)
    return found[0] if found else None


def page_at(source: DecoderSource, offset: int) -> OggPage | None:
    """Read the page at `offset`; None if there is none, or it is cut off or damaged."""
    source.restart(offset)
    head = source.peek(OGG_HEADER_BYTES)
    is_whole = len(head) == OGG_HEADER_BYTES
    lacing = source.peek(OGG_HEADER_BYTES + head[26])[OGG_HEADER_BYTES:] if is_whole else b""
    return parse_page(source.peek(OGG_HEADER_BYTES + len(lacing) + sum(lacing)), offset=offset)


def _page() -> Generator[int, bytes, bytes]:
    """Read one page; empty if it is not one."""
    head = yield OGG_HEADER_BYTES
    if head[:4] != b"OggS":
        return b""
    lacing = (yield head[26]) if head[26] else b""
    body = (yield sum(lacing)) if sum(lacing) else b""
    return head + lacing + body


# --- the pages of an Ogg stream --------------------------------------------------------------------------

OGG_HEADER_BYTES = 27
NO_GRANULE = -1
"""No packet ends on this page."""
CONTINUED, FIRST, LAST = 1, 2, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OggPage:
    """One page; `offset` is its place in the stream."""

    offset: int
    flags: int
    granule: int
    """Time of the end of the last packet that ends here, in the codec's units; `NO_GRANULE` if none does."""
    serial: int
    number: int
    lacing: bytes
    body: bytes

    @property
    def end(self) -> int:
        return self.offset + OGG_HEADER_BYTES + len(self.lacing) + len(self.body)

    @property
    def packets(self) -> list[bytes]:
        """The packets and parts of packets. The first one continues another page's if `CONTINUED`; the last
        one is continued if `is_open`."""
        packets, place, size = [], 0, 0
        for part in self.lacing:
            size += part
            if part < 255:
                packets.append(self.body[place : place + size])
                place, size = place + size, 0
        if self.is_open:
            packets.append(self.body[place:])
        return packets

    @property
    def is_open(self) -> bool:
        """The last packet continues on the next page."""
        return self.lacing.endswith(b"\xff")

    def without_continuation(self) -> OggPage:
        """Drop the rest of a packet that began on an earlier page."""
        if not self.flags & CONTINUED:
            return self
        count = next((place + 1 for place, part in enumerate(self.lacing) if part < 255), len(self.lacing))
        return replace(
            self,
            flags=self.flags & ~CONTINUED,
            lacing=self.lacing[count:],
            body=self.body[sum(self.lacing[:count]) :],
        )

    def encode(self) -> bytes:
        head = struct.pack(
            "<4sBBqIIIB", b"OggS", 0, self.flags, self.granule, self.serial, self.number, 0, len(self.lacing)
        )
        page = bytearray(head + self.lacing + self.body)
        page[22:26] = ogg_crc32(page).to_bytes(4, "little")
        return bytes(page)


def parse_page(data: bytes, at: int = 0, *, offset: int = 0) -> OggPage | None:
    """Read the page at `at`; `offset` is the place of `data` in the stream. None if it is missing, not whole
    or damaged."""
    if not data.startswith(b"OggS\x00", at) or at + OGG_HEADER_BYTES > len(data):
        return None
    flags, granule, serial, number, crc, count = struct.unpack_from("<5xBqIIIB", data, at)
    lacing = data[at + OGG_HEADER_BYTES : at + OGG_HEADER_BYTES + count]
    begin = at + OGG_HEADER_BYTES + count
    body = data[begin : begin + sum(lacing)]
    if len(lacing) < count or len(body) < sum(lacing):
        return None
    page = OggPage(
        offset=offset + at,
        flags=flags,
        granule=granule,
        serial=serial,
        number=number,
        lacing=lacing,
        body=body,
    )
    raw = bytearray(data[at : begin + len(body)])
    raw[22:26] = bytes(4)
    return page if ogg_crc32(raw) == crc else None


def find_page(data: bytes, *, offset: int, serial: int) -> OggPage | None:
    """Return the first page of a logical stream on which a packet ends. `data` was read at `offset`."""
    at = -1
    while (at := data.find(b"OggS", at + 1)) >= 0:
        page = parse_page(data, at, offset=offset)
        if page is not None and page.serial == serial and page.granule != NO_GRANULE:
            return page
    return None


def paginate(packets: Sequence[bytes], *, serial: int) -> bytes:
    """Write header packets as pages, the first packet on a page of its own, as every codec wants it."""
    pages: list[bytes] = []
    for group in (packets[:1], packets[1:]):
        lacing = b"".join(b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255]) for packet in group)
        body, place, is_continued = b"".join(group), 0, False
        for start in range(0, len(lacing), 255):
            part = lacing[start : start + 255]
            size = sum(part)
            page = OggPage(
                offset=0,
                flags=(FIRST if not pages else 0) | (CONTINUED if is_continued else 0),
                granule=0 if min(part) < 255 else NO_GRANULE,
                serial=serial,
                number=len(pages),
                lacing=part,
                body=body[place : place + size],
            )
            pages.append(page.encode())
            place, is_continued = place + size, page.is_open
    return b"".join(pages)
