"""The moody server does what its script says: a test against a server that does not lie proves nothing."""

from __future__ import annotations

import trio
import trio.testing

from tests.servers.moods import (
    Blobs,
    Change,
    FalseEnd,
    Mood,
    MoodyResource,
    Stall,
    Whole,
    truth,
)

SIZE = 100_000
DATA = truth(Mood(size_bytes=SIZE))


async def blobs(resource: MoodyResource, start: int, end: int) -> tuple[bytes, ...]:
    answer = await resource.answer(start, end)
    assert isinstance(answer, Blobs), answer
    return answer.blobs


async def test_a_hole_is_missing_for_ever_and_cuts_the_reads_before_it() -> None:
    lie = FalseEnd(at=500, form="empty-list", times=None, hole_bytes=100)
    resource = MoodyResource(Mood(size_bytes=SIZE, false_ends=(lie,)))
    for _ in range(5):
        assert await blobs(resource, 400, 700) == (DATA[400:500],)
        assert await blobs(resource, 500, 700) == ()
        assert await blobs(resource, 600, 700) == (DATA[600:700],)


async def test_a_whole_file_a_cap_an_own_page_and_an_inclusive_end_replace_the_range() -> None:
    assert await blobs(MoodyResource(Mood(size_bytes=SIZE, whole=Whole(at=9))), 0, 10) == (DATA,)
    assert await blobs(MoodyResource(Mood(size_bytes=SIZE, cap_bytes=7)), 1, 99) == (DATA[1:8],)
    assert await blobs(MoodyResource(Mood(size_bytes=SIZE, own_page_bytes=50)), 1, 9) == (DATA[1:51],)
    assert await blobs(MoodyResource(Mood(size_bytes=SIZE, extra_bytes=1)), 1, 9) == (DATA[1:10],)


async def test_a_resource_shrinks_and_grows_after_the_reads_that_the_script_says() -> None:
    for size in (50, SIZE + 500):
        resource = MoodyResource(Mood(size_bytes=SIZE, change=Change(size_bytes=size, after_reads=1)))
        assert await blobs(resource, 0, 100) == (DATA[:100],)
        (after,) = await blobs(resource, 0, 2 * SIZE)
        assert len(after) == size
        assert after[:50] == DATA[:50]


async def test_times_are_those_of_the_clock(autojump_clock: trio.testing.MockClock) -> None:
    stall = Stall(at_seconds=5.0, seconds=20.0)
    resource = MoodyResource(Mood(size_bytes=SIZE, delay_seconds=3.0, stall=stall, serial=True))
    answered: list[float] = []

    async def one() -> None:
        await resource.answer(0, 10)
        answered.append(trio.current_time())

    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(one)
    assert [round(time - started, 3) for time in answered] == [3.0, 25.0, 28.0]
