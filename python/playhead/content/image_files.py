"""Image files: detection of the type, and of damage that sizes and checksums in the file show.

Viewers show the upper part of a truncated picture, so that half a file may look complete. An image library
would detect the damage, but it is large, and it decodes whatever a server sends. So this file checks the
containers:

* PNG (RFC 2083, W3C PNG 3rd edition): the CRC-32 of each chunk, the checksum of the compressed data, the
  number of bytes that the header's width and height need, and IEND.
* JPEG (ITU-T T.81, annex B): the segments, the order of restart markers in scans, and the end marker.
  Entropy-coded data has no checksum and is not decoded.
* GIF (89a): each block to its end, and the trailer.
* WebP: the sizes of RIFF and of its chunks.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from typing import Final

from playhead.limits import MIB

_SIGNATURES: Final = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
    "image/bmp": re.compile(rb"BM....\0{4}", re.DOTALL),
}
IMAGE_TYPES: Final = frozenset(_SIGNATURES)
"""The MIME types that `image_type` detects. HEIC and AVIF have no simple signature."""


def image_type(head: bytes) -> str | None:
    """Return the MIME type that the first bytes show; None if it is not one of `IMAGE_TYPES`."""
    return next((mime for mime, signature in _SIGNATURES.items() if signature.match(head)), None)


def image_problem(data: bytes) -> str | None:
    """Return the first contradiction between an image file, `data`, and its own headers, markers and
    checksums.

    None without one, or if the format is not PNG, JPEG, GIF or WebP.
    """
    match image_type(data):
        case "image/png":
            return _png_problem(data)
        case "image/jpeg":
            return _jpeg_problem(data)
        case "image/gif":
            return _gif_problem(data)
        case "image/webp":
            return _webp_problem(data)
        case _:
            return None


# --- PNG -----------------------------------------------------------------------------------------------

_CHUNK: Final = struct.Struct(">I4s")
_CHANNELS: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Samples per pixel, by color type."""
_ADAM7_PASSES: Final = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
"""The seven passes of Adam7 interlacing: first column, first row, column step, row step."""
_MAX_PIXEL_BYTES: Final = 256 * MIB
"""Limits the decompressed bytes. The rest of a larger picture is not examined."""
_STEP_BYTES: Final = MIB


def _png_problem(data: bytes) -> str | None:
    at, pixels = 8, None
    while True:
        if at + 12 > len(data):
            return f"expected a PNG chunk at byte {at}, got {len(data) - at} bytes: the file is cut short"
        size, name = _CHUNK.unpack_from(data, at)
        end = at + 12 + size
        if end > len(data):
            return (
                f"expected {size} bytes in the PNG chunk {_escaped(name)} at byte {at}, got"
                f" {len(data) - at - 8}: the file is cut short"
            )
        (crc,) = struct.unpack_from(">I", data, end - 4)
        if zlib.crc32(memoryview(data)[at + 4 : end - 4]) != crc:
            return (
                f"expected the CRC-32 of the PNG chunk {_escaped(name)} at byte {at} to match: it is damaged"
            )
        body = memoryview(data)[at + 8 : end - 4]
        if pixels is None:
            expected = _png_pixel_bytes(bytes(body)) if name == b"IHDR" else None
            if expected is None:
                return f"expected a valid IHDR as the first PNG chunk, got {_escaped(name)}"
            pixels = _PixelCounter(expected)
        elif name == b"IDAT" and (problem := pixels.feed(body)) is not None:
            return problem
        elif name == b"IEND":
            return pixels.problem()
        at = end


def _png_pixel_bytes(header: bytes) -> int | None:
    """Return the decompressed size that an IHDR chunk implies; None if the chunk is invalid."""
    if len(header) != 13:
        return None
    width, height, depth, color, _compression, _filter, interlace = struct.unpack(">IIBBBBB", header)
    if color not in _CHANNELS or depth not in (1, 2, 4, 8, 16) or not width or not height or interlace > 1:
        return None
    bits_per_pixel = depth * _CHANNELS[color]
    total = 0
    for first_column, first_row, column_step, row_step in _ADAM7_PASSES if interlace else ((0, 0, 1, 1),):
        n_columns = math.ceil((width - first_column) / column_step)
        n_rows = math.ceil((height - first_row) / row_step)
        if n_columns > 0 and n_rows > 0:
            filter_byte = 1
            total += n_rows * (filter_byte + (n_columns * bits_per_pixel + 7) // 8)
    return total


class _PixelCounter:
    """Counts the decompressed bytes of a PNG's pixels, a step at a time, without storing them."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._n_bytes = 0
        self._inflate = zlib.decompressobj()

    def feed(self, body: memoryview) -> str | None:
        rest: bytes | memoryview = body
        try:
            while (
                len(rest) and not self._inflate.eof and self._n_bytes <= min(self._expected, _MAX_PIXEL_BYTES)
            ):
                self._n_bytes += len(self._inflate.decompress(rest, _STEP_BYTES))
                rest = self._inflate.unconsumed_tail
        except zlib.error as error:
            return f"expected compressed pixels in IDAT, got damaged ones ({error})"
        return None

    def problem(self) -> str | None:
        if self._n_bytes > _MAX_PIXEL_BYTES:
            return None
        if self._inflate.eof and self._n_bytes == self._expected:
            return None
        size = f"{self._expected} bytes of pixels, for the width and height in IHDR"
        return f"expected {size}, got {self._n_bytes}"


def _escaped(name: bytes) -> str:
    return name.decode("latin-1").encode("unicode_escape").decode()


# --- JPEG ----------------------------------------------------------------------------------------------

_SOI, _EOI, _SOS, _TEM = 0xD8, 0xD9, 0xDA, 0x01
_RESTART_MARKERS: Final = range(0xD0, 0xD8)
_FRAME_MARKERS: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEGMENT_MARKER: Final = re.compile(rb"\xff+([^\x00\xff])")
_SCAN_MARKER: Final = re.compile(rb"\xff([^\x00\xff])")
"""Finds a marker within a scan. To match the fill bytes before it, too, takes five times as long."""


def _jpeg_problem(data: bytes) -> str | None:
    at, has_frame, has_scan = 2, False, False
    while True:
        match = _SEGMENT_MARKER.match(data, at)
        if match is None:
            what = "the end of the file" if at + 1 >= len(data) else data[at : at + 2].hex(" ")
            return f"expected a JPEG marker at byte {at}, got {what}: the file is cut short or damaged"
        marker, at = match[1][0], match.end()
        if marker == _EOI:
            break
        if marker == _TEM:
            continue
        if marker == _SOI or marker in _RESTART_MARKERS:
            return (
                f"expected a JPEG segment at byte {at - 2}, got the marker {marker:#x}: the file is damaged"
            )
        size = int.from_bytes(data[at : at + 2], "big")
        if size < 2 or at + size > len(data):
            return (
                f"expected a JPEG segment of {size} bytes at byte {at}, got {len(data) - at}: it is cut short"
            )
        at += size
        has_frame = has_frame or marker in _FRAME_MARKERS
        if marker == _SOS:
            has_scan = True
            end = _end_of_scan(data, at)
            if isinstance(end, str):
                return end
            at = end
    if has_frame and has_scan:
        return None
    return "expected a frame and a scan in the JPEG file, got its end marker before them"


def _end_of_scan(data: bytes, start: int) -> int | str:
    """Return the place of the marker after a JPEG scan, or the problem in the scan."""
    place, n_restarts = start, 0
    while (match := _SCAN_MARKER.search(data, place)) is not None and match[1][0] in _RESTART_MARKERS:
        number = n_restarts % 8
        if match[1][0] != _RESTART_MARKERS[number]:
            return f"expected JPEG restart marker {number} at byte {match.start()}, got another"
        place, n_restarts = match.end(), n_restarts + 1
    if match is None:
        return f"expected a marker after the JPEG scan at byte {start}, got none: the file is cut short"
    return match.start()


# --- GIF and WebP --------------------------------------------------------------------------------------

_EXTENSION, _PICTURE, _TRAILER = 0x21, 0x2C, 0x3B


def _gif_problem(data: bytes) -> str | None:
    at, has_picture = 13 + _color_table_bytes(data[10:11]), False
    while at < len(data) and data[at] != _TRAILER:
        if data[at] == _PICTURE:
            has_picture = True
            at += 10 + _color_table_bytes(data[at + 9 : at + 10]) + 1
        elif data[at] == _EXTENSION:
            at += 2
        else:
            return f"expected a GIF block at byte {at}, got {data[at : at + 1].hex()}: the file is damaged"
        while at < len(data) and data[at]:  # the sub-blocks, each after its length, to one of length 0
            at += 1 + data[at]
        at += 1
    # Some old programs write no trailer after the picture. Such a picture is complete.
    if at > len(data) or (at == len(data) and not has_picture):
        return "expected a GIF trailer, got the end of the file: it is cut short"
    return None


def _color_table_bytes(packed: bytes) -> int:
    """Return the length of the color table that a packed field announces."""
    return 3 << (packed[0] & 7) + 1 if packed and packed[0] & 0x80 else 0


def _webp_problem(data: bytes) -> str | None:
    (size,) = struct.unpack_from("<I", data, 4)
    if size + 8 > len(data):
        return (
            f"expected {size} bytes after the RIFF header, as it says, got {len(data) - 8}: it is cut short"
        )
    at = 12
    while at + 8 <= size + 8:
        name, length = struct.unpack_from("<4sI", data, at)
        if at + 8 + length > len(data):
            n_bytes = len(data) - at - 8
            return (
                f"expected {length} bytes in the chunk {_escaped(name)}, got {n_bytes}: the file is cut short"
            )
        at += 8 + length + length % 2
    return None
