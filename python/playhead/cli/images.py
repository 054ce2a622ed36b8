"""Images of a result: saved under names of our own, and drawn in terminals that can.

Two protocols, told apart by what the terminal says of itself in the environment: kitty's graphics protocol
(kitty, Ghostty; PNG only) and iTerm2's inline images (iTerm2, WezTerm, mintty; PNG and JPEG). Asking the
terminal would be surer, and would read from a standard input that may belong to somebody else. Inside tmux or
screen nothing is drawn: they don't pass it through unless told to.

A terminal decodes what it is sent, so it is sent only what is a PNG or JPEG by its own header, of a stated
size, and coded anew from the checked bytes: never a server's own text.
"""

from __future__ import annotations

import re
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, Literal

Protocol = Literal["kitty", "iterm2"]

SAVED_IMAGES: Final = 100
"""Images of one result that are saved: more would be a server filling a folder."""
DRAWN_BYTES: Final = 8 * 1024 * 1024
DRAWN_SIDE: Final = 8192
DRAWN_PIXELS: Final = 32_000_000
"""128 MB once a terminal has decoded it: a large photo, and no bomb."""
_KITTY_CHUNK: Final = 4096
"""Base64 characters of one escape sequence, from kitty's protocol."""
_CELL_WIDTH: Final = 8
"""Pixels of a column, about: images that are wider than the window are scaled to it."""

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_END: Final = b"\x00\x00\x00\x00IEND\xaeB`\x82"
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE: Final = frozenset({0x01, *range(0xD0, 0xD9)})
_JPEG_SEGMENTS: Final = 1000
_SAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_CHARS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The type and size of an image, from its own header."""

    kind: Literal["png", "jpeg"]
    width: int
    height: int

    @property
    def drawable(self) -> bool:
        """It is safe to let a terminal decode it."""
        return (
            0 < self.width <= DRAWN_SIDE
            and 0 < self.height <= DRAWN_SIDE
            and self.width * self.height <= DRAWN_PIXELS
        )


def look_at(data: bytes) -> Picture | None:
    """Read the header of `data`; None unless it is an intact PNG or JPEG."""
    if data.startswith(_PNG):
        return _look_at_png(data)
    if data.startswith(b"\xff\xd8\xff"):
        return _look_at_jpeg(data)
    return None


def _look_at_png(data: bytes) -> Picture | None:
    # ISO/IEC 15948, 11.2.2: IHDR is the first chunk, of 13 bytes, and IEND the last.
    if len(data) < 33 or data[8:16] != b"\x00\x00\x00\x0dIHDR" or not data.endswith(_PNG_END):
        return None
    width, height = struct.unpack(">II", data[16:24])
    (crc,) = struct.unpack(">I", data[29:33])
    if crc != zlib.crc32(data[12:29]):
        return None
    return Picture(kind="png", width=width, height=height)


def _look_at_jpeg(data: bytes) -> Picture | None:
    # ISO/IEC 10918-1, B.1.1: markers with their lengths, up to the frame header.
    at = 2
    for _ in range(_JPEG_SEGMENTS):
        if at + 9 > len(data) or data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _JPEG_BARE:
            at += 2
        elif marker in _JPEG_FRAMES:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return Picture(kind="jpeg", width=width, height=height)
        else:
            (length,) = struct.unpack(">H", data[at + 2 : at + 4])
            at += 2 + max(length, 2)
    return None


# --- drawing -----------------------------------------------------------------------------------------------


def protocol_of(environ: Mapping[str, str]) -> Protocol | None:
    """Return the graphics protocol of this environment's terminal, if any."""
    term, program = environ.get("TERM", ""), environ.get("TERM_PROGRAM", "")
    if "TMUX" in environ or "STY" in environ or term.startswith(("screen", "tmux")):
        return None
    if term in ("xterm-kitty", "xterm-ghostty") or "KITTY_WINDOW_ID" in environ or program == "ghostty":
        return "kitty"
    if program in ("iTerm.app", "WezTerm", "mintty") or environ.get("LC_TERMINAL") == "iTerm2":
        return "iterm2"
    return None


def drawn(data: bytes, protocol: Protocol, *, columns: int) -> str | None:
    """The escape sequences that draw `data`, at most `columns` wide; None where it shall not be drawn."""
    picture = look_at(data) if len(data) <= DRAWN_BYTES else None
    if picture is None or not picture.drawable:
        return None
    too_wide = picture.width > columns * _CELL_WIDTH
    coded = b64encode(data).decode("ascii")
    match protocol:
        case "kitty":
            return (
                "".join(_kitty(coded, f",c={columns}" if too_wide else "")) if picture.kind == "png" else None
            )
        case "iterm2":
            width = "100%" if too_wide else "auto"
            return f"\x1b]1337;File=inline=1;size={len(data)};width={width};preserveAspectRatio=1:{coded}\x07"


def _kitty(coded: str, scaled: str) -> Iterator[str]:
    # q=2: no answer, which would arrive as somebody's key strokes.
    keys = f"a=T,f=100,q=2{scaled},"
    for start in range(0, len(coded), _KITTY_CHUNK):
        more = int(start + _KITTY_CHUNK < len(coded))
        yield f"\x1b_G{keys}m={more};{coded[start : start + _KITTY_CHUNK]}\x1b\\"
        keys = ""


# --- saving ------------------------------------------------------------------------------------------------


def save_image(data: bytes, folder: Path, *, tool: str, number: int, suffix: str) -> Path:
    """Write `data` as `TOOL-NUMBER.SUFFIX`, or under the first free `TOOL-NUMBER-2.SUFFIX`. Blocks.

    The name is made of the tool's name as the user typed it, a count and a suffix from a table: nothing in it
    is the result's. An existing file is never replaced, and no link is followed. Raises `OSError`, and then
    leaves no file.
    """
    stem = f"{_SAFE.sub('-', tool).strip('-')[:_NAME_CHARS] or 'image'}-{number}"
    for again in count(1):
        path = folder / (f"{stem}.{suffix}" if again == 1 else f"{stem}-{again}.{suffix}")
        try:
            file = path.open("xb")
        except FileExistsError:
            continue
        try:
            with file:
                file.write(data)
        except OSError as error:
            path.unlink(missing_ok=True)
            error.filename = str(path)  # a full disk names none
            raise
        return path
    raise AssertionError("count() has no end")
