"""A resource that grows by a schedule, on trio's clock: a simulated one in tests, so that no test sleeps."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import trio

from playhead.cache import EARLIEST_META, LIVE_META
from playhead.errors import ServerError
from playhead.limits import DEFAULT_LIMITS
from playhead.stream.answer import Page
from playhead.stream.negotiation import GrowthListener, RangeForm
from playhead.stream.options import StreamOptions
from playhead.stream.reader import RangeStream, open_forms

Schedule = Sequence[tuple[float, int]]
"""The size from each time on, which begins when the stream is opened."""


def steady(bytes_per_second: float, seconds: float, *, step_seconds: float = 0.1) -> Schedule:
    """Growth in even steps."""
    steps = round(seconds / step_seconds)
    return [
        (round(step * step_seconds, 6), round(step * step_seconds * bytes_per_second))
        for step in range(1, steps + 1)
    ]


@dataclass(slots=True, kw_only=True)
class Growth:
    """A server of one resource, and a `GrowthListener`'s source of notifications."""

    data: bytes
    schedule: Schedule
    announces: bool = True
    """Each page says whether the resource still grows."""
    notifies: bool = False
    echoes: int = 0
    """Notifications of each growth after the first, 60 ms apart, which tell what is known already."""
    rtt_seconds: float = 0.02
    page_bytes: float = math.inf
    earliest_at: Schedule = ()
    """The first byte that is kept, from each time on."""
    fails: bool = False
    """The source fails at the end of its schedule."""
    reads: list[tuple[float, int, int, int]] = field(default_factory=list)
    """The time, range and length of each answer."""
    subscriptions: int = 0
    began: float = 0.0

    @property
    def now(self) -> float:
        return trio.current_time() - self.began

    @property
    def size(self) -> int:
        return _at(self.schedule, self.now)

    @property
    def over_at(self) -> float:
        return self.schedule[-1][0] if self.schedule else 0.0

    async def read(self, start: int, end: int) -> Page:
        await trio.sleep(self.rtt_seconds / 2)
        size, earliest, is_live = self.size, _at(self.earliest_at, self.now), self.now < self.over_at
        if start < earliest:
            raise ServerError("dropped", code=-32602, data={EARLIEST_META: earliest})
        if self.fails and not is_live and start >= size:
            raise ServerError("its source failed", code=-32603, data={LIVE_META: False})
        blob = self.data[start : int(min(end, size, start + self.page_bytes))]
        self.reads.append((self.now, start, end, len(blob)))
        await trio.sleep(self.rtt_seconds / 2)
        return Page(
            blobs=(blob,) if blob else (),
            size_bytes=size if self.announces else None,
            is_live=(is_live or self.fails) if self.announces else None,
        )

    async def follow(self, listener: GrowthListener) -> None:
        self.subscriptions += 1
        try:
            listener.set_notifies(True)
            for at, _ in self.schedule:
                await trio.sleep(max(0.0, at + self.rtt_seconds / 2 - self.now))
                for _ in range(self.echoes):
                    listener.on_notified()
                    await trio.sleep(0.06)
                listener.on_notified()
            await trio.sleep_forever()
        finally:
            self.subscriptions -= 1

    def open(
        self, options: StreamOptions, *, is_live: bool | None = True
    ) -> AbstractAsyncContextManager[RangeStream]:
        """Open a stream; the schedule begins now."""
        self.began = trio.current_time()
        form = RangeForm(name="meta", read=self.read, follow_growth=self.follow if self.notifies else None)
        return open_forms(
            [form],
            options=options,
            limits=DEFAULT_LIMITS,
            size_bytes=None,
            server_name="the server",
            last_received=lambda: 0.0,
            is_live=is_live,
        )

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes as an engine makes them."""
        self.began, sent = trio.current_time(), 0
        for at, size in self.schedule:
            await trio.sleep(max(0.0, at - self.now))
            if size > sent:
                yield self.data[sent:size]
            sent = size


def _at(schedule: Schedule, now: float) -> int:
    return max((size for at, size in schedule if at <= now), default=0)
