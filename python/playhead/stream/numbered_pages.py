"""Numbered pages as ranges of bytes, for a server whose template takes a page number instead of an offset.

All pages but the last must be equally long, so that an offset tells its page. A page that is longer, or is
shorter and not the last, breaks the stream, because the offsets after it are unknown.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from playhead._core import decode_base64
from playhead.errors import RangeNotHonouredError
from playhead.limits import Limits
from playhead.stream.answer import Page, measure

PAGES_KEPT = 2
"""The number of newest pages to save. A range that begins inside a page is answered from it."""


@dataclass(slots=True, eq=False, kw_only=True)
class NumberedPages:
    """A `playhead.stream.answer.ReadRange`. Each answer ends with its page at the latest."""

    read: Callable[[int, int], Awaitable[Page]]
    """`read(number, step)` returns a page."""
    base: int
    """The number of the first page."""
    step: int
    """The length of a page."""
    limits: Limits
    server_name: str
    _newest: OrderedDict[int, bytes] = field(default_factory=OrderedDict)

    async def __call__(self, start: int, end: int) -> Page:
        """Read a range. Raises `RangeNotHonouredError` for a page of another length, and the errors of
        `read`."""
        index, skip = divmod(start, self.step)
        data = await self._page(index)
        if 0 < len(data) <= skip and await self._page(index + 1):
            raise self._unequal(index, len(data))
        part = data[skip : skip + end - start]
        return Page(blobs=(part,) if part else ())

    async def _page(self, index: int) -> bytes:
        if (data := self._newest.get(index)) is None:
            page = await self.read(self.base + index, self.step)
            offset = index * self.step
            answer = measure(page, offset=offset, size_bytes=None, block_bytes=self.limits.block_bytes)
            if answer.n_bytes > self.step:
                raise self._unequal(index, answer.n_bytes)
            data = b"".join(it if isinstance(it, bytes) else decode_base64(it) for it in answer.blobs)
            self._newest[index] = data
            if len(self._newest) > PAGES_KEPT:
                self._newest.popitem(last=False)
        return data

    def _unequal(self, index: int, n_bytes: int) -> RangeNotHonouredError:
        return RangeNotHonouredError(
            f"{self.server_name}: expected pages of {self.step} bytes, got {n_bytes} in page"
            f" {self.base + index}: the offsets after it are not known; read it with another strategy",
            offset=index * self.step,
        )
