"""Answers that do not fit their range, at any time: judged by what was seen of their server."""

from __future__ import annotations

import base64
import gc
import random
from collections.abc import Callable

import pytest
import trio
import trio.testing

from playhead.errors import ConnectionLostError, ContentError, LimitError, RangeNotHonouredError
from playhead.limits import Limits
from playhead.stream.answer import Answer, Page
from playhead.stream.options import StreamOptions, StreamStatistics
from playhead.stream.range_support import (
    FINGERPRINT_BYTES,
    Accept,
    Ask,
    Discard,
    Ignored,
    OwnPage,
    RangeSupport,
    Reason,
    Verdict,
    repeats_within,
)
from playhead.stream.reader import open_stream
from playhead.testing.pages import EndStyle, ScriptedPages

RANDOM = random.Random(4).randbytes(1_500_000)
ZEROS = bytes(1_500_000)
PATTERN = bytes(range(256)) * 5000
KINDS = {
    "random": RANDOM,
    "zeros": ZEROS,
    "period 256": PATTERN,
    "period 4096": RANDOM[:4096] * 300,
    "period 5000": RANDOM[:5000] * 300,
    "PCM that pauses": bytes(50_000) + RANDOM[:200_000] + bytes(100_000) + RANDOM[200_000:],
    "a header and silence": RANDOM[:44] + bytes(1_000_000),
}
SMALL = (1, 2, 3, 6, 100, 4095, 5000, 8191, 8192, 8193, 10_000, 16_384, 24_576, 30_000, 57_344)
"""Around the ends of the first burst: [0, 8K), [8K, 24K), [24K, 56K)."""
FAR = 10**12


# --- RangeSupport by itself ------------------------------------------------------------------------------


def page(data: bytes, offset: int, length: int | None = None) -> Answer:
    """The answer of a server that sends `data[offset:offset + length]`."""
    chunk = data[offset:] if length is None else data[offset : offset + length]
    return Answer(offset=offset, blobs=(chunk,), n_bytes=len(chunk))


def whole(data: bytes, offset: int) -> Answer:
    """All of `data`, whatever was asked for."""
    return Answer(offset=offset, blobs=(data,), n_bytes=len(data))


def support(data: bytes, *, first_bytes: int = 8192) -> RangeSupport:
    """One that has seen the first page of `data`."""
    made = RangeSupport(far=FAR, server_name="odd")
    verdict = made.judge(page(data, 0, first_bytes), end=first_bytes, total_bytes=None)
    assert isinstance(verdict, Accept)
    return made


def kept(verdict: Verdict) -> tuple[int, int]:
    assert isinstance(verdict, Accept)
    return verdict.start, verdict.stop


def asked(verdict: Verdict) -> Ask:
    assert isinstance(verdict, Ask)
    return verdict


@pytest.mark.parametrize("kind", KINDS)
def test_answers_that_fit_their_ranges_are_kept_without_a_question(kind: str) -> None:
    data = KINDS[kind][:81_100] if "period" not in kind else RANDOM
    made = support(data)
    for start, length in ((8192, 16_384), (24_576, 32_768), (57_344, 5)):
        verdict = made.judge(page(data, start, length), end=start + length, total_bytes=None)
        assert kept(verdict) == (start, start + length)


def test_an_answer_that_begins_as_offset_0_and_has_the_announced_length_is_the_whole() -> None:
    made = support(RANDOM[:100_000])
    verdict = made.judge(whole(RANDOM[:100_000], 24_576), end=57_344, total_bytes=100_000)
    assert kept(verdict) == (24_576, 57_344)
    assert isinstance(verdict, Accept)
    assert verdict.answer.offset == 0, "of the whole, the slice that was asked for"
    last = made.judge(whole(RANDOM[:100_000], 90_000), end=120_000, total_bytes=100_000)
    assert kept(last) == (90_000, 100_000), "and nothing past it"


def test_an_answer_that_begins_as_offset_0_and_is_longer_than_asked_is_discarded_twice() -> None:
    made = support(RANDOM)
    for _ in range(2):
        assert isinstance(made.judge(whole(RANDOM, 8192), end=24_576, total_bytes=None), Discard)
    assert isinstance(made.judge(whole(RANDOM, 24_576), end=57_344, total_bytes=None), Discard), "each offset"
    with pytest.raises(RangeNotHonouredError, match=r"^odd: .*8192") as caught:
        made.judge(whole(RANDOM, 8192), end=24_576, total_bytes=None)
    assert caught.value.offset == 8192


@pytest.mark.parametrize("kind", ["random", "zeros", "period 4096", "a header and silence"])
def test_the_whole_again_at_the_announced_size_is_the_end_once_a_second_read_returns_it_too(
    kind: str,
) -> None:
    data = KINDS[kind][:100_000]
    made = support(data)
    answer = whole(data, 100_000)
    ask = asked(made.judge(answer, end=108_192, total_bytes=100_000))
    assert (ask.reason, ask.start) == (Reason.PAST, FAR if kind == "zeros" else 100_001)
    verdict = made.resolve(ask, answer, whole(data, ask.start), end=108_192)
    assert kept(verdict) == (100_000, 100_000)
    assert isinstance(verdict, Accept)
    assert (verdict.answer.n_bytes, verdict.answer.claims_end) == (0, "whole")
    assert made.ignored_from == 100_000


def test_the_beginning_again_at_the_announced_size_is_no_end_if_the_file_goes_on_there() -> None:
    data = RANDOM[:5000] * 2
    made = support(data, first_bytes=2000)
    answer = page(data, 5000, 5000)
    ask = asked(made.judge(answer, end=10_000, total_bytes=5000))
    assert kept(made.resolve(ask, answer, page(data, 5001, 4096), end=10_000)) == (5000, 10_000)
    assert made.ignored_from is None


@pytest.mark.parametrize("length", [64, 100, 4095])
def test_a_short_answer_that_begins_the_resource_is_asked_about_too(length: int) -> None:
    made = support(RANDOM)
    answer = Answer(offset=24_576, blobs=(RANDOM[:length],), n_bytes=length)
    ask = asked(made.judge(answer, end=57_344, total_bytes=None))
    assert ask == Ask(reason=Reason.SHIFTED, start=24_577, end=24_577 + FINGERPRINT_BYTES)
    assert isinstance(made.resolve(ask, answer, page(RANDOM, 24_577, 4096), end=57_344), Discard)
    assert isinstance(made.resolve(ask, answer, whole(RANDOM[:length], 24_577), end=57_344), Discard)

    data = RANDOM[:24_576] + RANDOM[:length] + RANDOM[50_000:90_000]
    made = support(data)
    verdict = made.resolve(ask, page(data, 24_576, length), page(data, 24_577, 4096), end=57_344)
    assert kept(verdict) == (24_576, 24_576 + length), "the file repeats it"
    other = Answer(offset=57_344, blobs=(RANDOM[:9000],), n_bytes=9000)
    assert asked(made.judge(other, end=70_000, total_bytes=None)).reason is Reason.SHIFTED, (
        "and is watched on"
    )


@pytest.mark.parametrize(
    ("data", "length"), [(RANDOM, 63), (bytes(3000) + RANDOM, 2000), (RANDOM[:500] * 6 + RANDOM, 1000)]
)
def test_a_short_answer_of_few_bytes_or_that_repeats_itself_identifies_nothing(
    data: bytes, length: int
) -> None:
    made = support(data)
    answer = Answer(offset=24_576, blobs=(data[:length],), n_bytes=length)
    assert kept(made.judge(answer, end=57_344, total_bytes=None)) == (24_576, 24_576 + length)


def test_a_shorter_one_is_asked_about_at_the_next_byte() -> None:
    data = RANDOM[:5000]
    made = support(data)
    ask = asked(made.judge(whole(data, 5000), end=20_000, total_bytes=None))
    assert ask == Ask(reason=Reason.SHIFTED, start=5001, end=5001 + FINGERPRINT_BYTES)
    verdict = made.resolve(ask, whole(data, 5000), whole(data, 5001), end=20_000)
    assert isinstance(verdict, Ignored)
    assert (verdict.whole.offset, verdict.whole.n_bytes) == (0, 5000)


def test_a_file_that_repeats_itself_is_data_and_then_lengths_alone_are_judged() -> None:
    data = KINDS["period 5000"]
    made = support(data, first_bytes=5000)
    ask = asked(made.judge(page(data, 5000, 5000), end=10_000, total_bytes=None))
    verdict = made.resolve(ask, page(data, 5000, 5000), page(data, 5001, 4096), end=10_000)
    assert kept(verdict) == (5000, 10_000)
    assert kept(made.judge(page(data, 10_000, 5000), end=15_000, total_bytes=None)) == (10_000, 15_000)


def test_what_a_question_does_not_settle_is_read_again() -> None:
    data = RANDOM[:5000]
    made = support(data)
    ask = asked(made.judge(whole(data, 5000), end=20_000, total_bytes=None))
    other = page(RANDOM, 700_000, 4096)
    assert isinstance(made.resolve(ask, whole(data, 5000), other, end=20_000), Discard)


@pytest.mark.parametrize("total_bytes", [None, 8193])
def test_one_byte_too_many_means_that_the_end_is_inclusive(total_bytes: int | None) -> None:
    made = RangeSupport(far=FAR, server_name="odd")
    assert kept(made.judge(page(RANDOM, 0, 8193), end=8192, total_bytes=total_bytes)) == (0, 8192)
    assert made.end_is_inclusive


def test_an_end_that_was_taken_for_inclusive_and_is_not_costs_a_byte_more() -> None:
    made = RangeSupport(far=FAR, server_name="odd")
    made.judge(page(RANDOM, 0, 8193), end=8192, total_bytes=None)
    assert kept(made.judge(page(RANDOM, 8192, 99), end=8292, total_bytes=None)) == (8192, 8291)
    assert not made.end_is_inclusive


@pytest.mark.parametrize("total_bytes", [None, 300_000])
def test_a_longer_first_answer_is_asked_about_where_it_stops(total_bytes: int | None) -> None:
    """An announced size is a hint: a server's own page may be as long."""
    made = RangeSupport(far=FAR, server_name="odd")
    answer = page(RANDOM, 0, 300_000)
    ask = asked(made.judge(answer, end=8192, total_bytes=total_bytes))
    assert (ask.reason, ask.start) == (Reason.NEXT, 300_000)
    own = made.resolve(ask, answer, page(RANDOM, 300_000, 300_000), end=8192)
    assert own == OwnPage(page_bytes=300_000)
    whole_page = page(RANDOM, 300_000, 300_000)
    assert made.judge(whole_page, end=600_000, total_bytes=None) == Accept(
        answer=whole_page, start=300_000, stop=600_000
    )


def test_a_longer_first_answer_with_nothing_behind_it_is_the_whole() -> None:
    made = RangeSupport(far=FAR, server_name="odd")
    answer = page(RANDOM, 0, 300_000)
    ask = asked(made.judge(answer, end=8192, total_bytes=None))
    assert made.resolve(ask, answer, None, end=8192) == Ignored(whole=answer)


def test_a_longer_first_answer_that_comes_again_is_the_whole() -> None:
    made = RangeSupport(far=FAR, server_name="odd")
    ask = asked(made.judge(whole(RANDOM, 0), end=8192, total_bytes=None))
    assert made.resolve(ask, whole(RANDOM, 0), whole(RANDOM, ask.start), end=8192) == Ignored(
        whole=whole(RANDOM, 0)
    )


def test_the_same_silence_again_is_settled_far_past_any_end() -> None:
    for found, expected in ((whole(ZEROS, FAR), Ignored), (None, OwnPage)):
        made = RangeSupport(far=FAR, server_name="odd")
        ask = asked(made.judge(whole(ZEROS, 0), end=8192, total_bytes=None))
        far = asked(made.resolve(ask, whole(ZEROS, 0), whole(ZEROS, ask.start), end=8192))
        assert (far.reason, far.start) == (Reason.FAR, FAR)
        verdict = made.resolve(far, whole(ZEROS, 0), found, end=8192)
        if isinstance(verdict, Ask):
            last = page(ZEROS + ZEROS, verdict.start)
            verdict = made.resolve(verdict, whole(ZEROS, 0), last, end=8192)
        assert isinstance(verdict, expected)


def test_the_rest_of_a_file_is_told_from_the_whole_of_it_by_its_last_byte() -> None:
    for found, expected in ((page(ZEROS, 299_999, 1), Accept), (None, Discard)):
        made = support(ZEROS)
        answer = Answer(offset=50_000, blobs=(ZEROS[:250_000],), n_bytes=250_000)
        ask = asked(made.judge(answer, end=60_000, total_bytes=None))
        assert (ask.reason, ask.start) == (Reason.NEXT, 300_000)
        last = asked(made.resolve(ask, answer, None, end=60_000))
        assert (last.start, last.end) == (299_999, 300_000)
        assert isinstance(made.resolve(last, answer, found, end=60_000), expected)


def test_a_stream_that_starts_past_0_asks_first_whether_ranges_are_honoured() -> None:
    made = RangeSupport(far=FAR, server_name="odd")
    answer = page(RANDOM, 90_000, 8192)
    ask = asked(made.judge(answer, end=98_192, total_bytes=None))
    assert (ask.reason, ask.start) == (Reason.FAR, FAR)
    assert kept(made.resolve(ask, answer, None, end=98_192)) == (90_000, 98_192)
    assert kept(made.judge(page(RANDOM, 98_192, 5), end=100_000, total_bytes=None)) == (98_192, 98_197)

    made = RangeSupport(far=FAR, server_name="odd")
    answer = whole(RANDOM[:5000], 90_000)
    ask = asked(made.judge(answer, end=98_192, total_bytes=None))
    assert isinstance(made.resolve(ask, answer, whole(RANDOM[:5000], FAR), end=98_192), Ignored)


def test_one_byte_too_many_that_is_the_announced_length_is_settled_by_the_byte_behind_it() -> None:
    all_of_it, from_1 = whole(RANDOM[:3], 1), page(RANDOM, 1, 3)
    for answer, found in (
        (all_of_it, None),
        (all_of_it, whole(RANDOM[:3], 3)),
        (from_1, page(RANDOM, 3, 1)),
        (from_1, page(RANDOM, 3, 3)),
    ):
        made = RangeSupport(far=FAR, server_name="odd")
        ask = asked(made.judge(answer, end=3, total_bytes=3))
        assert (ask.reason, ask.start, ask.end) == (Reason.SIZE, 3, 4)
        verdict = made.resolve(ask, answer, found, end=3)
        assert kept(verdict) == (1, 3)
        assert isinstance(verdict, Accept)
        assert verdict.answer.offset == (0 if answer is all_of_it else 1)


def test_the_same_answer_at_two_offsets_where_its_bytes_are_not_is_the_whole() -> None:
    made = RangeSupport(far=FAR, server_name="odd")
    for offset, expected in ((90_000, Discard), (90_000, Discard), (95_000, Ignored)):
        answer = whole(RANDOM[:100_000], offset)
        ask = asked(made.judge(answer, end=98_192, total_bytes=None))
        last = asked(made.resolve(ask, answer, None, end=98_192))
        assert (last.reason, last.start) == (Reason.LAST, offset + 99_999)
        assert isinstance(made.resolve(last, answer, None, end=98_192), expected)


def test_answers_past_any_end_that_cannot_be_put_together_are_named() -> None:
    made = RangeSupport(far=FAR, server_name="odd")
    ask = asked(made.judge(page(ZEROS, 0, 20_000), end=8192, total_bytes=None))
    far = asked(made.resolve(ask, page(ZEROS, 0, 20_000), page(ZEROS, 20_000, 21_000), end=8192))
    with pytest.raises(RangeNotHonouredError, match=r"^odd: .*22000 bytes at"):
        made.resolve(
            far, page(ZEROS, 0, 20_000), Answer(offset=FAR, blobs=(ZEROS[:22_000],), n_bytes=22_000), end=8192
        )


@pytest.mark.parametrize(
    ("data", "identifies"),
    [
        (RANDOM[:4096], True),
        (RANDOM[:500], True),
        (b"ab", True),
        (b"a", False),
        (b"aa", False),
        (ZEROS[:4096], False),
        (PATTERN[:4096], False),
        (RANDOM[:1000] * 4, False),
        (RANDOM[:2000] * 2, True),
        (RANDOM[:44] + bytes(4000), True),
        (bytes(4000) + RANDOM[:96], True),
    ],
)
def test_a_beginning_with_a_short_period_identifies_nothing(data: bytes, identifies: bool) -> None:
    assert repeats_within(data, 1024) is not identifies


# --- through a stream ------------------------------------------------------------------------------------


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
        got, statistics = await read(pages, size_bytes=size if known else None)
        assert got == data
        assert statistics.ended_by in ({"whole", "416"} if until_end else {"whole"})
        assert len(pages.reads) <= 9
        assert pages.in_flight == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("own_page_bytes", [1000, 8192, 9000, 65_536, 102_400, 300_000, 1_280_000, 1_400_000])
@pytest.mark.parametrize("capacity_bytes", [None, 65_536])
async def test_a_server_with_its_own_page_size_is_read_page_by_page(
    autojump_clock: trio.testing.MockClock, kind: str, own_page_bytes: int, capacity_bytes: int | None
) -> None:
    data = KINDS[kind]
    got, _ = await read(
        ScriptedPages(data, own_page_bytes=own_page_bytes, delay=0.1), capacity_bytes=capacity_bytes
    )
    assert got == data


async def test_a_servers_page_size_that_fits_the_ring_is_adopted_and_several_are_in_flight(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pages = ScriptedPages(RANDOM, own_page_bytes=100_000, delay=0.1)
    got, _ = await read(pages)
    assert got == RANDOM
    later = pages.reads[5:-3]
    assert {record.end - record.start for record in later} == {100_000}
    assert pages.in_flight_max >= 4
    assert sum(min(100_000, max(0, len(RANDOM) - record.start)) for record in pages.reads) < len(RANDOM) * 1.3


async def test_pages_larger_than_the_ring_are_fed_one_by_one(autojump_clock: trio.testing.MockClock) -> None:
    pages = ScriptedPages(RANDOM, own_page_bytes=400_000, delay=lambda start, _, __: 0.1 + start / 1e8)
    got, statistics = await read(pages, capacity_bytes=65_536)
    assert got == RANDOM
    assert statistics.ended_by == "empty"
    assert len(pages.reads) < 14


@pytest.mark.parametrize(("size", "claims"), [(1_300_000, 1), (1_200_000, 2)])
async def test_behind_a_short_page_that_was_fed_one_claim_of_the_end_is_enough(
    autojump_clock: trio.testing.MockClock, size: int, claims: int
) -> None:
    pages = ScriptedPages(RANDOM[:size], own_page_bytes=400_000, delay=0.1)
    got, statistics = await read(pages, capacity_bytes=65_536)
    assert (got, statistics.ended_by) == (RANDOM[:size], "empty")
    assert [record.start for record in pages.reads].count(size) == claims


async def test_the_rest_of_the_burst_is_cancelled_as_soon_as_ranges_are_known_to_be_ignored(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pages = ScriptedPages(
        RANDOM, ignore_range=True, delay=lambda _, __, number: 10.0 if number in {1, 2} else 1.0
    )
    got, _ = await read(pages)
    assert got == RANDOM
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


def now_and_then(data: bytes, every: int) -> Callable[[int, Page], Page]:
    """A cache in front that answers some reads with the whole resource."""
    count = 0

    def answer(start: int, page: Page) -> Page:
        nonlocal count
        count += 1
        return Page(blobs=(data,)) if data and start < len(data) and count % every == 0 else page

    return answer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("end", ["empty_blob", "done", "416"])
@pytest.mark.parametrize(("every", "cap_bytes"), [(4, None), (7, 500), (2, None)])
async def test_a_server_that_sends_the_whole_now_and_then_is_read_right_or_not_at_all(
    autojump_clock: trio.testing.MockClock,
    kind: str,
    known: bool,
    end: EndStyle,
    every: int,
    cap_bytes: int | None,
) -> None:
    for size in (1, 6, 100, 4095, 8192, 8193, 10_000, 24_576, 57_344, 100_000):
        data = KINDS[kind][:size]
        pages = ScriptedPages(
            data, cap_bytes=cap_bytes, end=end, rewrite=now_and_then(data, every), delay=0.1
        )
        try:
            got, _ = await read(pages, size_bytes=size if known else None)
        except ContentError:
            assert every == 2 or cap_bytes or "period" in kind or size in {8192, 100_000}
        else:
            assert got == data


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0, 1, 6, 100, 8193, 300_000])
async def test_a_server_with_an_inclusive_end_is_asked_for_one_byte_less(
    autojump_clock: trio.testing.MockClock, kind: str, size: int
) -> None:
    for size_bytes in (None, size, max(0, size - 1)):
        pages = ScriptedPages(KINDS[kind][:size], overlap_bytes=1, delay=0.1)
        assert (await read(pages, size_bytes=size_bytes))[0] == pages.data


async def test_a_cold_cache_costs_one_more_read(autojump_clock: trio.testing.MockClock) -> None:
    cold = {24_576}

    def whole_once(start: int, page: Page) -> Page:
        return Page(blobs=(RANDOM,)) if start in cold and not cold.discard(start) else page  # type: ignore[func-returns-value]

    pages = ScriptedPages(RANDOM, rewrite=whole_once, delay=0.1)
    assert (await read(pages))[0] == RANDOM
    assert sum(record.start == 24_576 for record in pages.reads) == 2


async def test_a_server_that_goes_on_sending_the_whole_is_named(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def whole_from(start: int, page: Page) -> Page:
        return Page(blobs=(RANDOM,)) if start >= 500_000 else page

    async with open_stream(ScriptedPages(RANDOM, rewrite=whole_from), server_name="odd") as stream:
        got = b""
        with pytest.raises(RangeNotHonouredError, match=r"^odd: .*whole") as caught:  # noqa: PT012  # counts
            while chunk := await stream.receive_some():
                got += chunk
    assert RANDOM.startswith(got)
    assert caught.value.offset >= 500_000 or len(got) >= 400_000


async def test_with_the_size_announced_it_is_read_all_the_same(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def whole_from(start: int, page: Page) -> Page:
        return Page(blobs=(RANDOM,)) if 500_000 <= start < len(RANDOM) else page

    assert (await read(ScriptedPages(RANDOM, rewrite=whole_from), size_bytes=len(RANDOM)))[0] == RANDOM


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size_bytes", [None, 700_000])
async def test_a_stream_that_starts_past_0_is_read_right_or_not_at_all(
    autojump_clock: trio.testing.MockClock, kind: str, size_bytes: int | None
) -> None:
    data = KINDS[kind][:700_000]
    for pages in (
        ScriptedPages(data, delay=0.1),
        ScriptedPages(data, delay=0.1, cap_bytes=3000),
        ScriptedPages(data, delay=0.1, ignore_range=True),
        ScriptedPages(data, delay=0.1, ignore_range_until_end=True),
        ScriptedPages(data, delay=0.1, own_page_bytes=50_000),
        ScriptedPages(data, delay=0.1, overlap_bytes=1),
    ):
        with trio.fail_after(10_000):
            async with open_stream(pages, size_bytes=size_bytes) as stream:
                await stream.seek(600_000)
                try:
                    got = await stream.read_all()
                except (RangeNotHonouredError, LimitError):
                    assert pages.ignore_range_until_end
                else:
                    assert got == data[600_000:]


@pytest.mark.parametrize("size", range(2005, 2020))
async def test_after_a_seek_back_the_last_page_is_judged_by_the_end_that_was_found(
    autojump_clock: trio.testing.MockClock, size: int
) -> None:
    """Of silence, a page that ends with its range and is shorter than the server's own could be anything."""
    pages = ScriptedPages(ZEROS[:size], own_page_bytes=668, faults={0: [ConnectionLostError("gone")]})
    async with open_stream(pages, options=StreamOptions(page_bytes=2000)) as stream:
        await stream.seek(1)
        assert await stream.read_all() == pages.data[1:]
        await stream.seek(0)
        assert await stream.read_all() == pages.data


@pytest.mark.parametrize("size_bytes", [2, 3, 4, 5, 6, 4000])
@pytest.mark.parametrize("kind", KINDS)
async def test_behind_a_short_size_too_the_bytes_are_those_of_their_place(
    autojump_clock: trio.testing.MockClock, kind: str, size_bytes: int
) -> None:
    """From 1 on, an inclusive end makes an answer as long as the announced size; so is the whole."""
    for size, wrong in ((size_bytes, 0), (size_bytes + 1, 0), (2 * size_bytes, 0), (size_bytes, 1)):
        data = KINDS[kind][:size]
        for pages in (
            ScriptedPages(data),
            ScriptedPages(data, overlap_bytes=1),
            ScriptedPages(data, ignore_range=True),
            ScriptedPages(data, ignore_range_until_end=True),
        ):
            async with open_stream(pages, size_bytes=size_bytes - wrong) as stream:
                await stream.seek(1)
                try:
                    got = await stream.read_all()
                except RangeNotHonouredError:
                    assert pages.ignore_range_until_end
                else:
                    assert got == data[1:]


async def test_nothing_at_the_beginning_but_too_much_later_is_never_put_together(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def odd(start: int, page: Page) -> Page:
        return Page(blobs=()) if start == 0 else page

    pages = ScriptedPages(
        RANDOM, own_page_bytes=90_000, rewrite=odd, delay=lambda start, _, __: 0.1 if start else 1.0
    )
    whole, statistics = b"", None
    try:
        _, statistics = await read(pages)
    except ContentError:
        return
    assert (whole, statistics.end_bytes) == (b"", 0), "no byte is the resource's"


@pytest.mark.parametrize("capacity_bytes", [None, 4096])
async def test_the_strategy_whole_asks_once(
    autojump_clock: trio.testing.MockClock, capacity_bytes: int | None
) -> None:
    pages = ScriptedPages(RANDOM, ignore_range=True)
    got, statistics = await read(pages, capacity_bytes=capacity_bytes, name="whole")
    assert got == RANDOM
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
