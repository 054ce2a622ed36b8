"""A stream gives a resource's bytes, each once, and says how it ended."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, get_args

import pytest
import trio
import trio.testing

from playhead.errors import Base64Error, BusyError, ClosedError, LimitError, ServerError, UsageError
from playhead.stream.answer import EndedBy, Page
from playhead.stream.options import StreamOptions, StreamStatistics
from playhead.stream.reader import RangeStream, open_stream
from playhead.testing.pages import EndStyle, ScriptedPages

DATA = random.Random(1).randbytes(700_001)


async def read(
    pages: ScriptedPages, *, options: StreamOptions | None = None, size_bytes: int | None = None
) -> tuple[bytes, StreamStatistics]:
    with trio.fail_after(1000):
        async with open_stream(pages, options=options or StreamOptions(), size_bytes=size_bytes) as stream:
            whole = await stream.read_all()
            assert await stream.receive_some() == b""
        return whole, stream.statistics()


@pytest.mark.parametrize("plain", [False, True])
async def test_the_bytes_come_whole_with_several_reads_in_flight(
    autojump_clock: trio.testing.MockClock, plain: bool
) -> None:
    pages = ScriptedPages(DATA, delay=0.1, plain=plain)
    whole, statistics = await read(pages)
    assert whole == DATA
    assert statistics.bytes == statistics.end_bytes == len(DATA)
    assert 4 <= statistics.in_flight_max == pages.in_flight_max <= 16
    assert statistics.requests == len(pages.reads) < 25
    assert statistics.mime_type == "application/octet-stream"
    assert statistics.first_byte_seconds == pytest.approx(0.1)
    assert statistics.rtt_seconds == pytest.approx(0.1)
    assert statistics.in_flight == 0


@pytest.mark.parametrize(
    ("end", "ended_by"), [("empty_blob", "empty"), ("empty_list", "empty"), ("done", "done"), ("416", "416")]
)
@pytest.mark.parametrize("size", [0, 1, 8192, 8193, 300_000])
async def test_each_kind_of_claim_ends_the_stream(
    autojump_clock: trio.testing.MockClock, end: EndStyle, ended_by: EndedBy, size: int
) -> None:
    whole, statistics = await read(ScriptedPages(DATA[:size], end=end, delay=0.1))
    assert whole == DATA[:size]
    assert statistics.ended_by == ended_by
    assert ended_by in get_args(EndedBy)


@pytest.mark.parametrize("cap_bytes", [1000, 8191, 65_536])
async def test_a_capped_page_is_a_hint_and_nothing_is_lost(
    autojump_clock: trio.testing.MockClock, cap_bytes: int
) -> None:
    whole, statistics = await read(ScriptedPages(DATA, cap_bytes=cap_bytes, delay=0.1))
    assert whole == DATA
    assert statistics.ended_by == "empty"
    assert statistics.pages >= len(DATA) // cap_bytes


@pytest.mark.parametrize("to_the_end", [False, True])
async def test_a_stream_whose_block_was_left_can_neither_be_read_nor_sought(to_the_end: bool) -> None:
    async with open_stream(ScriptedPages(DATA)) as stream:
        await stream.receive_some()
        if to_the_end:
            await stream.read_all()
    file = stream.file()
    uses: list[Callable[[], Awaitable[object]]] = [
        stream.receive_some,
        partial(stream.seek, 0),
        stream.read_all,
        partial(trio.to_thread.run_sync, stream.seek_from_thread, 0),
        partial(trio.to_thread.run_sync, file.read, 1),
    ]
    for use in uses:
        with trio.fail_after(5), pytest.raises(ClosedError, match="open it again"):
            await use()


async def test_a_read_range_that_raises_a_foreign_error_is_not_hidden_by_what_comes_of_it() -> None:
    async def buggy(start: int, end: int) -> Page:
        raise KeyError("a bug")

    async def read_alone() -> None:
        async with open_stream(buggy) as stream:
            await stream.read_all()

    async def read_in_a_nursery() -> None:
        async with open_stream(buggy) as stream, trio.open_nursery() as nursery:
            nursery.start_soon(stream.read_all)
            nursery.start_soon(trio.sleep_forever)

    for use in (read_alone, read_in_a_nursery):
        with pytest.raises(ExceptionGroup) as caught:
            await use()
        assert caught.group_contains(KeyError)


async def test_an_answer_that_arrives_with_the_closing_of_its_stream_is_dropped() -> None:
    sent, gate, pages = trio.Event(), trio.Event(), ScriptedPages(DATA)

    async def late(start: int, end: int) -> Page:
        page = await pages(start, end)
        if start:
            sent.set()
            with trio.CancelScope(shield=True):  # on its way already when the stream is closed
                await gate.wait()
        return page

    with trio.fail_after(5):
        async with open_stream(late) as stream:
            await stream.receive_some()
            await sent.wait()
            await stream.aclose()
            gate.set()


async def test_a_blocking_read_in_trios_own_thread_is_refused() -> None:
    async with open_stream(ScriptedPages(DATA)) as stream:
        for read_blocking in (partial(stream.readinto, bytearray(10)), partial(stream.file().read, 10)):
            with pytest.raises(UsageError, match=r"trio\.to_thread"):
                read_blocking()


@pytest.mark.parametrize("to_the_end", [False, True])
async def test_a_streams_ring_goes_with_the_stream_and_waits_for_no_collection(to_the_end: bool) -> None:
    gc.collect()
    gc.disable()
    try:
        async with open_stream(ScriptedPages(DATA)) as stream:
            await stream.receive_some()
            if to_the_end:
                await stream.read_all()
        driver = weakref.ref(stream._driver)
        del stream
        assert driver() is None
    finally:
        gc.enable()


async def test_an_error_that_is_kept_keeps_no_page() -> None:
    class Text(str):
        """One that can be watched."""

    pages: list[weakref.ref[Text]] = []

    async def read_range(start: int, end: int) -> Page:
        text = Text("AAA!" * 1000)
        pages.append(weakref.ref(text))
        return Page(blobs=(text,))

    async with open_stream(read_range) as stream:
        with pytest.raises(Base64Error) as caught:
            await stream.read_all()
    del stream
    error = caught.value.with_traceback(None)  # the caller's own frames
    del caught
    gc.collect()
    assert error.offset == 0
    assert [page() for page in pages] == [None] * len(pages)


async def test_errors_that_are_each_others_cause_break_the_stream_like_any_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    first, second = ServerError("the first", code=-32000), ServerError("the second", code=-32000)
    first.__cause__, second.__cause__ = second, first

    async def read_range(start: int, end: int) -> Page:
        raise first

    async with open_stream(read_range) as stream:
        with pytest.raises(ServerError, match="the first"):
            await stream.read_all()


@pytest.mark.parametrize(
    ("server", "size_bytes", "ended_by", "size_was_wrong"),
    [
        pytest.param({"blobs_a_page": 7}, None, "empty", False, id="several blobs of a page count together"),
        pytest.param(
            {"end": "done", "done_with_data": True}, None, "done", False, id="behind the last bytes"
        ),
        pytest.param({"end": "refuse"}, len(DATA), "size", False, id="a refusal past the known size"),
        pytest.param({"end": "refuse"}, None, "error", False, id="an error three times behind a short page"),
        pytest.param({"end": "refuse"}, 800_000, "error", True, id="an error below a size that is too large"),
        pytest.param({}, 0, "empty", False, id="an announced size of 0 says nothing"),
    ],
)
async def test_the_end_is_found_and_told(
    autojump_clock: trio.testing.MockClock,
    server: dict[str, Any],
    size_bytes: int | None,
    ended_by: EndedBy,
    size_was_wrong: bool,
) -> None:
    whole, statistics = await read(ScriptedPages(DATA, delay=0.1, **server), size_bytes=size_bytes)
    assert whole == DATA
    assert (statistics.ended_by, statistics.end_bytes) == (ended_by, len(DATA))
    assert statistics.size_was_wrong is size_was_wrong
    assert trio.current_time() < 10, "it does not wait as after a refusal"


@pytest.mark.parametrize("end", ["empty_blob", "done", "416"])
@pytest.mark.parametrize("before", [0, 1, 100, 8186, 8192, 24_570])
async def test_a_file_that_ends_in_the_marker_keeps_its_tail(
    autojump_clock: trio.testing.MockClock, before: int, end: EndStyle
) -> None:
    data = DATA[:before] + b"[DONE]"
    for size_bytes in (None, len(data)) if before else (len(data),):
        assert (await read(ScriptedPages(data, end=end, delay=0.1), size_bytes=size_bytes))[0] == data


async def test_a_short_seek_back_reads_nothing(autojump_clock: trio.testing.MockClock) -> None:
    pages = ScriptedPages(DATA, delay=0.1)
    async with open_stream(pages) as stream:
        got = b""
        while len(got) < 600_000:
            got += await stream.receive_some()
        await trio.sleep(10)
        asked = len(pages.reads)
        await stream.seek(300_000)
        assert await stream.receive_some(1000) == DATA[300_000:301_000]
        await trio.sleep(10)
        assert len(pages.reads) == asked


@pytest.mark.parametrize("back_bytes", [1, 20_000, 60_000])
async def test_a_seek_back_keeps_the_pages_on_their_way(
    autojump_clock: trio.testing.MockClock, back_bytes: int
) -> None:
    pages = ScriptedPages(DATA, delay=0.1)
    async with open_stream(pages, options=StreamOptions(capacity_bytes=1 << 18)) as stream:
        got = b""
        while len(got) < 300_000:
            got += await stream.receive_some()
        while not stream.statistics().in_flight:  # the ring was full, and has room for a page
            got += await stream.receive_some(1000)
        await stream.seek(len(got) - back_bytes)
        await trio.sleep(1)  # the page arrives before the reader has moved
        with trio.fail_after(60):
            assert await stream.read_all() == DATA[len(got) - back_bytes :]


async def test_a_seek_before_the_first_byte_goes_on_there_after_a_refusal(
    autojump_clock: trio.testing.MockClock,
) -> None:
    refused = {30_000: [ServerError("not yet", code=-32602)]}
    pages = ScriptedPages(DATA, faults=refused, delay=lambda start, _, __: 0.1 if start <= 30_000 else 0.2)
    async with open_stream(pages) as stream:
        await trio.sleep(0.05)
        n_reads = len(pages.reads)
        await stream.seek(30_000)
        assert await stream.read_all() == DATA[30_000:]
    assert min(record.start for record in pages.reads[n_reads:]) == 30_000


@pytest.mark.parametrize("ring_bytes", [1, 2, 4096])
@pytest.mark.parametrize("server", [{"own_page_bytes": 5000}, {"ignore_range": True}])
async def test_any_ring_is_big_enough_for_pages_that_are_not(
    autojump_clock: trio.testing.MockClock, ring_bytes: int, server: dict[str, Any]
) -> None:
    options = StreamOptions(capacity_bytes=ring_bytes)
    whole, _ = await read(ScriptedPages(DATA[:10_000], **server), options=options)
    assert whole == DATA[:10_000]


async def test_refused_probes_do_not_make_a_page_the_whole_of_a_resource_that_had_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    refused: list[ServerError] = []

    def rewrite(start: int, page: Page) -> Page:
        if page.n_bytes == 1 and refused:  # a probe, not a page
            raise refused.pop()
        return page

    data = bytes(24_576)  # silence, of which only the lengths of answers can be judged
    pages = ScriptedPages(data, rewrite=rewrite, delay=0.1)
    async with open_stream(pages, options=StreamOptions(in_flight=1), size_bytes=len(data)) as stream:
        for start in (1, 25_000, 147):
            refused += [ServerError("busy", code=-32602)]
            await stream.seek(start)
            assert await stream.read_all() == data[start:]
    assert not refused


@pytest.mark.parametrize("server", [{"own_page_bytes": 200_000}, {"ignore_range": True}])
async def test_a_refusal_or_a_damaged_answer_after_a_seek_is_read_again_though_ranges_are_ignored(
    autojump_clock: trio.testing.MockClock, server: dict[str, Any]
) -> None:
    refused, damaged = ServerError("busy", code=-32602), 0

    def rewrite(start: int, page: Page) -> Page:
        nonlocal damaged
        blob = page.blobs[0] if page.blobs else b""
        if damaged == 2 and isinstance(blob, str):
            page = Page(blobs=(blob[:-9] + "!" + blob[-8:],))
        damaged += 1 if damaged else 0
        return page

    pages = ScriptedPages(DATA, delay=0.1, rewrite=rewrite, **server)
    async with open_stream(pages, options=StreamOptions(capacity_bytes=131_072)) as stream:
        await stream.read_all()
        pages.faults, damaged = {0: [refused] if pages.ignore_range else [], 100: [refused]}, 2
        await stream.seek(100)
        assert await stream.read_all() == DATA[100:]
        assert damaged > 2


async def test_reads_are_sent_in_the_order_of_their_bytes(autojump_clock: trio.testing.MockClock) -> None:
    for _ in range(10):  # trio shuffles what it may
        pages = ScriptedPages(DATA[:20_000], delay=0.1)
        await read(pages)
        assert [record.start for record in pages.reads[:3]] == [0, 8192, 24_576]


async def test_a_known_size_is_confirmed_while_its_data_are_readable_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pages = ScriptedPages(DATA[:20_000], delay=lambda start, _, __: 9.0 if start >= 20_000 else 0.1)
    async with open_stream(pages, size_bytes=20_000) as stream:
        assert stream.size_bytes == 20_000
        got = b""
        while len(got) < 20_000:
            got += await stream.receive_some()
        assert trio.current_time() < 1
        assert stream.statistics().ended_by is None
        assert await stream.receive_some() == b""
        assert trio.current_time() > 8
    assert got == DATA[:20_000]
    assert not stream.statistics().size_was_wrong


@pytest.mark.parametrize("size_bytes", [5, 300_000, 700_000, 700_002, 5_000_000])
async def test_a_wrong_size_is_said_and_changes_no_byte(
    autojump_clock: trio.testing.MockClock, size_bytes: int
) -> None:
    whole, statistics = await read(ScriptedPages(DATA, delay=0.1), size_bytes=size_bytes)
    assert whole == DATA
    assert statistics.size_was_wrong
    assert statistics.size_bytes == size_bytes
    assert statistics.end_bytes == len(DATA)


@pytest.mark.parametrize("size_bytes", [None, 700_001])
async def test_an_error_behind_full_pages_alone_is_no_end(
    autojump_clock: trio.testing.MockClock, size_bytes: int | None
) -> None:
    pages = ScriptedPages(DATA, faults={8192: [ServerError("no such range", code=-32602)] * 99}, delay=0.1)
    async with open_stream(pages, size_bytes=size_bytes) as stream:
        with pytest.raises(ServerError, match="no such range"):
            await stream.read_all()
        assert stream.statistics().ended_by is None


async def test_a_slow_reader_bounds_what_is_read_ahead(autojump_clock: trio.testing.MockClock) -> None:
    pages = ScriptedPages(DATA, delay=0.1)
    async with open_stream(pages, options=StreamOptions(capacity_bytes=131_072)) as stream:
        got = await stream.receive_some(1000)
        await trio.sleep(100)
        assert max(record.end for record in pages.reads) <= 1000 + 131_072
        asked = len(pages.reads)
        await trio.sleep(100)
        assert len(pages.reads) == asked
        got += await stream.read_all()
    assert got == DATA


@pytest.mark.parametrize("capacity_bytes", [1, 4096, 65_536])
async def test_any_ring_is_big_enough(autojump_clock: trio.testing.MockClock, capacity_bytes: int) -> None:
    size = 200 if capacity_bytes == 1 else 100_000
    whole, statistics = await read(
        ScriptedPages(DATA[:size]), options=StreamOptions(capacity_bytes=capacity_bytes)
    )
    assert whole == DATA[:size]
    assert statistics.capacity_bytes >= capacity_bytes


def test_the_profile_sizes_the_ring_and_a_large_page_widens_it() -> None:
    assert StreamOptions().ring_bytes() == 4 * 1024 * 1024
    assert StreamOptions(profile="save").ring_bytes() == 8 * 1024 * 1024
    assert StreamOptions(page_bytes=8 * 1024 * 1024).ring_bytes() == 16 * 1024 * 1024
    assert StreamOptions(capacity_bytes=100_000).ring_bytes() == 131_072


@pytest.mark.parametrize(
    "wrong",
    [
        {"strategy": "range"},
        {"profile": "stream"},
        {"page_bytes": 0},
        {"page_bytes_max": 0},
        {"in_flight": 0},
        {"capacity_bytes": 0},
        {"size_bytes": -1},
        {"max_bytes": -1},
        {"timeout": 0.0},
        {"timeout": float("nan")},
        {"patience_seconds": 0.0},
        {"patience_seconds": float("nan")},
    ],
)
def test_an_option_out_of_its_range_is_named(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        StreamOptions(**wrong)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("to", [0, 1000, 50_000, 350_001, 700_000, 700_001, 800_000])
async def test_a_seek_goes_on_from_there(autojump_clock: trio.testing.MockClock, to: int) -> None:
    pages = ScriptedPages(DATA, delay=0.1)
    async with open_stream(pages, options=StreamOptions(capacity_bytes=131_072)) as stream:
        await stream.receive_some(30_000)
        await stream.seek(to)
        assert stream.position == to
        assert await stream.read_all() == DATA[to:]
        await stream.seek(3)
        assert await stream.read_all() == DATA[3:]
    assert stream.statistics().ended_by == "empty"


@pytest.mark.parametrize("end", ["empty_blob", "empty_list", "done", "416"])
@pytest.mark.parametrize("ignore_range_until_end", [False, True])
async def test_a_seek_past_the_end_finds_it_with_few_reads(
    autojump_clock: trio.testing.MockClock, end: EndStyle, ignore_range_until_end: bool
) -> None:
    pages = ScriptedPages(DATA, end=end, ignore_range_until_end=ignore_range_until_end, delay=0.1)
    async with open_stream(pages) as stream:
        await stream.seek(900_000)
        assert await stream.read_all() == b""
        assert len(pages.reads) < 12
        await stream.seek(0)
        assert await stream.read_all() == DATA


async def test_a_seek_cancels_the_reads_it_makes_useless(autojump_clock: trio.testing.MockClock) -> None:
    pages = ScriptedPages(DATA, delay=lambda start, _, __: 5.0 if 30_000 < start < 400_000 else 0.1)
    async with open_stream(pages) as stream:
        await trio.sleep(1)
        await stream.seek(500_000)
        assert await stream.receive_some(10) == DATA[500_000:500_010]
        assert trio.current_time() < 2
        stale = [record for record in pages.reads if 30_000 < record.start < 400_000]
        assert stale
        assert all(record.cancelled for record in stale)


async def test_chunks_come_by_iteration_and_no_larger_than_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_stream(ScriptedPages(DATA)) as stream:
        assert len(await stream.receive_some(7)) == 7
        got = [chunk async for chunk in stream]
    assert b"".join(got) == DATA[7:]
    assert all(got)


async def test_a_second_task_that_reads_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stream(ScriptedPages(DATA, delay=1.0)) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(stream.receive_some, 1)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(BusyError):
            await stream.receive_some()


async def test_a_cancelled_read_loses_no_byte(autojump_clock: trio.testing.MockClock) -> None:
    got = b""
    async with open_stream(ScriptedPages(DATA[:50_000], delay=1.0)) as stream:
        while len(got) < 50_000:
            with trio.move_on_after(0.3):
                got += await stream.receive_some(1000)
    assert got == DATA[:50_000]


async def test_more_than_read_all_may_hold_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stream(ScriptedPages(DATA)) as stream:
        with pytest.raises(LimitError) as caught:
            await stream.read_all(max_bytes=1000)
    assert caught.value.limit == "max_bytes"


async def test_the_error_of_the_callers_own_block_comes_out_as_it_is() -> None:
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        async with open_stream(ScriptedPages(DATA)):
            raise error
    assert caught.value is error


async def test_leaving_or_closing_cancels_every_read_and_says_so_to_readers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pages = ScriptedPages(DATA, delay=1000.0)
    stream: RangeStream
    async with open_stream(pages) as stream:
        await trio.sleep(1)
        assert pages.in_flight == 3
        await stream.aclose()
        with pytest.raises(ClosedError):
            await stream.receive_some()
        await trio.sleep(1)
        assert pages.in_flight == 0
        with pytest.raises(ClosedError):
            await stream.seek(0)
    assert all(record.cancelled for record in pages.reads)


async def test_playing_can_start_when_enough_is_in_hand(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stream(ScriptedPages(DATA, delay=0.05), size_bytes=len(DATA)) as stream:
        assert not stream.can_play(0, 24_000.0)
        await trio.sleep(1)
        assert stream.can_play(stream.buffered_bytes, 24_000.0)
