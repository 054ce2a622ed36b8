"""Locators of formats that state the time of each place; see seek_index.py.

* WAV: arithmetic. The prefix is the header with the size of what is left.
* FLAC (RFC 9639): every frame header states its time and is found by its sync code and checksum. The prefix
  is STREAMINFO.

MPEG audio is in mpeg_locator.py.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import TYPE_CHECKING

from playhead.content.audio_files import FlacFrame, flac_frame, flac_info
from playhead.playback.seek_index import (
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


# --- WAV -------------------------------------------------------------------------------------------------

_MS_ADPCM, _IMA_ADPCM, _EXTENSIBLE = 0x0002, 0x0011, 0xFFFE
_LINEAR = frozenset({0x0001, 0x0003, 0x0006, 0x0007, _EXTENSIBLE})
"""Codes of samples of one size: integers, floats, A-law and µ-law."""
_UNKNOWN_SIZES = frozenset({0, 0xFFFF_FFFF})


class WavLocator:
    """RIFF WAVE with any of the codings that miniaudio decodes."""

    end_frame: int | None = None
    bytes_per_second = None

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
_MOST_TABLE_BYTES = 1024 * 1024


class FlacLocator:
    """Native FLAC; a seek table, if there is one, shortens the search."""

    end_frame: int | None = None
    bytes_per_second = None

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
            elif kind == _SEEK_TABLE and size <= _MOST_TABLE_BYTES:
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

        def near(low: SeekPoint, high: SeekPoint | None) -> SeekPoint:
            return search(
                frame,
                low=low,
                high=high,
                size_bytes=source.size_bytes,
                bytes_per_frame=bytes_per_frame,
                free=source.free_range,
                look=look,
            )

        low = max((point for point in self._table if point.frame <= frame), default=start, key=_by_frame)
        high = min((point for point in self._table if point.frame > frame), default=end, key=_by_frame)
        found = near(low, high)
        if found is low and low is not start:
            found = look(low.offset) or start  # tables of cut or retagged files are wrong
            if found.frame > frame:
                found = start
            if (frame - found.frame) * bytes_per_frame > 2 * NEAR_BYTES and high is not None:
                found = near(found, end)
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
