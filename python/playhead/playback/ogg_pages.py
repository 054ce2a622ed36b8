"""Pages of an Ogg stream (RFC 3533): read, found at any place, and written.

Pure: bytes in, pages out. A page states the time of the last packet that ends on it, so pages are what is
searched for a place to seek to.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from playhead.content.audio_files import ogg_crc32

HEADER_BYTES = 27
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
        return self.offset + HEADER_BYTES + len(self.lacing) + len(self.body)

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
    if not data.startswith(b"OggS\x00", at) or at + HEADER_BYTES > len(data):
        return None
    flags, granule, serial, number, crc, count = struct.unpack_from("<5xBqIIIB", data, at)
    lacing = data[at + HEADER_BYTES : at + HEADER_BYTES + count]
    begin = at + HEADER_BYTES + count
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
