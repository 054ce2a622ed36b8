"""Read ranges with a tool that may have effects: a range is neither retried nor hedged."""

from __future__ import annotations

import trio

from playhead.errors import PlayheadError, StreamBrokenError
from playhead.retry import was_not_begun
from playhead.stream.answer import Page, ReadRange

TIMEOUT_TOLERANCE_SECONDS = 0.01
"""A cancelled read counts as timed out if it has lasted the timeout, less this tolerance."""


class OnceReader:
    """A `ReadRange` that calls the tool once per range: a second read of a range in flight waits for the
    first."""

    def __init__(self, read: ReadRange, *, timeout_seconds: float) -> None:
        self._read = read
        self._timeout_seconds = timeout_seconds
        self._has_delivered = False
        self._in_flight: dict[int, tuple[trio.Event, list[Page]]] = {}
        self._failed: dict[int, str] = {}

    async def __call__(self, start: int, end: int) -> Page:
        """Read a range. Before the first byte the call's own error is raised, afterwards
        `StreamBrokenError`."""
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
            if self._has_delivered and not was_not_begun(error):
                self._failed[start] = str(error)
                raise self._broken(start) from error
            raise
        finally:
            # A timeout arrives as a cancellation, so only the elapsed time tells the two apart.
            if (
                not pages
                and trio.current_time() - sent_at >= self._timeout_seconds - TIMEOUT_TOLERANCE_SECONDS
            ):
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
