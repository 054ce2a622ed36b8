"""Numbered pages as ranges of bytes: for a server whose template takes a page number in place of an offset.

All pages but the last are equally long, so a range is in the pages that its offsets name. A shorter page that
others follow, or a longer one, breaks the stream: the offsets after it are not known.
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
"""The newest pages: a range that begins inside of one asks for the rest of it next."""


@dataclass(slots=True, eq=False, kw_only=True)
class NumberedPages:
    """An instance is a `playhead.stream.answer.ReadRange` that answers with the rest of a page."""

    read: Callable[[int, int], Awaitable[Page]]
    """`read(number, step)` returns a page."""
    base: int
    """The number of the first page."""
    step: int
    """The length of each."""
    limits: Limits
    server_name: str
    _newest: OrderedDict[int, bytes] = field(default_factory=OrderedDict)

    async def __call__(self, start: int, end: int) -> Page:
        """Raises `RangeNotHonouredError` for a page of another length, and what reading raises."""
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
