"""Image files: detection of the type, and of damage that sizes and checksums in the file show.

Viewers show the upper part of a truncated picture, so that half a file looks complete. An image library would
detect the damage, but it is large, and it decodes whatever a server sends. The containers suffice:

* PNG (RFC 2083, W3C PNG 3rd edition): the CRC-32 of each chunk, the checksum of the compressed data, the
  number of bytes that the header's width and height need, and IEND.
* JPEG (ITU-T T.81, annex B): the segments, the order of restart markers in scans, and the end marker.
  Entropy-coded data has no checksum and is not decoded.
* GIF (89a): each block to its end, and the trailer.
* WebP: the sizes of RIFF and of its chunks.
"""

from __future__ import annotations

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
"""The MIME types that `image_type` tells apart. HEIC and AVIF have no simple signature."""


def image_type(head: bytes) -> str | None:
    """Return the MIME type that the first bytes show; None if it is not one of `IMAGE_TYPES`."""
    return next((mime for mime, signature in _SIGNATURES.items() if signature.match(head)), None)


def image_problem(data: bytes) -> str | None:
    """Return the first contradiction between an image file and its headers, markers and checksums.

    None if there is none, or if the format is not one of the four above. `data` is the whole file.
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
_PASSES: Final = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
"""The seven passes of Adam7 interlacing: first column, first row, column step, row step."""
_MOST_PIXELS_BYTES: Final = 256 * MIB
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
                f"expected {size} bytes in the PNG chunk {_word(name)} at byte {at}, got"
                f" {len(data) - at - 8}: the file is cut short"
            )
        (crc,) = struct.unpack_from(">I", data, end - 4)
        if zlib.crc32(memoryview(data)[at + 4 : end - 4]) != crc:
            return f"expected the CRC-32 of the PNG chunk {_word(name)} at byte {at} to match: it is damaged"
        body = memoryview(data)[at + 8 : end - 4]
        if pixels is None:
            expected = _png_bytes(bytes(body)) if name == b"IHDR" else None
            if expected is None:
                return f"expected a valid IHDR as the first PNG chunk, got {_word(name)}"
            pixels = _Pixels(expected)
        elif name == b"IDAT" and (problem := pixels.feed(body)) is not None:
            return problem
        elif name == b"IEND":
            return pixels.problem()
        at = end


def _png_bytes(header: bytes) -> int | None:
    """Return the decompressed size that an IHDR chunk implies; None if the chunk is invalid."""
    if len(header) != 13:
        return None
    width, height, depth, color, _compression, _filter, interlace = struct.unpack(">IIBBBBB", header)
    if color not in _CHANNELS or depth not in (1, 2, 4, 8, 16) or not width or not height or interlace > 1:
        return None
    bits = depth * _CHANNELS[color]
    total = 0
    for column, row, across, down in _PASSES if interlace else ((0, 0, 1, 1),):
        columns, rows = -((column - width) // across), -((row - height) // down)
        if columns > 0 and rows > 0:
            total += rows * (1 + (columns * bits + 7) // 8)
    return total


class _Pixels:
    """Decompresses the pixels of a PNG in steps, and only counts them."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._n_bytes = 0
        self._inflate = zlib.decompressobj()

    def feed(self, body: memoryview) -> str | None:
        rest: bytes | memoryview = body
        try:
            while (
                len(rest)
                and not self._inflate.eof
                and self._n_bytes <= min(self._expected, _MOST_PIXELS_BYTES)
            ):
                self._n_bytes += len(self._inflate.decompress(rest, _STEP_BYTES))
                rest = self._inflate.unconsumed_tail
        except zlib.error as error:
            return f"expected compressed pixels in IDAT, got damaged ones ({error})"
        return None

    def problem(self) -> str | None:
        if self._n_bytes > _MOST_PIXELS_BYTES:
            return None
        if self._inflate.eof and self._n_bytes == self._expected:
            return None
        size = f"{self._expected} bytes of pixels, for the width and height in IHDR"
        return f"expected {size}, got {self._n_bytes}"


def _word(name: bytes) -> str:
    return name.decode("latin-1").encode("unicode_escape").decode()


# --- JPEG ----------------------------------------------------------------------------------------------

_SOI, _EOI, _SOS, _TEM = 0xD8, 0xD9, 0xDA, 0x01
_RESTARTS: Final = range(0xD0, 0xD8)
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_MARKER: Final = re.compile(rb"\xff+([^\x00\xff])")
_NEXT_MARKER: Final = re.compile(rb"\xff([^\x00\xff])")
"""Finds a marker within a scan, without the fill bytes before it, which would take five times as long."""


def _jpeg_problem(data: bytes) -> str | None:
    at, has_frame, has_scan = 2, False, False
    while True:
        match = _MARKER.match(data, at)
        if match is None:
            what = "the end of the file" if at + 1 >= len(data) else data[at : at + 2].hex(" ")
            return f"expected a JPEG marker at byte {at}, got {what}: the file is cut short or damaged"
        marker, at = match[1][0], match.end()
        if marker == _EOI:
            break
        if marker == _TEM:
            continue
        if marker == _SOI or marker in _RESTARTS:
            return (
                f"expected a JPEG segment at byte {at - 2}, got the marker {marker:#x}: the file is damaged"
            )
        size = int.from_bytes(data[at : at + 2], "big")
        if size < 2 or at + size > len(data):
            return (
                f"expected a JPEG segment of {size} bytes at byte {at}, got {len(data) - at}: it is cut short"
            )
        at += size
        has_frame = has_frame or marker in _FRAMES
        if marker == _SOS:
            has_scan = True
            place, restarts = at, 0
            while (match := _NEXT_MARKER.search(data, place)) is not None and match[1][0] in _RESTARTS:
                if match[1][0] != _RESTARTS[restarts % 8]:
                    return f"expected JPEG restart marker {restarts % 8} at byte {match.start()}, got another"
                place, restarts = match.end(), restarts + 1
            if match is None:
                return f"expected a marker after the JPEG scan at byte {at}, got none: the file is cut short"
            at = match.start()
    if has_frame and has_scan:
        return None
    return "expected a frame and a scan in the JPEG file, got its end marker before them"


# --- GIF and WebP --------------------------------------------------------------------------------------

_EXTENSION, _PICTURE, _TRAILER = 0x21, 0x2C, 0x3B


def _gif_problem(data: bytes) -> str | None:
    at, pictures = 13 + _colors_bytes(data[10:11]), 0
    while at < len(data) and data[at] != _TRAILER:
        if data[at] == _PICTURE:
            pictures += 1
            at += 10 + _colors_bytes(data[at + 9 : at + 10]) + 1
        elif data[at] == _EXTENSION:
            at += 2
        else:
            return f"expected a GIF block at byte {at}, got {data[at : at + 1].hex()}: the file is damaged"
        while at < len(data) and data[at]:
            at += 1 + data[at]
        at += 1
    # Some old writers omit the trailer after the picture, and nothing of the picture is missing.
    if at > len(data) or (at == len(data) and not pictures):
        return "expected a GIF trailer, got the end of the file: it is cut short"
    return None


def _colors_bytes(packed: bytes) -> int:
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
            return f"expected {length} bytes in the chunk {_word(name)}, got {n_bytes}: the file is cut short"
        at += 8 + length + length % 2
    return None
