"""Scripted readers and playables: bytes in chosen pieces, an error in the middle, a reader that blocks."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING

from playhead.errors import ClosedError
from playhead.stream.source import Reader

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from playhead.stream.options import StreamOptions


class ScriptedReader(Reader):
    """A `Reader` over `data`.

    `sizes` limit the bytes of each read in turn; the last one repeats (default: no limit). `error` is raised
    in place of the end. At the offset `hold_at`, readers block until `release` or `close`; `blocked` is set
    while one does.
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
        self._sizes = _repeat_last(sizes)
        self._error = error
        self._hold_at = hold_at
        self._holding = threading.Condition()
        self.blocked = threading.Event()
        self.position = 0
        self.closed = False
        self.readers_blocked = 0

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        if self.closed:
            raise ClosedError("scripted reader: closed")
        out = memoryview(buffer)
        if self.position == self._hold_at:
            self._block(timeout)
        end = len(self._data) if self._hold_at is None else min(len(self._data), self._hold_at)
        count = min(len(out), next(self._sizes), end - self.position)
        if count == 0 and self._error is not None:
            raise self._error
        out[:count] = self._data[self.position : self.position + count]
        self.position += count
        return count

    def release(self, *, hold_at: int | None = None) -> None:
        """Release a blocked reader, as far as `hold_at` (default: to the end)."""
        with self._holding:
            self._hold_at = hold_at
            self.blocked.clear()
            self._holding.notify_all()

    def close(self) -> None:
        """Close, as leaving a playable's context does: a blocked reader gets `ClosedError`."""
        self.closed = True
        self.release()

    def _block(self, timeout: float | None) -> None:
        self.readers_blocked += 1
        self.blocked.set()
        try:
            with self._holding:
                if not self._holding.wait_for(lambda: self.position != self._hold_at, timeout):
                    raise TimeoutError(f"scripted reader: no byte within {timeout} s")
            if self.closed:
                raise ClosedError("scripted reader: closed while a thread was reading")
        finally:
            self.readers_blocked -= 1


@dataclass(slots=True, kw_only=True)
class ScriptedMedia:
    """A playable that opens the given reader; `closings` counts how often its context was left."""

    reader: Reader
    title: str = "a scripted piece"
    mime_type: str | None = None
    uri: str | None = None
    size_bytes: int | None = None
    closings: int = field(default=0, init=False)

    def open(self, options: StreamOptions | None = None) -> AbstractAsyncContextManager[Reader]:
        return self._opened()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Reader]:
        try:
            yield self.reader
        finally:
            self.closings += 1
            if isinstance(self.reader, ScriptedReader):
                self.reader.close()


def _repeat_last(sizes: Iterable[int]) -> Iterator[int]:
    last = 1 << 62
    for last in sizes:
        yield last
    yield from repeat(last)
