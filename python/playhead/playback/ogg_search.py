"""The page of an Ogg stream to decode a time from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playhead._core import OggPage, OggReader
from playhead.playback.seek_index import SeekPoint, look_for, search

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

    None: the beginning, `start`, is near. `begin` is the granule position of frame 0, `page_bytes` the size
    of a usual page, `end_frame` the end of the audio, if it is known. Restarts and reads `source`.
    """
    pages: dict[int, OggPage] = {}

    def look(offset: int) -> SeekPoint | None:
        page = look_for(source, offset, lambda data: _first_page(data, offset, serial))
        if page is None or page.granule is None:
            return None
        pages[page.offset] = page
        return SeekPoint(offset=page.offset, frame=page.granule - begin)

    size_bytes, high = source.size_bytes, None
    if end_frame is not None and size_bytes is not None:
        high = SeekPoint(offset=size_bytes, frame=end_frame)
    found = search(
        frame,
        low=start,
        high=high,
        size_bytes=size_bytes,
        bytes_per_frame=bytes_per_frame,
        unit_bytes=min(page_bytes, _MOST_UNIT_BYTES),
        free=source.free_range,
        look=look,
    )
    return None if found is start else pages[found.offset]


def _first_page(data: bytes, offset: int, serial: int) -> OggPage | None:
    """Return the first page in `data`, read at `offset`, on which a packet of the logical stream ends."""
    reader = OggReader(offset=offset, serial=serial)
    reader.feed(data)
    reader.finish()
    while (page := reader.next_page()) is not None:
        if page.serial == serial and page.granule is not None:
            return page
    return None
