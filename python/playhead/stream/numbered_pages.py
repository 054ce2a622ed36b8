"""Numbered pages as ranges of bytes: for a server whose template takes a page number in place of an offset.

All pages but the last are equally long, so a range is in the pages that its offsets name. A shorter page that
others follow, or a longer one, breaks the stream: the offsets after it are not known.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from playhead._core import decode_base64
from playhead.errors import RangeNotHonouredError
from playhead.limits import Limits
from playhead.stream.answer import Page, measure

PAGES_KEPT = 2
"""The newest pages: a range that begins inside of one asks for the rest of it next."""


class NumberedPages:
    """An instance is a `playhead.stream.answer.ReadRange` that answers with the rest of a page."""

    def __init__(
        self,
        read: Callable[[int, int], Awaitable[Page]],
        *,
        base: int,
        step: int,
        limits: Limits,
        server_name: str,
    ) -> None:
        """`read(number, step)` returns a page; `base` is the number of the first one, `step` their length."""
        self._read = read
        self._base = base
        self.step = step
        self._limits = limits
        self._server_name = server_name
        self._kept = OrderedDict[int, bytes]()

    async def __call__(self, start: int, end: int) -> Page:
        """Raises `RangeNotHonouredError` for a page of another length, and what reading raises."""
        index, skip = divmod(start, self.step)
        data = await self._page(index)
        if 0 < len(data) <= skip and await self._page(index + 1):
            raise self._unequal(index, len(data))
        part = data[skip : skip + end - start]
        return Page(blobs=(part,) if part else ())

    async def _page(self, index: int) -> bytes:
        if (data := self._kept.get(index)) is None:
            page = await self._read(self._base + index, self.step)
            offset = index * self.step
            answer = measure(page, offset=offset, size_bytes=None, block_bytes=self._limits.block_bytes)
            if answer.n_bytes > self.step:
                raise self._unequal(index, answer.n_bytes)
            data = b"".join(it if isinstance(it, bytes) else decode_base64(it) for it in answer.blobs)
            self._kept[index] = data
            if len(self._kept) > PAGES_KEPT:
                self._kept.popitem(last=False)
        return data

    def _unequal(self, index: int, n_bytes: int) -> RangeNotHonouredError:
        return RangeNotHonouredError(
            f"{self._server_name}: expected pages of {self.step} bytes, got {n_bytes} in page"
            f" {self._base + index}: the offsets after it are not known; read it with another strategy",
            offset=index * self.step,
        )
