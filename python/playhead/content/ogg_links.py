"""Chained Ogg (RFC 3533, section 4): the places where links begin, and their titles.

Internet radio starts a new link for each piece of music. The link has its own headers, and the title is in
its comments.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from playhead._core import OggReader

_COMMENTS: Final = (b"\x03vorbis", b"OpusTags")
_FLAC_COMMENTS: Final = 4
"""The type of the metadata block with the comments of FLAC in Ogg."""


class OggLink(NamedTuple):
    """The beginning of a link, or the title of the current link."""

    place: int
    """The offset in the pages that `OggLinks.feed` returns with it."""
    title: str | None
    """None for the beginning of a link."""


class OggLinks:
    """Finds the links of a chained Ogg stream, in whatever pieces it arrives."""

    def __init__(self) -> None:
        self._reader = OggReader()
        self._serial: int | None = None
        self._unread = b""
        """The bytes that were not returned yet."""
        self._at = 0
        """The reader's offset of the first of these bytes."""

    def feed(self, data: bytes) -> tuple[bytes, list[OggLink]]:
        """Take the next bytes, and return the complete pages, with the links and titles in them."""
        links: list[OggLink] = []
        pages = b""
        self._reader.feed(data)
        self._unread += data
        while (page := self._reader.next_page()) is not None:
            place = page.offset - self._at
            if page.is_first and self._serial not in (None, page.serial):
                pages, self._unread = pages + self._unread[:place], self._unread[place:]
                links.append(OggLink(len(pages), None))
                # A reader joins the packets of one link, so the new link needs a new reader.
                self._reader, self._serial, self._at = OggReader(), None, 0
                self._reader.feed(self._unread)
                continue
            self._serial = page.serial
            for packet in page.packets:
                if (title := _title(packet)) is not None:
                    links.append(OggLink(len(pages) + place, title))
        place = self._reader.offset - self._at
        pages, self._unread = pages + self._unread[:place], self._unread[place:]
        self._at += place
        return pages, links


def _title(packet: bytes) -> str | None:
    """Return `ARTIST - TITLE` of a packet of Vorbis comments; None for another packet or without a title."""
    header = next((name for name in _COMMENTS if packet.startswith(name)), None)
    if header is None:
        if packet[:1] != bytes([_FLAC_COMMENTS]):
            return None
        header = packet[:4]
    comments = _parse_comments(packet[len(header) :])
    artist, title = comments.get("artist", ""), comments.get("title", "")
    return " - ".join(filter(None, (artist, title))) or None


def _parse_comments(data: bytes) -> dict[str, str]:
    """Parse Vorbis comments, up to a damaged one. A repeated field has its first value."""

    def number_at(offset: int) -> int:
        return int.from_bytes(data[offset : offset + 4], "little")

    comments: dict[str, str] = {}
    vendor_end = 4 + number_at(0)
    n_remaining, at = number_at(vendor_end), vendor_end + 4
    while n_remaining > 0 and at + 4 <= len(data):
        end = at + 4 + number_at(at)
        name, _, value = data[at + 4 : end].decode("utf-8", "replace").partition("=")
        comments.setdefault(name.lower(), value)
        at, n_remaining = end, n_remaining - 1
    return comments
