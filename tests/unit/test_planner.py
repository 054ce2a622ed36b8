"""`Planner` through Python: conversions and each method's contract. Its decisions are tested in Rust."""

import pytest

from playhead._core import Planner
from playhead.errors import UsageError


def test_first_burst_is_three_growing_pages() -> None:
    planner = Planner(capacity_bytes=1 << 20)
    requests = []
    while request := planner.next(0.0, 0):
        requests.append((request.id, request.start, request.end))
    assert requests == [(0, 0, 8192), (1, 8192, 24576), (2, 24576, 57344)]


def test_a_stream_is_finished_once_an_empty_answer_proves_the_end() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1)
    first = planner.next(0.0, 0)
    assert first is not None
    assert planner.on_page(first.id, 0.1, 100)
    assert (planner.end, planner.finished) == (None, False)
    rest = planner.next(0.1, 100)
    assert rest is not None
    assert rest.start == 100
    assert not planner.on_page(rest.id, 0.2, 0)
    assert (planner.end, planner.finished) == (100, True)
    assert planner.next(0.2, 100) is None


def test_a_request_past_its_deadline_is_named_until_it_is_reported() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1)
    request = planner.next(0.0, 0)
    assert request is not None
    assert planner.timer() == request.deadline
    assert planner.expired(request.deadline) == [request.id]
    planner.on_error(request.id, request.deadline, True)
    assert planner.expired(request.deadline) == []
    again = planner.next(request.deadline, 0)
    assert again is not None
    assert (again.start, again.end, again.attempt) == (request.start, request.end, 1)


def test_a_refusal_breaks_the_stream_at_its_offset() -> None:
    planner = Planner(capacity_bytes=1 << 20, start=5, in_flight=1)
    request = planner.next(0.0, 5)
    assert request is not None
    planner.on_error(request.id, 0.1, False)
    assert planner.failed == (5, 1)


def test_bytes_past_a_claimed_end_are_a_contradiction() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=2)
    low, high = planner.next(0.0, 0), planner.next(0.0, 0)
    assert low is not None
    assert high is not None
    assert planner.on_page(high.id, 0.1, high.end - high.start)
    assert not planner.on_page(low.id, 0.1, 0)
    assert (planner.contradiction, planner.end, planner.finished) == (0, None, False)


def test_seek_names_the_stale_requests_and_their_answers_are_refused() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1)
    request = planner.next(0.0, 0)
    assert request is not None
    assert planner.seek(1_000_000) == [request.id]
    assert not planner.on_page(request.id, 0.1, 10)
    after = planner.next(0.1, 1_000_000)
    assert after is not None
    assert after.start == 1_000_000


def test_an_announced_size_is_confirmed_by_one_read_past_it() -> None:
    planner = Planner(capacity_bytes=1 << 20)
    planner.set_total(10_000)
    first, second, confirm = (planner.next(0.0, 0) for _ in range(3))
    assert first is not None
    assert second is not None
    assert confirm is not None
    assert (second.end, second.is_confirm) == (10_000, False)
    assert (confirm.start, confirm.is_confirm, confirm.is_hedge) == (10_000, True, False)
    assert planner.next(0.0, 0) is None
    planner.on_page(confirm.id, 0.1, 5)
    assert planner.statistics().size_was_wrong


def test_statistics_count_what_was_done() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1)
    before = planner.statistics()
    assert (before.requests, before.bandwidth_bytes_per_second, before.rtt_seconds) == (0, None, None)
    request = planner.next(1.0, 0)
    assert request is not None
    planner.on_page(request.id, 3.0, 100)
    after = planner.statistics()
    assert (after.requests, after.pages, after.bytes, after.short_pages) == (1, 1, 100, 1)
    assert (after.bandwidth_bytes_per_second, after.rtt_seconds) == (50.0, 2.0)
    assert (after.in_flight, after.in_flight_max, after.retries, after.hedges, after.empty_pages) == (
        0,
        1,
        0,
        0,
        0,
    )
    assert not after.ended_by_size
    assert after.page_bytes > 0


def test_a_whole_short_stream_can_be_played() -> None:
    planner = Planner(capacity_bytes=1 << 20)
    assert not planner.can_play(0.0, 100, 8192, None)
    assert planner.can_play(0.0, 100, 8192, 100)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"capacity_bytes": 0}, r"capacity_bytes must be 1 to 2\*\*40, got 0"),
        ({"capacity_bytes": 1, "in_flight": 257}, "in_flight must be 1 to 256"),
        (
            {"capacity_bytes": 1, "deadline_seconds": float("nan")},
            "deadline_seconds must be a finite number above 0",
        ),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Planner(**settings)  # type: ignore[arg-type]  # a table of wrong settings


def test_negative_numbers_are_refused() -> None:
    with pytest.raises(OverflowError):
        Planner(capacity_bytes=1).seek(-1)


def test_request_says_what_it_is() -> None:
    request = Planner(capacity_bytes=1 << 20).next(0.0, 0)
    assert (
        repr(request)
        == "Request(id=0, start=0, end=8192, deadline=8.0, attempt=0, is_hedge=False, is_confirm=False)"
    )
