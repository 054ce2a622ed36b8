"""Streams that start at once, in simulated time: each gets its first audio before others fill their rings."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing

from playhead.limits import KIB, MIB
from playhead.stream.answer import Page
from playhead.stream.in_flight import BACKGROUND_BYTES, READS_AT_ONCE, SLOW_SECONDS, Background
from playhead.stream.options import StreamOptions
from playhead.stream.reader import RangeStream, open_stream
from playhead.stream.source import Demand

BYTES_PER_SECOND = 40_000.0
"""320 kbit/s."""
FIRST_BYTES = int(0.5 * BYTES_PER_SECOND)
SONG_BYTES = 4 * MIB
OPTIONS = StreamOptions(capacity_bytes=512 * KIB)
"""500 streams fit into the budget of a process."""


class SharedLink:
    """One link for all streams: answers leave it in the order of the reads, at its rate.

    `read_seconds` is what each read takes of it, however small.
    """

    def __init__(self, bytes_per_second: float, *, read_seconds: float = 0.0) -> None:
        self._bytes_per_second = bytes_per_second
        self._read_seconds = read_seconds
        self._free_at = 0.0
        self.waiting = self.most_waiting = 0

    async def read(self, start: int, end: int) -> Page:
        end = min(end, SONG_BYTES)
        if end <= start:
            return Page(blobs=())
        seconds = self._read_seconds + (end - start) / self._bytes_per_second
        self._free_at = max(self._free_at, trio.current_time()) + seconds
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        try:
            await trio.sleep_until(self._free_at)
        finally:
            self.waiting -= 1
        return Page(blobs=(bytes(end - start),))


async def play(link: SharedLink, *, seconds: float, began: list[float], late: list[float]) -> None:
    """Play in real time for `seconds` once half a second is there, as a player does."""
    opened_at = trio.current_time()
    async with open_stream(link.read, size_bytes=SONG_BYTES, options=OPTIONS) as stream:
        await wait_bytes(stream, FIRST_BYTES)
        while not stream.can_play(stream.buffered_bytes, BYTES_PER_SECOND):  # noqa: ASYNC110 - as a decoder
            await trio.sleep(0.02)
        stream.set_demand(Demand.FED)
        began.append(trio.current_time() - opened_at)
        due = trio.current_time()
        for _ in range(int(2 * seconds)):
            await wait_bytes(stream, FIRST_BYTES)
            if (lateness := trio.current_time() - due) > 0.001:
                late.append(lateness)
            taken = 0
            while taken < FIRST_BYTES:
                taken += len(await stream.receive_some(FIRST_BYTES - taken))
            due = max(due, trio.current_time()) + 0.5
            await trio.sleep_until(due)


async def wait_bytes(stream: RangeStream, n_bytes: int) -> None:
    while stream.buffered_bytes < n_bytes:  # noqa: ASYNC110 - a reader has no event for so many bytes
        await trio.sleep(0.02)


async def all_play(count: int, link: SharedLink, *, seconds: float) -> tuple[list[float], list[float]]:
    """Start `count` plays at once. Returns when each began, and by how much audio was late."""
    began: list[float] = []
    late: list[float] = []
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(partial(play, link, seconds=seconds, began=began, late=late))
    return began, late


async def test_of_500_plays_that_start_at_once_none_starves(autojump_clock: trio.testing.MockClock) -> None:
    began, late = await all_play(500, SharedLink(3 * 500 * BYTES_PER_SECOND), seconds=3)
    assert len(began) == 500
    assert max(began) < 1.0
    assert sum(began) / 500 < 0.5
    assert late == []


@pytest.mark.slow("simulates 500 plays")
async def test_500_plays_whose_requests_cost_more_than_their_bytes_play_without_a_gap(
    autojump_clock: trio.testing.MockClock,
) -> None:
    link = SharedLink(100 * MIB, read_seconds=0.0005)
    began, late = await all_play(500, link, seconds=4)
    assert max(began) < 1.5
    assert late == []
    assert link.most_waiting <= READS_AT_ONCE


@pytest.mark.slow("simulates 500 plays")
async def test_plays_that_wait_for_each_other_begin_later_and_then_play_without_a_gap(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The first pages alone take a second of the link: whoever starts with one runs dry before the next."""
    began, late = await all_play(500, SharedLink(100 * MIB, read_seconds=0.002), seconds=4)
    assert max(began) < 5
    assert len(late) < 150, "most of 500, if they start without regard to each other"


async def test_a_new_stream_starts_at_once_while_others_fill_their_rings(
    autojump_clock: trio.testing.MockClock,
) -> None:
    link = SharedLink(2 * MIB)
    others: list[float] = []
    began: list[float] = []
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(partial(play, link, seconds=5, began=others, late=[]))
        await trio.sleep(2)
        assert len(others) == 20
        await play(link, seconds=1, began=began, late=[])
    # The background takes half a second of this link, and the others' first pages some more; with all that 20
    # streams like to have in flight it would be two seconds.
    assert began[0] < 1.0


async def test_a_single_stream_has_no_background() -> None:
    background = Background()
    background.join("single", partial(background.add, "page", now=0.0, n_bytes=10 * BACKGROUND_BYTES))
    assert background.has_room("single", now=0.0, wake=lambda: None)
    assert background.until == math.inf, "its reads are not counted"
    background.join("other", lambda: None)
    assert not background.has_room("single", now=0.0, wake=lambda: None)


def of_streams(count: int) -> Background:
    background = Background()
    for number in range(count):
        background.join(f"stream {number}", lambda: None)
    return background


def fill(background: Background, *, reads: int, now: float = 0.0) -> None:
    for number in range(reads):
        background.add(number, now=now, n_bytes=1, fills_ring=False)


async def test_of_many_streams_the_one_that_runs_dry_first_reads_next() -> None:
    background, woken = of_streams(4), list[str]()
    fill(background, reads=READS_AT_ONCE)
    for stream, dry_at in (("late", 3.0), ("first", 1.0), ("second", 2.0)):
        wake = partial(woken.append, stream)
        assert not background.has_room(stream, now=0.5, wake=wake, dry_at=dry_at)
    background.remove(0)
    assert woken == ["first"]
    assert not background.has_room("late", now=0.5, wake=partial(woken.append, "late"), dry_at=3.0)
    assert woken == ["first", "second"], "it gives way to one that runs dry sooner"
    assert background.has_room("first", now=0.5, wake=lambda: None, dry_at=1.0)
    background.add("read", now=0.5, n_bytes=1, fills_ring=False)
    assert not background.has_room("second", now=0.5, wake=partial(woken.append, "second"), dry_at=2.0)
    background.withdraw("second")
    background.remove(1)
    assert woken == ["first", "second", "late"]


async def test_a_stream_that_is_woken_sends_even_if_it_now_runs_dry_later_than_others() -> None:
    """Their readers take nothing yet: the time at which they run dry moves with the clock."""
    background, woken = of_streams(2), list[str]()
    fill(background, reads=READS_AT_ONCE)
    for stream in ("one", "other"):
        assert not background.has_room(stream, now=0.0, wake=partial(woken.append, stream), dry_at=1.0)
    background.remove(0)
    assert woken == ["one"]
    assert background.has_room("one", now=0.1, wake=lambda: None, dry_at=1.1)
    background.add("read", now=0.1, n_bytes=1, fills_ring=False)
    background.remove(1)
    assert woken == ["one", "other"]
    assert background.has_room("other", now=0.2, wake=lambda: None, dry_at=1.2)


async def test_a_woken_stream_that_has_enough_now_gives_way_to_one_that_runs_dry() -> None:
    background, woken = of_streams(2), list[str]()
    fill(background, reads=READS_AT_ONCE)
    for stream in ("one", "other"):
        assert not background.has_room(stream, now=0.0, wake=partial(woken.append, stream), dry_at=1.0)
    background.remove(0)
    assert not background.has_room("one", now=0.0, wake=partial(woken.append, "one fills"))
    assert woken == ["one", "other"]


async def test_no_ring_is_filled_while_a_stream_waits_that_runs_dry() -> None:
    background, woken = of_streams(2), list[str]()
    fill(background, reads=READS_AT_ONCE)
    assert not background.has_room("low", now=0.0, wake=partial(woken.append, "low"), dry_at=1.0)
    assert not background.has_room("fills", now=0.0, wake=partial(woken.append, "fills"))
    background.remove(0)
    background.remove(1)
    assert woken == ["low", "fills"]


async def test_reads_at_a_slow_server_take_no_turn_from_others() -> None:
    background = of_streams(2)
    fill(background, reads=READS_AT_ONCE)
    assert not background.has_room("low", now=SLOW_SECONDS - 0.1, wake=lambda: None, dry_at=1.0)
    assert background.until == SLOW_SECONDS
    assert background.has_room("low", now=SLOW_SECONDS, wake=lambda: None, dry_at=1.0)


async def test_a_single_stream_has_as_many_reads_as_it_wants() -> None:
    background = of_streams(1)
    fill(background, reads=READS_AT_ONCE)
    assert background.has_room("single", now=0.0, wake=lambda: None, dry_at=0.0)


async def test_streams_that_wait_are_woken_in_turn_and_a_slow_server_does_not_stop_them() -> None:
    background = Background()
    woken: list[str] = []
    for stream in ("one", "other", "gone"):
        background.join(stream, lambda: None)
    for read in ("first", "second"):
        background.add(read, now=10.0, n_bytes=BACKGROUND_BYTES)
    for stream in ("one", "other", "gone"):
        assert not background.has_room(stream, now=11.0, wake=partial(woken.append, stream))
    background.remove("first")
    assert woken == [], "still full"
    background.remove("second")
    assert woken == ["one"]
    background.add("third", now=11.0, n_bytes=BACKGROUND_BYTES)
    background.leave("gone")
    assert not background.has_room("one", now=11.0, wake=partial(woken.append, "one again"))
    assert background.until == 11.0 + SLOW_SECONDS
    background.remove("third")
    background.remove("third")
    assert woken == ["one", "other"], "those that waited longer come first"
    background.pass_turn()  # it has nothing to send
    assert woken == ["one", "other", "one again"]
    background.add("slow", now=20.0, n_bytes=BACKGROUND_BYTES)
    assert not background.has_room("one", now=21.0, wake=lambda: None)
    assert background.has_room("one", now=20.0 + SLOW_SECONDS, wake=lambda: None)


@pytest.mark.parametrize("in_nursery", [False, True], ids=["its block", "a nursery in its block"])
async def test_what_a_cancelled_stream_held_is_freed_at_once_with_its_reads(in_nursery: bool) -> None:
    async def hang(start: int, end: int) -> Page:
        asked.set()
        await trio.sleep_forever()
        raise AssertionError

    async def wait(scope: trio.CancelScope) -> None:
        await asked.wait()
        scope.cancel()
        await trio.sleep_forever()

    @asynccontextmanager
    async def opened() -> AsyncIterator[RangeStream]:
        async with AsyncExitStack() as stack:  # as a session does
            yield await stack.enter_async_context(open_stream(hang))

    asked = trio.Event()
    gc.collect()
    gc.disable()
    try:
        with trio.CancelScope() as scope:
            async with opened() as stream:
                left = weakref.ref(stream)
                del stream
                if in_nursery:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(wait, scope)
                await wait(scope)
        assert scope.cancelled_caught
        assert left() is None
        assert Background.of_this_loop().until == math.inf
    finally:
        gc.enable()
