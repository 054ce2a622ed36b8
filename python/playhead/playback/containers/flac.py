"""FLAC (RFC 9639): its metadata blocks, and the headers and checksums of its frames."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from playhead.content.tags import after_id3, before_tags
from playhead.playback.formats import SampleFormat
from playhead.playback.header_parser import HeaderParser, finish_headers, not_ready
from playhead.playback.locator import Landing
from playhead.playback.seek_search import NEAR_BYTES, SeekPoint, look_for, search

if TYPE_CHECKING:
    from playhead.playback.decoder_source import DecoderSource

MARK: Final = b"fLaC"
STREAMINFO_BYTES: Final = 34
_BLOCK_HEAD_BYTES: Final = 4
_STREAMINFO, _PADDING, _SEEK_TABLE = 0, 1, 3
_PLACEHOLDER: Final = (1 << 64) - 1
_MOST_TABLE_BYTES: Final = 1024 * 1024
_FRAME_HEAD_BYTES: Final = 16
"""The longest head of a frame."""
_BLOCK_SIZES: Final = (0, 192, 576, 1152, 2304, 4608, -1, -2, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
"""Block sizes by code (RFC 9639, section 9.1.1); -1 and -2: the size is in one or two bytes of the header."""
_RATE_EXTRA: Final = {12: 1, 13: 2, 14: 2}
_MOST_CHANNELS_CODE: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FlacInfo:
    """STREAMINFO, the first metadata block."""

    block: bytes
    most_samples: int
    """The longest frame, in samples per channel."""
    rate_hz: int
    channels: int
    bits: int
    samples: int | None
    """Samples per channel; None if the encoder did not know."""
    md5: bytes | None
    """The digest of the unencoded samples, interleaved, little-endian, in whole bytes; None if unknown."""

    @classmethod
    def parse(cls, block: bytes) -> FlacInfo:
        """Read the content of the block, `STREAMINFO_BYTES`."""
        packed = int.from_bytes(block[10:18], "big")
        md5 = block[18:]
        return cls(
            block=block,
            most_samples=int.from_bytes(block[2:4], "big"),
            rate_hz=packed >> 44,
            channels=(packed >> 41 & 7) + 1,
            bits=(packed >> 36 & 31) + 1,
            samples=packed & (1 << 36) - 1 or None,
            md5=md5 if any(md5) else None,
        )


def flac_info(data: bytes) -> FlacInfo | None:
    """Return the STREAMINFO of a FLAC file; None if it does not begin with one."""
    at = after_id3(data) + len(MARK)
    begin = at + _BLOCK_HEAD_BYTES
    block = data[begin : begin + STREAMINFO_BYTES]
    if data[at - len(MARK) : at] != MARK or len(block) < STREAMINFO_BYTES:
        return None
    return FlacInfo.parse(block) if _block(data[at:begin])[1] == _STREAMINFO else None


def _block(head: bytes) -> tuple[bool, int, int]:
    """Read the head of a metadata block. Return (is_last, kind, size of the content)."""
    return head[0] & 0x80 != 0, head[0] & 0x7F, int.from_bytes(head[1:], "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlacFrame:
    """The header of one frame."""

    number: int
    """The number of the frame, or of its first sample if `is_variable`."""
    is_variable: bool
    samples: int
    header_bytes: int


def flac_frame(data: bytes, at: int, end: int) -> FlacFrame | None:
    """Read the frame header at `at`. None if there is none, by its reserved bits or its CRC-8."""
    head = data[at : min(at + _FRAME_HEAD_BYTES, end)]
    if len(head) < 6 or head[0] != 0xFF or head[1] & 0xFE != 0xF8:
        return None
    size_code, rate_code = head[2] >> 4, head[2] & 15
    if size_code == 0 or rate_code == 15 or head[3] >> 4 > _MOST_CHANNELS_CODE or head[3] & 1:
        return None
    number, length = _coded_number(head[4:11])
    if length == 0:
        return None
    place = 4 + length
    samples = _BLOCK_SIZES[size_code]
    if samples < 0:
        extra = -samples
        samples = int.from_bytes(head[place : place + extra], "big") + 1
        place += extra
    place += _RATE_EXTRA.get(rate_code, 0)
    if place >= len(head) or _crc8(head[:place]) != head[place]:
        return None
    return FlacFrame(number=number, is_variable=head[1] & 1 == 1, samples=samples, header_bytes=place + 1)


def _coded_number(coded: bytes) -> tuple[int, int]:
    """Decode a number of 1 to 7 bytes in the manner of UTF-8. Return it with its length, 0 if invalid."""
    first = coded[0]
    if first < 0x80:
        return first, 1
    length = 8 - (first ^ 0xFF).bit_length()
    if not 2 <= length <= 7 or len(coded) < length:
        return 0, 0
    number = first & (1 << 7 - length) - 1
    for byte in coded[1:length]:
        if byte & 0xC0 != 0x80:
            return 0, 0
        number = number << 6 | byte & 0x3F
    return number, length


# --- the place of a time ---------------------------------------------------------------------------------


class FlacLocator:
    """A `Locator` of native FLAC: every frame states its time, and its sync code and checksum identify it.

    A seek table, if there is one, shortens the search. The prefix of a landing is STREAMINFO.
    """

    end_frame: int | None = None
    bytes_per_second = bytes_per_frame = None

    def __init__(self) -> None:
        self.sample: SampleFormat = SampleFormat.S16
        self._info: FlacInfo | None = None
        self._table: list[SeekPoint] = []
        """The points of the file's seek table, which are not verified."""
        self._first: tuple[FlacFrame, bytes] | None = None
        self._headers = HeaderParser(self._parse())

    def _parse(self) -> Generator[int, bytes, None]:
        yield len(MARK)
        is_last, table = False, b""
        while not is_last:
            is_last, kind, size = _block((yield _BLOCK_HEAD_BYTES))
            if kind == _STREAMINFO and size == STREAMINFO_BYTES:
                self._info = FlacInfo.parse((yield size))
                self.sample = SampleFormat.F32 if self._info.bits > 16 else SampleFormat.S16
            elif kind == _SEEK_TABLE and size <= _MOST_TABLE_BYTES:
                table = yield size
            else:
                yield -size
        self.end_frame = None if self._info is None else self._info.samples
        start = self._headers.offset
        for sample, place in struct.iter_unpack(">QQ2x", table[: len(table) // 18 * 18]):
            if sample != _PLACEHOLDER and (not self._table or sample > self._table[-1].frame):
                self._table.append(SeekPoint(offset=start + place, frame=sample))
        head = yield _FRAME_HEAD_BYTES
        frame = flac_frame(head, 0, len(head))
        if frame is not None:
            self._first = frame, head

    def feed(self, offset: int, data: bytes) -> None:
        self._headers.feed(offset, data)

    def locate(self, frame: int, source: DecoderSource, *, bytes_per_frame: float) -> Landing:
        finish_headers(self._headers, source, "FLAC")
        if self._first is None or self._info is None:
            raise not_ready("FLAC")
        start = SeekPoint(offset=self._headers.offset - _FRAME_HEAD_BYTES, frame=0)
        end = None
        if self.end_frame is not None and source.size_bytes is not None:
            end = SeekPoint(offset=source.size_bytes, frame=self.end_frame)

        def look(offset: int) -> SeekPoint | None:
            return look_for(source, offset, lambda data: self._find(data, source.offset))

        def near(low: SeekPoint, high: SeekPoint | None) -> SeekPoint:
            return search(frame, source, low=low, high=high, bytes_per_frame=bytes_per_frame, look=look)

        by_frame = attrgetter("frame")
        low = max((point for point in self._table if point.frame <= frame), default=start, key=by_frame)
        high = min((point for point in self._table if point.frame > frame), default=end, key=by_frame)
        nearest = near(low, high)
        if nearest is low and low is not start:
            # Verify the table's point, because the tables of cut or retagged files are wrong.
            nearest = look(low.offset) or start
            if nearest.frame > frame:
                nearest = start
            if (frame - nearest.frame) * bytes_per_frame > 2 * NEAR_BYTES and high is not None:
                nearest = near(nearest, end)
        prefix = MARK + b"\x80\x00\x00\x22" + self._info.block
        return Landing(offset=nearest.offset, frame=nearest.frame, prefix=prefix)

    def _find(self, data: bytes, offset: int) -> SeekPoint | None:
        """Return the first frame in `data`. Random bytes pass its checks about once in 2 ** 30 places."""
        assert self._first is not None
        assert self._info is not None
        first, head = self._first
        most_samples = self._info.most_samples
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


# --- a whole file against itself -------------------------------------------------------------------------


def flac_problem(data: bytes) -> str | None:
    """Return the first contradiction in a whole file. The MD5 of the samples, which needs a decoder, is not
    checked; `flac_info` returns it."""
    info = flac_info(data)
    if info is None:
        return "expected a STREAMINFO block at the beginning of the FLAC file, got none"
    at, is_last = after_id3(data) + len(MARK), False
    while not is_last:
        begin = at + _BLOCK_HEAD_BYTES
        is_last, kind, size = _block(data[at:begin]) if begin <= len(data) else (True, 0, 0)
        if begin + size > len(data):
            return f"expected a metadata block at byte {at}, got the end of the file: it is cut short"
        if kind == _PADDING and any(data[begin : begin + size]):
            return f"expected zeros in the padding block at byte {at}, got other bytes: the file is damaged"
        at = begin + size
    return _frames_problem(data, at, info)


def _frames_problem(data: bytes, at: int, info: FlacInfo) -> str | None:
    end = before_tags(data)
    frame = flac_frame(data, at, end)
    if frame is None and (at < end or info.samples is not None):
        actual = data[at : at + 4].hex(" ") or "the end of the file"
        return f"expected a FLAC frame at byte {at}, got {actual}"
    sync = data[at : at + 2]
    samples = 0
    while frame is not None:
        expected = frame.number + (frame.samples if frame.is_variable else 1)
        following, place = None, at + frame.header_bytes
        crc, done = 0, at
        while done < end:
            # Bytes inside a frame may look like a header by chance. Then the checksum up to there fails, and
            # the search goes on.
            place = data.find(sync, place, end)
            following = flac_frame(data, place, end) if place >= 0 else None
            if place >= 0 and (following is None or following.number != expected):
                place += 1
                continue
            place = end if place < 0 else place
            crc, done = _crc16(data, done, place, crc), place
            if crc == 0:  # the CRC over data that ends with its own CRC is 0
                break
            place += 1
        if crc != 0:
            return (
                f"expected the CRC-16 of the FLAC frame at byte {at} to match (sample {samples} of"
                f" {info.samples or 'unknown'}): the frame is damaged or cut short"
            )
        samples += frame.samples
        at, frame = done, following if done < end else None
    if info.samples is not None and samples != info.samples:
        return f"expected {info.samples} samples, as STREAMINFO says, got frames with {samples}"
    return None


# --- checksums -------------------------------------------------------------------------------------------


@cache
def _crc_table(polynomial: int, bits: int) -> Sequence[int]:
    top, mask = 1 << bits - 1, (1 << bits) - 1
    table = array("H", bytes(512))
    for byte in range(256):
        crc = byte << bits - 8
        for _bit in range(8):
            crc = (crc << 1 ^ (polynomial if crc & top else 0)) & mask
        table[byte] = crc
    return table


def _crc8(data: bytes) -> int:
    """Compute FLAC's CRC-8: polynomial 0x07, from 0."""
    table, crc = _crc_table(0x07, 8), 0
    for byte in data:
        crc = table[crc ^ byte]
    return crc


@cache
def _crc16_pairs() -> Sequence[int]:
    """Return the CRC-16 of each pair of bytes: half as many steps, and 16 MiB in half a second."""
    table = _crc_table(0x8005, 16)
    pairs = array("H", bytes(0x20000))
    for high in range(256):
        first = table[high]
        rest, carried = first >> 8, first << 8 & 0xFF00
        for low in range(256):
            pairs[high << 8 | low] = table[rest ^ low] ^ carried
    return pairs


def _crc16(data: bytes, start: int, end: int, crc: int) -> int:
    """Continue FLAC's CRC-16 (polynomial 0x8005, from 0) over `data[start:end]`."""
    pairs = _crc16_pairs()
    even = start + (end - start & ~1)
    for (pair,) in struct.iter_unpack(">H", memoryview(data)[start:even]):
        crc = pairs[crc ^ pair]
    if even < end:
        table = _crc_table(0x8005, 16)
        crc = table[crc >> 8 ^ data[even]] ^ crc << 8 & 0xFF00
    return crc
