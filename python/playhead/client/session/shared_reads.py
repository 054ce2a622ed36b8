"""Reads that the streams of a session share: a range whose read is in flight is not read again.

Each read runs in a task of the session, not in that of the stream that asked first. So a stream that is
closed takes nothing from the others that wait, and a read ends early only when nobody waits for it any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace

import trio

from playhead.client.session.arrivals import Arrivals
from playhead.errors import ClosedError, HttpStatusError, PlayheadError, StreamBrokenError
from playhead.stream.answer import Answer, Page, ReadRange, blob_bytes, pieces

GRAIN_SECONDS = 0.01
"""A read this much younger than its timeout was cancelled for another reason."""


@dataclass(slots=True, eq=False)
class _SharedRead:
    """One read in flight, and the streams that wait for it."""

    start: int
    end: int
    arrivals: Arrivals = field(default_factory=Arrivals)
    waiting: set[object] = field(default_factory=set)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    over: trio.Event = field(default_factory=trio.Event)
    page: Page | None = None
    error: PlayheadError | None = None

    def up_to(self, end: int) -> Page:
        """The page, cut to `[start, end)` if the answer has exactly what was asked for.

        Any other answer is given as it is, because its length is evidence. Raises the error of the read.
        """
        if self.page is None:
            raise self.error or ClosedError("the session was closed during a read; connect again")
        page = self.page
        n_bytes = self.end - self.start
        if self.end <= end or page.text_items or sum(map(blob_bytes, page.blobs)) != n_bytes:
            return page
        whole = Answer(offset=self.start, blobs=page.blobs, n_bytes=n_bytes)
        return replace(page, blobs=tuple(piece for _, piece in pieces(whole, self.start, end)))


class SharedReads:
    """The reads in flight of one session, by resource and first byte."""

    def __init__(self, start_soon: Callable[..., None]) -> None:
        """`start_soon` starts a task that lives as long as the session."""
        self.start_soon = start_soon
        self._reads: dict[tuple[Hashable, int], _SharedRead] = {}

    async def read(
        self,
        resource: Hashable,
        start: int,
        end: int,
        *,
        stream: object,
        arrivals: Arrivals,
        send: Callable[[Arrivals], Awaitable[Page]],
    ) -> Page:
        """Return the page `[start, end)`, from a read in flight that begins at `start` and asks for as much.

        Otherwise `send` reads it, and others may share it. A second read of one `stream` is always sent: the
        planner repeats a read because the first one is late. `arrivals` is notified of the bytes of a shared
        answer too. Raises what `send` raises. Cancelled: the read goes on if others wait for it.
        """
        key = resource, start
        shared = self._reads.get(key)
        if shared is None or shared.end < end or stream in shared.waiting:
            shared = self._reads[key] = _SharedRead(start, end)
            self.start_soon(self._run, key, shared, send)
        shared.waiting.add(stream)
        try:
            with arrivals.watching(shared.arrivals.last_received):
                await shared.over.wait()
        finally:
            shared.waiting.discard(stream)
            if not shared.waiting:
                self._forget(key, shared)
                shared.scope.cancel()
        return shared.up_to(end)

    async def _run(
        self,
        key: tuple[Hashable, int],
        shared: _SharedRead,
        send: Callable[[Arrivals], Awaitable[Page]],
    ) -> None:
        try:
            with shared.scope:
                shared.page = await send(shared.arrivals)
        except PlayheadError as error:
            shared.error = error
        finally:
            self._forget(key, shared)
            shared.over.set()

    def _forget(self, key: tuple[Hashable, int], shared: _SharedRead) -> None:
        if self._reads.get(key) is shared:
            del self._reads[key]


class OnceReader:
    """Reads ranges with a tool that may have effects: a range is neither retried nor hedged.

    A second read of a range in flight waits for the first.
    """

    def __init__(self, read: ReadRange, *, timeout_seconds: float) -> None:
        self._read = read
        self._timeout_seconds = timeout_seconds
        self._has_delivered = False
        self._in_flight: dict[int, tuple[trio.Event, list[Page]]] = {}
        self._failed: dict[int, str] = {}

    async def __call__(self, start: int, end: int) -> Page:
        """Raises `StreamBrokenError` if a call fails after the first byte; what the call raises before."""
        if start in self._failed:
            raise self._broken(start)
        if start in self._in_flight:
            answered, pages = self._in_flight[start]
            await answered.wait()
            if not pages:
                raise self._broken(start)
            return pages[0]
        answered, pages = self._in_flight[start] = (trio.Event(), [])
        sent_at = trio.current_time()
        try:
            pages.append(await self._read(start, end))
            self._has_delivered = True
        except PlayheadError as error:
            ran = not isinstance(error, HttpStatusError) or error.status not in {429, 503}
            if ran and self._has_delivered:
                self._failed[start] = str(error)
                raise self._broken(start) from error
            raise
        finally:
            if not pages and trio.current_time() - sent_at >= self._timeout_seconds - GRAIN_SECONDS:
                self._failed[start] = f"no answer in {self._timeout_seconds:g} s"
            del self._in_flight[start]
            answered.set()
        return pages[0]

    def _broken(self, start: int) -> StreamBrokenError:
        return StreamBrokenError(
            f"the call for the bytes from {start} on failed ({self._failed.get(start, 'no answer')}), and the"
            " tool does not declare that it can be repeated (readOnlyHint, idempotentHint): if it only reads,"
            " name it in range_tool",
            offset=start,
        )
