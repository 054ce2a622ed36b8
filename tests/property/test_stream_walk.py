"""A random walk of a reader over streams in simulated time: no byte is wrong, and no wait is endless.

The walk seeks, pauses, sleeps and cancels its reads while pages are in flight, in rings that are small for
the resource. A failure names its seed: `walk(seed)` repeats it.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from playhead.errors import ConnectionLostError, RangeNotHonouredError, ServerError
from playhead.stream.answer import Page
from playhead.stream.in_flight import Background
from playhead.stream.options import StreamOptions
from playhead.stream.reader import RangeStream, open_stream
from playhead.stream.ring_writer import RING_BUDGET
from playhead.stream.source import Demand
from playhead.testing.pages import EndStyle, ScriptedPages

DATA = random.Random(7).randbytes(150_000)
STEPS = 25
ENDS: list[EndStyle] = ["empty_blob", "empty_list", "done", "416"]


@dataclass(slots=True, kw_only=True)
class Server:
    """A server that is late, that fails now and then once it has delivered, and that may know no ranges."""

    pages: ScriptedPages
    size_bytes: int | None
    """The announced size."""
    options: StreamOptions
    dice: random.Random
    slowest_seconds: float
    failures: int

    @classmethod
    def drawn(cls, dice: random.Random) -> Server:
        ring_bytes = 1 << dice.choice([3, 10, 12, 13, 14, 16, 17, 18])
        borders = [0, 1, 5, 6, 8191, 8192, 8193, 24_576, 3 * ring_bytes // 4, ring_bytes - 1, ring_bytes + 1]
        size = min(dice.choice([*borders, *(dice.randrange(len(DATA)) for _ in borders)]), 400 * ring_bytes)
        slowest_seconds = dice.choice([0.0, 0.1, 1.0])
        page_bytes = dice.randrange(size // 50 + 1, size // 2 + 1000)
        mode = dice.choice(["honest", "honest", "capped", "own size", "ignores", "until end", "inclusive"])
        pages = ScriptedPages(
            DATA[:size],
            cap_bytes=page_bytes if mode == "capped" else None,
            own_page_bytes=page_bytes if mode == "own size" else None,
            ignore_range=mode == "ignores",
            ignore_range_until_end=mode == "until end",
            overlap_bytes=int(mode == "inclusive"),
            blobs_a_page=dice.choice([1, 1, 3]),
            plain=dice.random() < 0.3,
            serial=dice.random() < 0.1,
            end=dice.choice(ENDS),
            done_with_data=mode == "honest" and dice.random() < 0.3,
            delay=lambda *_: slowest_seconds * dice.random(),
        )
        options = StreamOptions(
            capacity_bytes=ring_bytes,
            profile=dice.choice(["play", "save"]),
            page_bytes=dice.choice([4096, 100_000]),
            in_flight=dice.choice([None, None, 1, 2]),
        )
        return cls(
            pages=pages,
            size_bytes=dice.choice([None, size, size, size + dice.randrange(1, 5000)]),
            options=options,
            dice=dice,
            slowest_seconds=slowest_seconds,
            failures=dice.choice([0, 0, 2, 5]),
        )

    async def __call__(self, start: int, end: int) -> Page:
        may_fail = self.failures > 0 and any(not record.cancelled for record in self.pages.reads[:-1])
        if may_fail and self.dice.random() < 0.2:
            self.failures -= 1
            await trio.sleep(self.slowest_seconds)
            raise self.dice.choice([ConnectionLostError("lost"), ServerError("internal", code=-32603)])
        page = await self.pages(start, end)
        if self.failures and not self.pages.plain and page.n_bytes > 9999 and self.dice.random() < 0.05:
            self.failures = 0  # the same page must not be damaged twice
            text = page.blobs[0]
            assert isinstance(text, str)
            return Page(blobs=(text[:-4] + "!" + text[-3:], *page.blobs[1:]))
        return page


@dataclass(slots=True, kw_only=True)
class Reader:
    """Reads a stream, and compares."""

    stream: RangeStream
    server: Server
    at: int = 0

    async def read(self, max_bytes: int | None = None) -> bytes:
        chunk = await self.stream.receive_some(max_bytes)
        assert self.stream.position == self.at + len(chunk)
        assert chunk == self.server.pages.data[self.at :][: len(chunk)]
        assert chunk or self.at >= len(self.server.pages.data), f"ended at {self.at}"
        self.at += len(chunk)
        return chunk

    async def seek(self, offset: int) -> None:
        self.at = offset
        await self.stream.seek(offset)
        assert self.stream.position == offset

    async def step(self) -> None:
        dice, ring_bytes = self.server.dice, self.stream.statistics().capacity_bytes
        match dice.choice(
            ["read", "read", "read on", "to a request", "cancel", "sleep", "pause", "seek", "seek"]
        ):
            case "read":
                await self.read(dice.choice([None, 1, 1000, 8192]))
            case "read on":
                stop = self.at + dice.randrange(2 * ring_bytes)
                while self.at < stop and await self.read():
                    pass
            case "to a request":  # the ring was full, and has room for a page
                while not self.stream.statistics().in_flight and await self.read(1000):
                    pass
                await self.seek(dice.randint(self.stream.buffered_range[0], self.at))
                await trio.sleep(2 * self.server.slowest_seconds)
            case "cancel":
                with trio.move_on_after(self.server.slowest_seconds * dice.random()):
                    await self.read()
            case "sleep":
                await trio.sleep(self.server.slowest_seconds * dice.choice([0, 0.3, 1, 9]))
            case "pause":
                self.stream.set_demand(Demand.PAUSED)
                await trio.sleep(dice.choice([0, 0.1, 70]))
                self.stream.set_demand(Demand.WAITING)
            case "seek":
                size, (low, high) = len(self.server.pages.data), self.stream.buffered_range
                inside = [low, high, self.at, dice.randint(low, high), dice.randint(low, self.at)]
                outside = [low - 1, high + 1, 0, size - 1, size, size + 1, size + 9999, dice.randint(0, size)]
                await self.seek(max(0, dice.choice(inside if dice.random() < 0.6 else outside)))


async def walked(server: Server) -> None:
    data, ring_bytes = server.pages.data, server.options.ring_bytes()
    smallest = min(ring_bytes, server.pages.cap_bytes or 4096, server.pages.own_page_bytes or 4096)
    patience = 120 + 20 * server.slowest_seconds * (1 + (len(data) + 4 * ring_bytes) / smallest)
    # Lengths alone cannot always tell a range that was ignored from one that was not.
    ignores = server.pages.ignore_range or server.pages.ignore_range_until_end
    with suppress(*[RangeNotHonouredError] if ignores else []):
        async with open_stream(server, options=server.options, size_bytes=server.size_bytes) as stream:
            reader = Reader(stream=stream, server=server)
            await reader.read(1)  # without the first byte, answers are judged by their lengths
            for _ in range(STEPS):
                with trio.fail_after(patience):
                    await reader.step()
            await stream.seek(reader.at // 2)
            with trio.fail_after(patience):
                assert await stream.read_all() == data[reader.at // 2 :]
            if reader.at // 2 <= len(data):
                assert stream.statistics().end_bytes == len(data)
    assert server.pages.in_flight == 0


def walk(seed: int) -> None:
    """Walk over one stream or two, which share the background reads of the loop."""

    async def main() -> None:
        dice = random.Random(seed)
        background, taken_bytes = Background.of_this_loop(), RING_BUDGET.taken_bytes
        async with trio.open_nursery() as nursery:
            for _ in range(dice.choice([1, 1, 2])):
                nursery.start_soon(walked, Server.drawn(random.Random(dice.random())))
        assert RING_BUDGET.taken_bytes == taken_bytes
        left = [background.streams, background.is_short, background._reads, background._waiting]
        assert not any(left), left

    trio.run(main, clock=MockClock(autojump_threshold=0))


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_a_walk_over_a_stream_reads_what_is_there_and_never_hangs(seed: int) -> None:
    walk(seed)


@pytest.mark.slow("walks over a thousand streams")
@pytest.mark.timeout(300)
@settings(max_examples=1000)
@given(st.integers(0, 2**32))
def test_many_walks_over_a_stream_read_what_is_there_and_never_hang(seed: int) -> None:
    walk(seed)
