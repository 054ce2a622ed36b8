"""ICY: the titles that radio servers interleave with their audio.

    audio: `icy-metaint` bytes │ one byte: length / 16 │ StreamTitle='…'; padded with zeros │ audio …

The format has no standard, but SHOUTcast and Icecast agree on this form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_TITLE: Final = re.compile(r"StreamTitle='(.*?)'(?:;|\0|$)", re.DOTALL)
_UNIT_BYTES: Final = 16
MOST_INTERVAL_BYTES: Final = 1 << 24


class IcyPiece(NamedTuple):
    """Audio, and the title that begins after it, if any."""

    audio: bytes
    title: str | None


class IcySplitter:
    """Separates the audio of a body from its metadata, in whatever pieces it arrives."""

    def __init__(self, interval_bytes: int) -> None:
        """`interval_bytes` is the value of `icy-metaint`: the audio between two blocks of metadata."""
        self._interval_bytes = interval_bytes
        self._audio_left = interval_bytes
        self._block = bytearray()
        """The received part of a block of metadata, beginning with its length byte. Empty within audio."""

    def feed(self, data: bytes) -> list[IcyPiece]:
        """Take the next bytes, and return the audio and titles in them, in order."""
        pieces: list[IcyPiece] = []
        at = 0
        while at < len(data):
            if self._audio_left:
                audio = data[at : at + self._audio_left]
                self._audio_left -= len(audio)
                at += len(audio)
                pieces.append(IcyPiece(audio, None))
                continue
            block_bytes = 1 + _UNIT_BYTES * (self._block[0] if self._block else data[at])
            part = data[at : at + block_bytes - len(self._block)]
            self._block += part
            at += len(part)
            if len(self._block) == block_bytes:
                pieces.append(IcyPiece(b"", _title(bytes(self._block[1:]))))
                self._block.clear()
                self._audio_left = self._interval_bytes
        return pieces


def _title(block: bytes) -> str | None:
    """Return the title in a block; None without one. Servers write UTF-8, old ones Windows-1252."""
    try:
        text = block.decode()
    except UnicodeDecodeError:
        text = block.decode("cp1252", "replace")
    match = _TITLE.search(text)
    return None if match is None else match[1].strip("\0 ")


def icy_interval(headers: Mapping[str, str]) -> int | None:
    """Return the value of `icy-metaint`; None if it is missing or out of range."""
    text = headers.get("icy-metaint", "").strip()
    value = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    return value if 0 < value <= MOST_INTERVAL_BYTES else None
