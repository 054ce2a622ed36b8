"""A paged resource in memory that answers ranged reads as servers do, including their faults.

`ScriptedPages` is a `stream.answer.ReadRange`. Its options combine:

    pages = ScriptedPages(data, cap_bytes=65_536, end="done", faults={0: [errors.ConnectionLostError("…")]})
    async with open_stream(pages) as stream: ...
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import trio

from playhead.errors import PlayheadError, RangePastEndError, ServerError
from playhead.stream.answer import Page

EndStyle = Literal["empty_blob", "empty_list", "done", "416", "refuse", "last_page_again"]


@dataclass(kw_only=True)
class ReadRecord:
    """A read, as the server saw it."""

    start: int
    end: int
    cancelled: bool = False


@dataclass(slots=True)
class ScriptedPages:
    """A server of `data`. By default it has no faults.

    Times are seconds of trio's clock, for use with a `MockClock`.
    """

    data: bytes
    cap_bytes: int | None = None
    """Limits the bytes of an answer."""
    blobs_a_page: int = 1
    ignore_range: bool = False
    """If true, every answer is the whole resource."""
    ignore_range_until_end: bool = False
    """If true, every answer is the whole resource, except for a read past the end, which is answered as `end`
    says."""
    own_page_bytes: int | None = None
    """If set, `start` is honoured and `end` is not: every answer has this many bytes."""
    overlap_bytes: int = 0
    """The number of bytes beyond the requested ones in every answer."""
    overlap_lies: bool = False
    """If true, the bytes beyond the requested ones differ from the resource's."""
    end: EndStyle = "empty_blob"
    done_with_data: bool = False
    """If true, the last page has its data and a `[DONE]` blob."""
    delay: Callable[[int, int, int], float] | float = 0.0
    """Returns the seconds before the answer to `(start, end, number of the read)`."""
    serial: bool = False
    """If true, reads are answered one after the other."""
    faults: Mapping[int, Sequence[PlayheadError]] = field(default_factory=dict)
    """Maps an offset to the errors that replace the first answers to reads that include it."""
    stalls: Mapping[int, float] = field(default_factory=dict)
    """Maps an offset to the seconds that the first read that includes it waits."""
    spoil: Callable[[int, bytes], bytes] | None = None
    """Changes the bytes of a page, given `(start, data)`."""
    rewrite: Callable[[int, Page], Page] | None = None
    """Changes a whole answer, given `(start, page)`."""
    endless: bool = False
    """If true, `data` repeats without end."""
    plain: bool = False
    """If true, blobs are plain bytes, not base64 text."""
    mime_type: str | None = "application/octet-stream"
    reads: list[ReadRecord] = field(default_factory=list)
    in_flight: int = 0
    in_flight_max: int = 0
    _serialized: trio.Lock = field(default_factory=trio.Lock)
    _hits: dict[int, int] = field(default_factory=dict)

    async def __call__(self, start: int, end: int) -> Page:
        record = ReadRecord(start=start, end=end)
        number = len(self.reads)
        self.reads.append(record)
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            if self.serial:
                async with self._serialized:
                    return await self._answer(start, end, number)
            return await self._answer(start, end, number)
        except trio.Cancelled:
            record.cancelled = True
            raise
        finally:
            self.in_flight -= 1

    async def _answer(self, start: int, end: int, number: int) -> Page:
        delay = self.delay if isinstance(self.delay, int | float) else self.delay(start, end, number)
        await trio.sleep(delay)
        for at, seconds in self.stalls.items():
            if start <= at < end and self._count_hit(-1 - at) == 0:
                await trio.sleep(seconds)
        for at, errors in self.faults.items():
            if start <= at < end and (nth := self._count_hit(at)) < len(errors):
                raise errors[nth]
        page = self._page(start, end)
        return page if self.rewrite is None else self.rewrite(start, page)

    def _count_hit(self, key: int) -> int:
        nth = self._hits.get(key, 0)
        self._hits[key] = nth + 1
        return nth

    def _page(self, start: int, end: int) -> Page:
        size = len(self.data)
        if self.ignore_range or (self.ignore_range_until_end and start < size):
            start, end = 0, size
        elif self.own_page_bytes is not None:
            end = start + self.own_page_bytes
        elif self.cap_bytes is not None:
            end = min(end, start + self.cap_bytes)
        if self.endless:
            repeats = -(-end // size)
            chunk = (self.data * (repeats - start // size))[start % size :][: end - start]
        else:
            chunk = self.data[start : end + self.overlap_bytes]
            if self.overlap_lies:
                honest = chunk[: end - start]
                chunk = honest + bytes(byte ^ 255 for byte in chunk[len(honest) :])
        if not chunk and not self.ignore_range:
            return self._past_the_end(start)
        if self.spoil is not None:
            chunk = self.spoil(start, chunk)
        step = max(1, -(-len(chunk) // self.blobs_a_page))
        blobs = [chunk[at : at + step] for at in range(0, len(chunk), step)]
        if self.done_with_data and start + len(chunk) >= size:
            blobs.append(b"[DONE]")
        return Page(blobs=tuple(self._blob(blob) for blob in blobs), mime_type=self.mime_type)

    def _past_the_end(self, start: int) -> Page:
        match self.end:
            case "empty_blob":
                return Page(blobs=(self._blob(b""),))
            case "empty_list":
                return Page(blobs=())
            case "done":
                return Page(blobs=(self._blob(b"[DONE]"),))
            case "416":
                raise RangePastEndError(f"no bytes at {start}", code=-32000)
            case "refuse":
                raise ServerError(f"bad range: {start}", code=-32602)
            case "last_page_again":
                return Page(blobs=(self._blob(self.data[-1000:]),))

    def _blob(self, data: bytes) -> str | bytes:
        return data if self.plain else base64.b64encode(data).decode()
