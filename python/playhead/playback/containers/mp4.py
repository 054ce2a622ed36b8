"""MP4 (ISO 14496-12): the packets that its tables claim, counted before FFmpeg reads them."""

from __future__ import annotations

import re

from playhead.errors import UnsupportedFormatError

MOST_PACKETS = 1 << 20
"""Limits the packets that tables without a list of their sizes may claim: six hours of AAC in one fragment,
and one more per `LEAST_PACKET_BYTES` read. FFmpeg allocates up to 36 bytes per packet before it reads any.
Tables with a list may claim four times as many. Each edit of an edit list repeats all packets."""
LEAST_PACKET_BYTES = 8

_TABLE = re.compile(rb"trak|hdlr|stts|elst|stsz|stz2|trun")


class Mp4Tables:
    """The claims of all tables so far, outside of media data."""

    def __init__(self) -> None:
        self.is_fragmented = False
        """True if the file has fragments, each with an index of its own."""
        self._claims: dict[int, int] = {}
        """Quarters of a packet, by the offset of the table; `_claimed` is their sum."""
        self._claimed = self._edits = 0
        self._is_video = self._is_uncompressed = False
        """Properties of the newest track. One unit of time per sample is usual for video; for audio it means
        PCM, whose index FFmpeg makes without regard to the number of samples."""
        self._next_box = 0
        """Offset of the next outer box, as far as they were read one after the other."""
        self._media = range(0)
        self._tail, self._end = b"", 0

    def feed(self, offset: int, data: bytes, *, taken_bytes: int) -> None:
        """Take bytes of the file. Raises `UnsupportedFormatError` for more packets than are allowed."""
        seen = (self._tail if offset == self._end else b"") + data
        self._end = offset + len(data)
        start = self._end - len(seen)
        while 0 <= (at := self._next_box - start) <= len(seen) - 16:
            size = int.from_bytes(seen[at : at + 4], "big")
            size = int.from_bytes(seen[at + 8 : at + 16], "big") if size == 1 else size
            if seen[at + 4 : at + 8] == b"mdat":
                self._media = range(self._next_box, self._next_box + size)
            self._next_box = self._next_box + size if size >= 8 else -1
        for match in _TABLE.finditer(seen):
            if start + match.start() not in self._media:
                self._add(
                    start + match.start(), match[0], seen[match.end() : match.end() + 16].ljust(16, b"\0")
                )
        self.is_fragmented |= b"mvex" in seen
        self._tail = seen[-19:]
        claimed = self._claimed * max(1, self._edits) // 4
        allowed = MOST_PACKETS + taken_bytes // LEAST_PACKET_BYTES
        if claimed > allowed:
            raise UnsupportedFormatError(
                f"expected at most {allowed} packets, got an MP4 that claims {claimed}: it is damaged"
            )

    def _add(self, place: int, name: bytes, body: bytes) -> None:
        """Take the table at `place`, whose end may not be there yet."""
        first, second = int.from_bytes(body[4:8], "big"), int.from_bytes(body[8:12], "big")
        if name == b"trak":
            self._is_video = self._is_uncompressed = False
        elif name == b"hdlr" and body[8:12] in (b"vide", b"soun", b"m1a "):
            self._is_video = body[8:12] == b"vide"
        elif name == b"stts":
            unit = int.from_bytes(body[12:16], "big")  # FFmpeg takes huge ones for damage, and sets them to 1
            self._is_uncompressed |= first == 1 and (unit == 1 or unit >= 0xFFF8_0000)
        elif name == b"elst":
            self._edits = max(self._edits, first)
        elif name != b"hdlr":
            is_listed = name == b"stz2" or (name == b"stsz" and not first)
            count = first * 4 if name == b"trun" else second if is_listed else second * 4
            self._claimed += count - self._claims.get(place, 0)
            self._claims[place] = count
        if self._is_uncompressed and not self._is_video:
            raise UnsupportedFormatError("expected coded audio, got an MP4 with uncompressed audio; use WAV")
