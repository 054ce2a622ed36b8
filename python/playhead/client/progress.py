"""Progress on its way to a slow caller: the newest report, never a queue of them.

The SDK starts a task for each progress notification. A callback that waits would let a server that reports
without end fill the memory with them; progress only grows, so what was overtaken need not be told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from mcp.shared.dispatcher import ProgressFnT

from playhead.client.groups import bare

Report = tuple[float, float | None, str | None]


class ProgressRelay:
    """Calls `on_progress` in one task, with the newest report each time."""

    def __init__(self, on_progress: ProgressFnT) -> None:
        self._on_progress = on_progress
        self._newest: Report | None = None
        self._over = False
        self._changed = trio.Event()

    def put(self, report: Report) -> None:
        """Take note of a report; replaces one that has not been told yet."""
        self._newest = report
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[None]:
        """Tell reports while the body runs. What `on_progress` raises leaves here, and cancels the body.

        When the body is done the last report is still told; cancelling leaves it untold.
        """
        with bare():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell)
                yield
                self._over = True
                self._wake()

    async def _tell(self) -> None:
        while True:
            while self._newest is None:
                if self._over:
                    return
                await self._changed.wait()
            report, self._newest = self._newest, None
            await self._on_progress(*report)
