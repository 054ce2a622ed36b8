"""Readers and media made by a test: bytes in chosen pieces, an error in the middle, a reader that blocks."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING

from playhead.errors import ClosedError
from playhead.stream.source import BlockingReader

if TYPE_CHECKING:
    from typing_extensions import Buffer


class ScriptedReader:
    """A `BlockingReader` over `data`.

    `sizes` are the most bytes of each read in turn, the last one for ever (default: as much as asked).
    `error` is raised in place of the end. `hold_at`: at this offset, readers block until `release` or
    `close`; `held` tells that one does.
    """

    def __init__(
        self,
        data: bytes,
        *,
        sizes: Iterable[int] = (),
        error: BaseException | None = None,
        hold_at: int | None = None,
    ) -> None:
        self._data = data
        self._sizes = _then_for_ever(sizes)
        self._error = error
        self._hold_at = hold_at
        self._released = threading.Event()
        self.held = threading.Event()
        self.position = 0
        self.closed = False
        self.readers_blocked = 0

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        if self.closed:
            raise ClosedError("scripted reader: closed")
        out = memoryview(buffer)
        end = len(self._data)
        if self._hold_at is not None and not self._released.is_set():
            end = min(end, self._hold_at)
            if self.position == self._hold_at:
                self._block(timeout)
                end = len(self._data)
        count = min(len(out), next(self._sizes), end - self.position)
        if count == 0 and self._error is not None:
            raise self._error
        out[:count] = self._data[self.position : self.position + count]
        self.position += count
        return count

    def release(self) -> None:
        """Let a blocked reader go on."""
        self._released.set()

    def close(self) -> None:
        """As leaving a media's context: a blocked reader gets `ClosedError`."""
        self.closed = True
        self._released.set()

    def _block(self, timeout: float | None) -> None:
        self.readers_blocked += 1
        self.held.set()
        try:
            if not self._released.wait(timeout):
                raise TimeoutError(f"scripted reader: no byte within {timeout} s")
            if self.closed:
                raise ClosedError("scripted reader: closed while a thread was reading")
        finally:
            self.readers_blocked -= 1


@dataclass(slots=True, kw_only=True)
class ScriptedMedia:
    """A media that opens the given reader; `closings` counts how often its context was left."""

    reader: BlockingReader
    title: str = "a scripted piece"
    mime_type: str | None = None
    uri: str | None = None
    size_bytes: int | None = None
    closings: int = field(default=0, init=False)

    def open(self) -> AbstractAsyncContextManager[BlockingReader]:
        return self._opened()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[BlockingReader]:
        try:
            yield self.reader
        finally:
            self.closings += 1
            if isinstance(self.reader, ScriptedReader):
                self.reader.close()


def _then_for_ever(sizes: Iterable[int]) -> Iterator[int]:
    last = 1 << 62
    for last in sizes:  # the last one is what is repeated
        yield last
    yield from repeat(last)
