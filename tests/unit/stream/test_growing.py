"""A stream of a resource that grows: exact bytes, few requests, its end, and what the server dropped."""

from __future__ import annotations

import random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from playhead.cache import EARLIEST_META
from playhead.errors import ResourceChangedError, ServerError, StreamBrokenError
from playhead.limits import KIB
from playhead.stream.answer import Page
from playhead.stream.options import StreamEvent, StreamOptions, StreamSkipped
from playhead.stream.reader import open_stream
from playhead.stream.source import Demand
from tests.servers.growth import Growth, Schedule, steady

DATA = random.Random(5).randbytes(400_000)
SPEECH_RATE = 16_000
SAVE = StreamOptions(profile="save")
PLAY = StreamOptions(profile="play")


async def read_all(growth: Growth, options: StreamOptions = SAVE, *, is_live: bool | None = True) -> bytes:
    with trio.fail_after(10_000):
        async with growth.open(options, is_live=is_live) as stream:
            whole = await stream.read_all()
        assert stream.statistics().is_live
        return whole


@pytest.mark.parametrize("times", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("notifies", [False, True])
async def test_growth_at_any_rate_is_read_exactly_with_few_requests_and_an_early_end(
    autojump_clock: MockClock, times: float, notifies: bool
) -> None:
    seconds = 5.0
    growth = Growth(
        data=DATA[: round(seconds * times * SPEECH_RATE)],
        schedule=steady(times * SPEECH_RATE, seconds),
        notifies=notifies,
    )
    assert await read_all(growth) == growth.data
    assert growth.now - growth.over_at <= 1.2
    in_vain = sum(not n_bytes for *_, n_bytes in growth.reads)
    assert in_vain <= 1 + growth.now, "at most one request per second beyond one per page of growth"
    assert growth.subscriptions == 0


async def test_notifications_of_what_is_known_cost_about_one_request_per_second(
    autojump_clock: MockClock,
) -> None:
    growth = Growth(data=DATA[:160_000], schedule=steady(8000, 20, step_seconds=1.0), notifies=True, echoes=9)
    assert await read_all(growth) == growth.data
    in_vain = sum(not n_bytes for *_, n_bytes in growth.reads)
    assert in_vain <= 5 + 20, "a notification doubles the wait if it tells nothing"


@pytest.mark.parametrize("is_live", [True, None])
async def test_a_source_without_a_byte_yet_is_not_at_its_end(
    autojump_clock: MockClock, is_live: bool | None
) -> None:
    growth = Growth(data=DATA[:5000], schedule=[(3.0, 2000), (4.0, 5000)])
    assert await read_all(growth, is_live=is_live) == growth.data


async def test_the_size_is_unknown_while_it_grows_and_known_at_the_end(autojump_clock: MockClock) -> None:
    growth = Growth(data=DATA[:9000], schedule=[(0.0, 4000), (2.0, 9000)])
    async with growth.open(SAVE) as stream:
        await stream.receive_some()
        assert (stream.size_bytes, stream.newest_offset) == (None, 4000)
        await stream.read_all()
        assert (stream.size_bytes, stream.newest_offset) == (9000, None)
        assert stream.statistics().ended_by == "size"


async def test_an_end_that_is_not_announced_is_found_by_ten_seconds_without_growth(
    autojump_clock: MockClock,
) -> None:
    growth = Growth(data=DATA[:50_000], schedule=steady(10_000, 5), announces=False)
    async with growth.open(SAVE) as stream:
        assert await stream.read_all() == growth.data
        assert stream.statistics().ended_by == "no-growth"
    assert 15.0 <= growth.now < 17.5


@pytest.mark.parametrize("notifies", [False, True])
async def test_a_stream_that_is_cancelled_is_unsubscribed(autojump_clock: MockClock, notifies: bool) -> None:
    growth = Growth(data=DATA, schedule=steady(1000, 100), notifies=notifies)
    with trio.move_on_after(5):
        await read_all(growth)
    assert growth.subscriptions == 0


async def test_a_subscription_costs_one_read_every_five_seconds_while_nothing_happens(
    autojump_clock: MockClock,
) -> None:
    growth = Growth(data=DATA[:8000], schedule=[(0.0, 4000), (60.0, 8000)], notifies=True)
    assert await read_all(growth, StreamOptions(profile="save", patience_seconds=100)) == growth.data
    assert len(growth.reads) <= 4 + 60 / 5


async def test_the_next_poll_waits_until_half_of_the_audio_in_hand_is_played(
    autojump_clock: MockClock,
) -> None:
    growth = Growth(data=DATA[:80_000], schedule=[(0.0, 60_000), (8.0, 80_000)])
    async with growth.open(PLAY) as stream:
        stream.set_in_hand(lambda: 8.0 - growth.now)
        assert len(await stream.receive_some()) > 0
        await trio.sleep(3.0)
        n_reads = len(growth.reads)
        await trio.sleep(0.9)
        assert len(growth.reads) == n_reads
        await trio.sleep(0.3)
        assert len(growth.reads) == n_reads + 1


async def test_a_seek_beyond_the_present_end_goes_there(autojump_clock: MockClock) -> None:
    growth = Growth(data=DATA[:200_000], schedule=[(0.0, 150_000), (5.0, 200_000)])
    async with growth.open(StreamOptions(profile="play", capacity_bytes=64 * KIB)) as stream:
        await stream.receive_some()
        assert not stream.can_seek(190_000)
        assert stream.can_seek(150_000)
        await stream.seek(190_000)
        assert stream.position == 150_000
        assert await stream.read_all() == growth.data[150_000:]


async def test_a_player_goes_on_at_the_earliest_part_that_exists(autojump_clock: MockClock) -> None:
    events: list[StreamEvent] = []
    growth = Growth(
        data=DATA[:300_000],
        schedule=[(0.0, 100_000), (30.0, 300_000)],
        earliest_at=[(30.0, 250_001)],
    )
    options = StreamOptions(profile="play", capacity_bytes=64 * KIB, on_event=events.append)
    async with growth.open(options) as stream:
        first = await stream.receive_some(1)
        stream.set_demand(Demand.PAUSED)
        await trio.sleep(40.0)
        stream.set_demand(Demand.WAITING)
        got = first + await stream.read_all()
        statistics = stream.statistics()
    (skipped,) = (event for event in events if isinstance(event, StreamSkipped))
    resumed_at = skipped.offset + skipped.skipped_bytes
    assert got == growth.data[: skipped.offset] + growth.data[resumed_at:]
    assert 0 <= resumed_at - 250_001 < 288
    assert skipped.skipped_bytes % 288 == 0
    assert statistics.skipped_bytes == skipped.skipped_bytes


async def test_a_server_that_drops_as_fast_as_it_grows_is_heard_again(autojump_clock: MockClock) -> None:
    """The earliest byte of an answer is dropped, too, before the next read arrives."""
    schedule = steady(20_000, 15, step_seconds=0.02)
    earliest_at = [(at, max(0, size - 30_000)) for at, size in schedule]
    growth = Growth(data=DATA[:300_000], schedule=schedule, rtt_seconds=0.4, earliest_at=earliest_at)
    async with growth.open(StreamOptions(profile="play", capacity_bytes=32 * KIB)) as stream:
        await stream.receive_some(1)
        stream.set_demand(Demand.PAUSED)
        await trio.sleep(8.0)
        stream.set_demand(Demand.WAITING)
        while stream.position < 100_000:
            assert await stream.receive_some()
        assert growth.now < 8.0 + 4.0


@pytest.mark.parametrize("is_live", [True, False])
async def test_a_server_that_drops_every_byte_before_it_is_read_breaks_the_stream(
    autojump_clock: MockClock, is_live: bool
) -> None:
    n_reads = 0

    async def read(start: int, end: int) -> Page:
        nonlocal n_reads
        n_reads += 1
        assert n_reads < 100
        await trio.sleep(0.02)
        raise ServerError("dropped", code=-32602, data={EARLIEST_META: start + 1})

    with pytest.raises(StreamBrokenError, match="dropped the others again and again"):
        async with open_stream(read, options=StreamOptions(profile="play", live=is_live)) as stream:
            await stream.read_all()
    assert n_reads < 20


async def test_an_earliest_byte_before_what_has_arrived_is_no_reason_to_go_back(
    autojump_clock: MockClock,
) -> None:
    """The late first copy of a page fails because the page is dropped; the second one has arrived."""
    pages: set[int] = set()

    async def read(start: int, end: int) -> Page:
        is_copy = start in pages
        pages.add(start)
        await trio.sleep(3.0 if start == 8192 else 0.02)
        if start == 8192 and not is_copy:
            raise ServerError("dropped", code=-32602, data={EARLIEST_META: 9000})
        return Page(blobs=(DATA[start:end],) if start < len(DATA) else ())

    async with open_stream(read, options=StreamOptions(profile="play", capacity_bytes=128 * KIB)) as stream:
        got = await stream.receive_some(1)
        await trio.sleep(20.0)
        assert got + await stream.read_all() == DATA


async def test_a_file_that_would_lack_dropped_bytes_is_an_error(autojump_clock: MockClock) -> None:
    growth = Growth(data=DATA, schedule=[(0.0, 100_000), (9.0, 300_000)], earliest_at=[(0.0, 5000)])
    async with growth.open(SAVE) as stream:
        with pytest.raises(StreamBrokenError, match="expected the bytes from 0 on, got those from 5000 on"):
            await stream.read_all()


async def test_an_impossible_earliest_byte_is_an_error_of_the_server(autojump_clock: MockClock) -> None:
    growth = Growth(data=DATA, schedule=[(0.0, 1000), (9.0, 2000)], earliest_at=[(0.0, 10**30)])
    with pytest.raises(ServerError, match="dropped"):
        await read_all(growth, PLAY)


async def test_a_source_that_fails_is_an_error_after_its_last_byte(autojump_clock: MockClock) -> None:
    growth = Growth(data=DATA[:20_000], schedule=steady(10_000, 2), fails=True)
    got = bytearray()
    async with growth.open(SAVE) as stream:
        with pytest.raises(ServerError, match="its source failed"):  # noqa: PT012
            async for chunk in stream:
                got += chunk
    assert got == growth.data
    assert growth.now < 5.0


async def test_a_page_with_a_smaller_size_than_its_offset_is_a_changed_resource(
    autojump_clock: MockClock,
) -> None:
    growth = Growth(data=DATA[:60_000], schedule=[(0.0, 60_000), (5.0, 60_000)])

    async def read(start: int, end: int) -> Page:
        if start >= 60_000:
            return Page(blobs=(), size_bytes=100, is_live=True)
        return await growth.read(start, end)

    async with open_stream(read, options=StreamOptions(live=True)) as stream:
        with pytest.raises(ResourceChangedError, match="declares a size of 100 bytes"):
            await stream.read_all()


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    pauses = st.floats(0.0, 8.0).map(lambda it: round(it, 3))
    steps = draw(st.lists(st.tuples(pauses, st.integers(0, 40_000)), min_size=1, max_size=10))
    at, size, schedule = 0.0, 0, []
    for pause, more in steps:
        at, size = at + pause, min(len(DATA), size + more)
        schedule.append((at, size))
    return schedule


@settings(max_examples=60, deadline=None)
@given(
    schedules(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([700, 9000, 10**9]),
    st.sampled_from([SAVE, PLAY, StreamOptions(profile="play", capacity_bytes=8192)]),
    st.lists(st.floats(0.0, 5.0), max_size=5),
    st.integers(1, 50_000),
)
def test_any_schedule_chunking_and_pauses_give_the_same_bytes(
    schedule: Schedule,
    announces: bool,
    notifies: bool,
    page_bytes: int,
    options: StreamOptions,
    pauses: list[float],
    chunk_bytes: int,
) -> None:
    growth = Growth(
        data=DATA[: schedule[-1][1]],
        schedule=schedule,
        announces=announces,
        notifies=notifies,
        page_bytes=page_bytes,
    )

    async def scene() -> None:
        got, left = bytearray(), list(pauses)
        with trio.fail_after(10_000):
            async with growth.open(options) as stream:
                while chunk := await stream.receive_some(chunk_bytes):
                    got += chunk
                    if left:
                        stream.set_demand(Demand.PAUSED)
                        await trio.sleep(left.pop())
                        stream.set_demand(Demand.WAITING)
        assert got == growth.data
        assert growth.subscriptions == 0

    trio.run(scene, clock=MockClock(autojump_threshold=0))
