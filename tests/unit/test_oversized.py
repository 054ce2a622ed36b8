"""An answer longer than asked for: from a server that ignores ranges, or one with its own page size."""

from __future__ import annotations

import base64
import gc
import random

import pytest
import trio
import trio.testing

from playhead.errors import ContradictionError, LimitError, RangeNotHonouredError
from playhead.limits import Limits
from playhead.stream.answer import Answer
from playhead.stream.evidence import Verdict, judge
from playhead.stream.options import StreamOptions
from playhead.stream.page import Page
from playhead.stream.reader import open_stream
from playhead.stream.statistics import StreamStatistics
from playhead.testing.pages import ScriptedPages

RANDOM = random.Random(4).randbytes(1_500_000)
ZEROS = bytes(1_500_000)
PATTERN = bytes(range(256)) * 5000
KINDS = {"random": RANDOM, "zeros": ZEROS, "pattern": PATTERN}
SMALL = (1, 2, 3, 100, 5000, 8191, 8192, 8193, 10_000, 16_384, 24_576, 30_000, 57_344)
"""Around the ends of the first burst: [0, 8K), [8K, 24K), [24K, 56K)."""


async def read(
    pages: ScriptedPages, *, capacity_bytes: int | None = None, size_bytes: int | None = None, name: str = ""
) -> tuple[bytes, StreamStatistics]:
    options = StreamOptions(capacity_bytes=capacity_bytes)
    with trio.fail_after(10_000):
        async with open_stream(pages, options=options, size_bytes=size_bytes, strategy_name=name) as stream:
            whole = await stream.read_all()
        return whole, stream.statistics()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("until_end", [False, True])
async def test_a_server_that_ignores_ranges_is_read_as_the_whole_it_sends(
    autojump_clock: trio.testing.MockClock, kind: str, known: bool, until_end: bool
) -> None:
    for size in (*SMALL, len(KINDS[kind])):
        data = KINDS[kind][:size]
        pages = ScriptedPages(
            data, ignore_range=not until_end, ignore_range_until_end=until_end, end="416", delay=0.1
        )
        whole, statistics = await read(pages, size_bytes=size if known else None)
        assert whole == data
        assert statistics.ended_by in {"whole", "416"}
        assert len(pages.reads) <= 6
        assert pages.in_flight == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("own_page_bytes", [1000, 8192, 9000, 65_536, 102_400, 300_000, 1_280_000, 1_400_000])
@pytest.mark.parametrize("capacity_bytes", [None, 65_536])
async def test_a_server_with_its_own_page_size_is_read_page_by_page(
    autojump_clock: trio.testing.MockClock, kind: str, own_page_bytes: int, capacity_bytes: int | None
) -> None:
    data = KINDS[kind]
    whole, _ = await read(
        ScriptedPages(data, own_page_bytes=own_page_bytes, delay=0.1), capacity_bytes=capacity_bytes
    )
    assert whole == data


async def test_a_servers_page_size_that_fits_the_ring_is_adopted_and_several_are_in_flight(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pages = ScriptedPages(RANDOM, own_page_bytes=100_000, delay=0.1)
    whole, statistics = await read(pages)
    assert whole == RANDOM
    later = pages.reads[5:-3]
    assert {record.end - record.start for record in later} == {100_000}
    assert pages.in_flight_max >= 4
    assert statistics.received_bytes < len(RANDOM) * 1.3


async def test_pages_larger_than_the_ring_are_fed_one_by_one(autojump_clock: trio.testing.MockClock) -> None:
    pages = ScriptedPages(RANDOM, own_page_bytes=400_000, delay=lambda start, _, __: 0.1 + start / 1e8)
    whole, statistics = await read(pages, capacity_bytes=65_536)
    assert whole == RANDOM
    assert statistics.ended_by == "empty"
    assert statistics.received_bytes <= len(RANDOM)
    assert all(record.start % 400_000 == 0 or record.end <= 57_344 for record in pages.reads[:-1])


async def test_the_rest_of_the_burst_is_cancelled_as_soon_as_one_page_is_oversized(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pages = ScriptedPages(RANDOM, ignore_range=True, delay=lambda _, __, number: 1.0 + number)
    whole, _ = await read(pages)
    assert whole == RANDOM
    assert [record.cancelled for record in pages.reads[:3]] == [False, True, True]
    assert pages.reads[3].start == len(RANDOM), "asked once, at the offset received"
    assert len(pages.reads) <= 5


async def test_an_oversized_answer_that_overtakes_the_first_is_not_taken_for_the_beginning(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for pages in (
        ScriptedPages(
            RANDOM, ignore_range=True, delay=lambda _, __, number: 3.0 - number if number < 3 else 0
        ),
        ScriptedPages(RANDOM, own_page_bytes=90_000, delay=lambda _, __, number: 3.0 - min(3, number)),
    ):
        assert (await read(pages))[0] == RANDOM


async def test_a_second_page_without_a_new_byte_is_never_delivered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Smaller than a page, so that nothing is oversized: the likeness alone tells."""
    whole, statistics = await read(ScriptedPages(RANDOM[:5000], ignore_range=True, delay=0.1))
    assert whole == RANDOM[:5000]
    assert statistics.ended_by == "whole"


async def test_servers_that_cannot_be_made_sense_of_are_named_with_what_came(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def fickle(start: int, _: Page) -> Page:
        data = ZEROS[:20_000] if start < 10_000 else ZEROS[: 21_000 if start < 10**9 else 22_000]
        return Page(blobs=(data,))

    options = StreamOptions()
    async with open_stream(
        ScriptedPages(ZEROS, rewrite=fickle), options=options, server_name="odd"
    ) as stream:
        with pytest.raises(RangeNotHonouredError, match=r"^odd: .*\[20000, \d+\).*got 21000 bytes") as caught:
            await stream.read_all()
    assert caught.value.offset == 20_000


async def test_nothing_at_the_beginning_but_too_much_later_is_a_contradiction(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def odd(start: int, page: Page) -> Page:
        return Page(blobs=()) if start == 0 else page

    pages = ScriptedPages(
        RANDOM, own_page_bytes=90_000, rewrite=odd, delay=lambda start, _, __: 0.1 if start else 1.0
    )
    with pytest.raises(ContradictionError):
        await read(pages)


@pytest.mark.parametrize("capacity_bytes", [None, 4096])
async def test_the_strategy_whole_asks_once(
    autojump_clock: trio.testing.MockClock, capacity_bytes: int | None
) -> None:
    pages = ScriptedPages(RANDOM, ignore_range=True)
    whole, statistics = await read(pages, capacity_bytes=capacity_bytes, name="whole")
    assert whole == RANDOM
    assert len(pages.reads) == statistics.requests == statistics.pages == 1
    assert statistics.ended_by == statistics.strategy == "whole"
    assert (await read(ScriptedPages(b"", ignore_range=True), name="whole"))[0] == b""
    assert (await read(ScriptedPages(b"[DONE]", ignore_range=True), name="whole"))[0] == b"[DONE]"


async def test_a_seek_inside_an_oversized_page_uses_it_and_one_outside_reads_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for name, rest in (
        ("whole", ScriptedPages(RANDOM, ignore_range=True, delay=0.1)),
        ("", ScriptedPages(RANDOM, own_page_bytes=400_000, delay=0.1)),
    ):
        options = StreamOptions(capacity_bytes=65_536)
        async with open_stream(rest, options=options, strategy_name=name) as stream:
            assert await stream.receive_some(100) == RANDOM[:100]
            for to in (1_000_001, 5, 300_000):
                await stream.seek(to)
                assert await stream.receive_some(100) == RANDOM[to : to + 100]
            if name == "whole":
                assert len(rest.reads) == 1
            await stream.seek(1_400_000)
            assert await stream.read_all() == RANDOM[1_400_000:]
            await stream.seek(7)
            assert await stream.read_all() == RANDOM[7:]


async def test_an_oversized_page_is_bounded_by_the_block_limit_before_it_is_decoded(
    autojump_clock: trio.testing.MockClock,
) -> None:
    limits = Limits(block_bytes=1_000_000)
    async with open_stream(ScriptedPages(RANDOM, ignore_range=True), limits=limits) as stream:
        with pytest.raises(LimitError) as caught:
            await stream.receive_some()
    assert caught.value.limit == "block_bytes"


async def test_the_text_of_an_oversized_page_is_let_go_once_it_is_fed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Tracked(str):
        __slots__ = ()

    text = Tracked(base64.b64encode(RANDOM).decode())

    async def whole(_: int, __: int) -> Page:
        return Page(blobs=(text,))

    async with open_stream(whole, strategy_name="whole") as stream:
        assert await stream.read_all() == RANDOM
        gc.collect()
        held = [found for found in gc.get_referrers(text) if isinstance(found, tuple | list | dict)]
        assert not [found for found in held if found is not globals() and found is not locals()]


def test_a_likeness_is_proof_only_when_the_content_cannot_explain_it() -> None:
    def pair(data: bytes, second: bytes) -> tuple[Answer, Answer]:
        return (
            Answer(offset=0, blobs=(data,), n_bytes=len(data)),
            Answer(offset=len(data), blobs=(second,), n_bytes=len(second)),
        )

    big = RANDOM[:1_200_000]
    assert judge(*pair(big, big), size_bytes=None) is Verdict.IGNORED
    assert judge(*pair(big, big), size_bytes=9_000_000) is Verdict.UNSURE
    assert judge(*pair(RANDOM[:9000], RANDOM[:9000]), size_bytes=None) is Verdict.UNSURE
    assert judge(*pair(RANDOM[:9000], RANDOM[:9000]), size_bytes=9000) is Verdict.IGNORED
    assert judge(*pair(ZEROS[:9000], ZEROS[:9000]), size_bytes=9000) is Verdict.UNSURE
    assert judge(*pair(ZEROS, ZEROS), size_bytes=None) is Verdict.UNSURE
    assert judge(*pair(ZEROS, ZEROS[:10]), size_bytes=None) is Verdict.UNSURE
    assert judge(*pair(big, RANDOM[5:]), size_bytes=None) is Verdict.HONOURED
