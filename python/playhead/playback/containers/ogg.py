"""Ogg (RFC 3533): its pages, which the core reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from playhead._core import OggPage, OggReader
from playhead.playback.seek_search import SeekPoint, look_for, search

if TYPE_CHECKING:
    from playhead.playback.decoder_source import DecoderSource

_MOST_UNIT_BYTES = 64 * 1024


def page_before(
    frame: int,
    source: DecoderSource,
    *,
    serial: int,
    start: SeekPoint,
    begin: int,
    bytes_per_frame: float,
    page_bytes: int,
    end_frame: int | None = None,
) -> OggPage | None:
    """Find a page of the logical stream `serial` that ends at or before `frame`, near it, by interpolation.

    Returns None if `start`, the beginning, is near. `begin` is the granule position of frame 0, `page_bytes`
    the usual size of a page, `end_frame` the end of the audio, if it is known. Restarts and reads `source`.
    """
    pages: dict[int, OggPage] = {}

    def look(offset: int) -> SeekPoint | None:
        page = look_for(source, offset, lambda data: _first_page(data, source.offset, serial))
        if page is None or page.granule is None:
            return None
        pages[page.offset] = page
        return SeekPoint(offset=page.offset, frame=page.granule - begin)

    size_bytes, high = source.size_bytes, None
    if end_frame is not None and size_bytes is not None:
        high = SeekPoint(offset=size_bytes, frame=end_frame)
    point = search(
        frame,
        source,
        low=start,
        high=high,
        bytes_per_frame=bytes_per_frame,
        look=look,
        unit_bytes=min(page_bytes, _MOST_UNIT_BYTES),
    )
    return None if point is start else pages[point.offset]


def _first_page(data: bytes, offset: int, serial: int) -> OggPage | None:
    """Return the first page in `data`, read at `offset`, on which a packet of the logical stream ends."""
    reader = OggReader(offset=offset, serial=serial)
    reader.feed(data)
    reader.finish()
    while (page := reader.next_page()) is not None:
        if page.serial == serial and page.granule is not None:
            return page
    return None


# --- a whole file against itself -------------------------------------------------------------------------

_STEP_BYTES: Final = 1 << 20


def ogg_problem(data: bytes) -> str | None:
    """Return the first problem: a damaged, missing or repeated page, or a stream without a last page."""
    reader, at = OggReader(), 0
    next_page, ended = dict[int, int](), set[int]()
    for start in range(0, len(data), _STEP_BYTES):
        reader.feed(data[start : start + _STEP_BYTES])
        while (page := reader.next_page()) is not None and page.offset == at:
            at, serial = page.end, page.serial
            if page.is_first:
                ended.discard(serial)
                next_page[serial] = page.number
            if page.number != next_page.get(serial, page.number) or serial in ended:
                return (
                    f"expected page {next_page[serial]} of the Ogg stream {serial} at byte {page.offset}, got"
                    f" page {page.number}: pages are missing or repeated"
                )
            next_page[serial] = page.number + 1 & 0xFFFF_FFFF
            if page.is_last:
                ended.add(serial)
        if page is not None:
            break
    if at < len(data):
        if not b"OggS".startswith(data[at : at + 4]):
            return f"expected an Ogg page at byte {at}, got {data[at : at + 4].hex(' ')}"
        if reader.offset == at:
            return (
                f"expected the whole Ogg page at byte {at}, got {len(data) - at} bytes: the file is cut short"
            )
        return f"expected the CRC-32 of the Ogg page at byte {at} to match: the page is damaged"
    if len(ended) < len(next_page):
        return (
            "expected an Ogg page that is marked as the last of its stream, got none: the file is cut short"
        )
    return None
