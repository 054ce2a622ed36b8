"""RIFF WAVE: its chunks, read and written."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from playhead.playback.formats import PcmFormat, SampleFormat
from playhead.playback.header_parser import HeaderParser, finish_headers, not_ready
from playhead.playback.locator import Landing

if TYPE_CHECKING:
    from playhead.playback.decoder_source import DecoderSource

_CHUNK: Final = struct.Struct("<4sI")
"""The head of a chunk: its name and size. An odd size is followed by a padding byte."""
_PCM, _FLOAT, _EXTENSIBLE = 0x0001, 0x0003, 0xFFFE
_MS_ADPCM, _IMA_ADPCM = 0x0002, 0x0011
_LINEAR: Final = frozenset({_PCM, _FLOAT, 0x0006, 0x0007, _EXTENSIBLE})
"""Codes of samples of one size: integers, floats, A-law and µ-law."""
_FORMAT_BYTES: Final = 16
"""The shortest format chunk."""
_MOST_FORMAT_BYTES: Final = 1024
UNKNOWN_SIZE: Final = 0xFFFF_FFFF
_LONGEST_BYTES: Final = 0xFFFF_0000
"""A size that decoders do not take for an unknown one, for samples without a stated end."""


class WavLocator:
    """A `Locator` of any of the codings that miniaudio decodes.

    The prefix of a landing is the header with the size of the rest.
    """

    end_frame: int | None = None
    bytes_per_second = None

    def __init__(self) -> None:
        self.sample: SampleFormat | None = None
        self._format = b""
        self._data_bytes: int | None = None
        self.is_endless = False
        """True if the headers were read and do not state the size, so that the samples go on to the end of
        the file."""
        self._block_bytes = self._block_frames = 0
        self._headers = HeaderParser(self._parse())

    def _parse(self) -> Generator[int, bytes, None]:
        _riff, riff_size, _wave = struct.unpack("<4sI4s", (yield 12))
        while True:
            name, size = _CHUNK.unpack((yield _CHUNK.size))
            if name == b"data":
                break
            if name == b"fmt " and _FORMAT_BYTES <= size <= _MOST_FORMAT_BYTES:
                self._format = yield size
                self.sample = _sample_of(self._format)
                yield -(size % 2)
            else:
                yield -(size + size % 2)
        self.is_endless = _is_unknown(size) or (size == 0 and (riff_size == 0 or _is_unknown(riff_size)))
        self._data_bytes = None if self.is_endless or not size else size
        if self._format:
            (code, self._block_bytes) = struct.unpack_from("<H10xH", self._format)
            if code in _LINEAR:
                self._block_frames = 1
            elif code in (_MS_ADPCM, _IMA_ADPCM) and len(self._format) >= 20:
                (self._block_frames,) = struct.unpack_from("<H", self._format, 18)
        if self._block_bytes and self._block_frames and self._data_bytes is not None:
            self.end_frame = self._data_bytes // self._block_bytes * self._block_frames

    @property
    def bytes_per_frame(self) -> float | None:
        return self._block_bytes / self._block_frames if self._block_frames else None

    def feed(self, offset: int, data: bytes) -> None:
        self._headers.feed(offset, data)

    def locate(self, frame: int, source: DecoderSource, *, bytes_per_frame: float) -> Landing:
        finish_headers(self._headers, source, "WAV")
        if not self._block_bytes or not self._block_frames:
            raise not_ready("WAV")
        block = frame // self._block_frames
        begin = block * self._block_bytes
        left = _LONGEST_BYTES if self._data_bytes is None else max(0, self._data_bytes - begin)
        return Landing(
            offset=self._headers.offset + begin,
            frame=block * self._block_frames,
            prefix=riff(_chunk(b"fmt ", self._format), data_bytes=left),
        )


def _sample_of(shape: bytes) -> SampleFormat:
    """Return the samples to decode to, by the content of a format chunk."""
    tag, bits = struct.unpack_from("<H12xH", shape)
    if tag == _EXTENSIBLE and len(shape) >= 26:
        (tag,) = struct.unpack_from("<H", shape, 24)
    # A-law, µ-law and ADPCM expand to 16 bits.
    return SampleFormat.F32 if tag == _FLOAT or (tag == _PCM and bits > 16) else SampleFormat.S16


def _chunk(name: bytes, content: bytes) -> bytes:
    return _CHUNK.pack(name, len(content)) + content + bytes(len(content) % 2)


def riff(chunks: bytes, *, data_bytes: int) -> bytes:
    """Return the header of a file that has `chunks` and `data_bytes` of data."""
    body = b"WAVE" + chunks + _CHUNK.pack(b"data", data_bytes)
    return _CHUNK.pack(b"RIFF", min(len(body) + data_bytes, UNKNOWN_SIZE)) + body


def format_chunk(format: PcmFormat, *, extension: bytes = b"") -> bytes:
    shape = struct.pack(
        "<HHIIHH",
        _PCM if format.sample is SampleFormat.S16 else _FLOAT,
        format.channels,
        format.rate_hz,
        format.bytes_per_second,
        format.frame_bytes,
        8 * format.sample.sample_bytes,
    )
    return _chunk(b"fmt ", shape + extension)


def wave_header(format: PcmFormat, *, data_bytes: int) -> bytes:
    """Return a RIFF header, with the extension size and `fact` chunk that the format of floats requires."""
    if format.sample is SampleFormat.S16:
        return riff(format_chunk(format), data_bytes=data_bytes)
    fact = _chunk(b"fact", struct.pack("<I", data_bytes // format.frame_bytes))
    return riff(format_chunk(format, extension=bytes(2)) + fact, data_bytes=data_bytes)


def rf64_header(format: PcmFormat, *, data_bytes: int) -> bytes:
    """Return a RIFF header with 64-bit sizes (EBU Tech 3306): 32-bit sizes would end after a few hours."""
    sizes = _chunk(b"ds64", struct.pack("<QQQI", data_bytes, data_bytes - 1024, 0, 0))
    body = b"WAVE" + sizes + format_chunk(format) + _CHUNK.pack(b"data", UNKNOWN_SIZE)
    return _CHUNK.pack(b"RF64", UNKNOWN_SIZE) + body


_UNKNOWN_FROM: Final = 0x7FFF_F000
"""Recorders that cannot know a size write one of at least this: 0x7FFFFFFF less a header, or 0xFFFFFFFF."""


def _is_unknown(size: int) -> bool:
    return size & 0x7FFF_FFFF >= _UNKNOWN_FROM


_SLACK_BYTES: Final = 8
"""Many writers count RIFF's own header too, or a padding byte that they omit: no audio is missing then."""


def wav_problem(data: bytes) -> str | None:
    """Return the first size that contradicts the file.

    A recorder that writes to a pipe leaves sizes 0 or at the maximum, which claims nothing.
    """
    _riff, riff_size = _CHUNK.unpack_from(data)
    is_open = riff_size == 0 or riff_size >= _UNKNOWN_FROM
    at, has_data = 12, False
    while at + _CHUNK.size <= len(data):
        name, size = _CHUNK.unpack_from(data, at)
        rest_bytes = len(data) - at - _CHUNK.size
        if name == b"data":
            has_data = True
            if size >= _UNKNOWN_FROM or (size == 0 and is_open):
                return None
        if size > rest_bytes:
            return (
                f"expected {size} bytes in the chunk {_word(name)} at byte {at}, as its header says, got"
                f" {rest_bytes}: the file is cut short"
            )
        at += _CHUNK.size + size + size % 2
    if not is_open and riff_size > len(data) - 8 + _SLACK_BYTES:
        return (
            f"expected {riff_size} bytes after the RIFF header, as it says, got {len(data) - 8}: the file is"
            " cut short"
        )
    return None if has_data else "expected a data chunk, got none: the file is cut short"


def _word(name: bytes) -> str:
    return name.decode("latin-1").strip().encode("unicode_escape").decode()
