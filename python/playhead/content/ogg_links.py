"""Chained Ogg (RFC 3533, section 4): where the next link begins, and its title.

Internet radio starts a new link, with new headers, for each piece of music. Its comments have the title.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from playhead._core import OggReader

_COMMENTS: Final = (b"\x03vorbis", b"OpusTags")
_FLAC_COMMENTS: Final = 4
"""The type of the metadata block with the comments of FLAC in Ogg."""


class OggLink(NamedTuple):
    """A link that begins, or the title of the present one."""

    place: int
    """The place in the pages that were returned with it."""
    title: str | None
    """None for the beginning of a link."""


class OggLinks:
    """Finds the links of a chained Ogg stream, in whatever pieces it arrives."""

    def __init__(self) -> None:
        self._reader = OggReader()
        self._serial: int | None = None
        self._unread = b""
        """The bytes from `_at` on, an offset of the reader."""
        self._at = 0

    def feed(self, data: bytes) -> tuple[bytes, list[OggLink]]:
        """Take the next bytes, and return the pages that are whole, with the links and titles in them."""
        links: list[OggLink] = []
        whole = b""
        self._reader.feed(data)
        self._unread += data
        while (page := self._reader.next_page()) is not None:
            place = page.offset - self._at
            if page.is_first and self._serial not in (None, page.serial):
                whole, self._unread = whole + self._unread[:place], self._unread[place:]
                links.append(OggLink(len(whole), None))
                self._reader, self._serial, self._at = OggReader(), None, 0  # it joins one link's packets
                self._reader.feed(self._unread)
                continue
            self._serial = page.serial
            for packet in page.packets:
                if (title := _title(packet)) is not None:
                    links.append(OggLink(len(whole) + place, title))
        place = self._reader.offset - self._at
        whole, self._unread = whole + self._unread[:place], self._unread[place:]
        self._at += place
        return whole, links


def _title(packet: bytes) -> str | None:
    """Return `ARTIST - TITLE` of a packet of Vorbis comments; None for another packet or without a title."""
    for name in _COMMENTS:
        if packet.startswith(name):
            break
    else:
        if packet[:1] != bytes([_FLAC_COMMENTS]):
            return None
        name = packet[:4]
    comments = _comments(packet[len(name) :])
    artist, title = comments.get("artist", ""), comments.get("title", "")
    return " - ".join(filter(None, (artist, title))) or None


def _comments(data: bytes) -> dict[str, str]:
    """Parse Vorbis comments; of a field that is repeated, the first. Stops where they are damaged."""

    def length(at: int) -> int:
        return int.from_bytes(data[at : at + 4], "little")

    comments: dict[str, str] = {}
    at = 4 + length(0)
    count, at = length(at), at + 4
    while count > 0 and at + 4 <= len(data):
        end = at + 4 + length(at)
        name, _, value = data[at + 4 : end].decode("utf-8", "replace").partition("=")
        comments.setdefault(name.lower(), value)
        at, count = end, count - 1
    return comments
