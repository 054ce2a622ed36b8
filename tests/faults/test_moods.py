"""The moody server does what its script says: a test against a server that does not lie proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from playhead.client import connect
from playhead.errors import ConnectionLostError, HttpStatusError, RangePastEndError, ServerError
from tests.servers.launch import http_process
from tests.servers.moods import (
    DONE,
    Blobs,
    Change,
    FalseEnd,
    Fault,
    Mood,
    MoodyPages,
    MoodyResource,
    Outage,
    Stall,
    Whole,
    truth,
)
from tests.servers.moody_server import moody_command, read_log

SIZE = 100_000
DATA = truth(Mood(size_bytes=SIZE))


async def blobs(resource: MoodyResource, start: int, end: int) -> tuple[bytes, ...]:
    answer = await resource.answer(start, end)
    assert isinstance(answer, Blobs), answer
    return answer.blobs


async def test_a_good_mood_serves_the_bytes_and_then_the_end() -> None:
    resource = MoodyResource(Mood(size_bytes=SIZE))
    assert await blobs(resource, 10, 60) == (DATA[10:60],)
    assert await blobs(resource, SIZE - 5, SIZE + 50) == (DATA[-5:],)
    assert await blobs(resource, SIZE, SIZE + 1) == (b"",)
    assert [(entry.start, entry.kind, entry.n_bytes) for entry in resource.log] == [
        (10, "bytes", 50),
        (SIZE - 5, "bytes", 5),
        (SIZE, "end", 0),
    ]


async def test_a_false_end_is_told_as_often_as_the_script_says() -> None:
    lie = FalseEnd(at=500, form="done", times=2)
    resource = MoodyResource(Mood(size_bytes=SIZE, false_ends=(lie,)))
    assert await blobs(resource, 0, 500) == (DATA[:500],)
    assert await blobs(resource, 400, 600) == (DONE,)
    assert await blobs(resource, 800, 900) == (DONE,)
    assert await blobs(resource, 400, 600) == (DATA[400:600],)
    assert resource.lies == 2


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


@pytest.mark.parametrize(
    ("mood", "error"),
    [
        (Mood(fault=Fault(kind="-32603", every=1)), ServerError),
        (Mood(fault=Fault(kind="503", every=1)), HttpStatusError),
        (Mood(false_ends=(FalseEnd(at=0, form="416"),)), RangePastEndError),
        (Mood(cut_share=0.9), ConnectionLostError),
        (Mood(outage=Outage(from_offset=5)), ConnectionLostError),
    ],
)
async def test_what_is_no_page_is_the_error_of_a_session(mood: Mood, error: type[Exception]) -> None:
    with pytest.raises(error):
        await MoodyPages(MoodyResource(mood))(0, 10)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_process_answers_a_session_and_logs_its_reads(transport: str, tmp_path: Path) -> None:
    moods = {
        "good": Mood(size_bytes=SIZE, announced_bytes=SIZE),
        "busy": Mood(fault=Fault(kind="429", every=1, retry_after_seconds=2)),
        "cut": Mood(size_bytes=SIZE, cut_share=0.9),
    }
    log = tmp_path / "log"

    async def scene(target: str | list[str]) -> None:
        async with connect(target) as session:
            (link,) = (await session.call_tool("link", {"name": "good"})).links
            assert link.size_bytes == SIZE
            async with session.open(link) as stream:
                assert await stream.read_all() == DATA
            uri = "moods://pieces/{}?start=0&end=10000"
            with pytest.raises((HttpStatusError, ServerError)) as caught:
                await session.read_resource(uri.format("busy"))
            if isinstance(caught.value, HttpStatusError):
                assert (caught.value.status, caught.value.retry_after_seconds) == (429, 2.0)
            with pytest.raises(ServerError, match="not found"):
                await session.read_resource(uri.format("nothing"))
            with pytest.raises(ConnectionLostError):
                await session.read_resource(uri.format("cut"))

    with trio.fail_after(60):
        command = moody_command(transport, moods, log)
        if transport == "stdio":
            await scene(command)
        else:
            async with http_process(command) as url:
                await scene(url)
    reads = read_log(log)
    assert [reads[name][0].kind for name in ("good", "busy", "cut")] == ["bytes", "error", "cut"]
    assert max(entry.start + entry.n_bytes for entry in reads["good"]) == SIZE
