"""`Planner` through Python: conversions and each method's contract. Its decisions are tested in Rust."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from playhead._core import Planner, Request
from playhead.errors import UsageError


def ask(planner: Planner, now: float, head: int = 0) -> Request:
    request = planner.next(now, head)
    assert request is not None
    return request


def test_the_first_burst_is_three_growing_pages() -> None:
    planner = Planner(capacity_bytes=1 << 20)
    requests = []
    while request := planner.next(0.0, 0):
        requests.append((request.id, request.start, request.end))
    assert requests == [(0, 0, 8192), (1, 8192, 24576), (2, 24576, 57344)]


def test_a_number_of_reads_in_flight_is_a_hard_limit() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1)
    ask(planner, 0.0)
    assert planner.next(0.0, 0) is None


def test_a_stream_is_finished_at_the_first_claim_behind_the_announced_size() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1)
    planner.set_total(100)
    assert planner.total == 100
    page = ask(planner, 0.0)
    assert (page.start, page.end, page.is_probe, page.is_hedge, page.is_retry) == (
        0,
        100,
        False,
        False,
        False,
    )
    assert planner.on_answer(page.id, 0.1, 100)
    assert (planner.end, planner.finished) == (None, False)
    confirm = ask(planner, 0.1, 100)
    assert confirm.start == 100
    assert not planner.on_answer(confirm.id, 0.2, 0, "empty")
    assert (planner.end, planner.finished) == ((100, "empty"), True)
    assert planner.next(0.2, 100) is None


def test_an_exact_size_needs_no_confirming_read() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1)
    planner.set_total(100, exact=True)
    page = ask(planner, 0.0)
    planner.on_answer(page.id, 0.1, 100)
    assert (planner.end, planner.finished) == ((100, "size"), True)


def test_a_silent_read_is_named_until_it_is_reported_and_read_again() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1, timeout_seconds=7.0)
    request = ask(planner, 0.0)
    assert planner.timer() == 7.0
    assert planner.expired(6.9) == []
    assert planner.expired(7.0) == planner.expired(7.0) == [request.id]
    planner.on_error(request.id, 7.0, "lost")
    assert planner.expired(7.0) == []
    again = ask(planner, 7.0)
    assert (again.start, again.end, again.is_retry) == (request.start, request.end, True)


def test_bytes_of_any_answer_put_off_the_timeout() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1, timeout_seconds=7.0)
    request = ask(planner, 0.0)
    planner.heard(5.0)
    assert planner.expired(7.0) == []
    assert planner.expired(12.0) == [request.id]


def test_a_read_that_broke_off_is_halved() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1)
    request = ask(planner, 0.0)
    planner.on_error(request.id, 1.0, "lost", broke_off=True)
    again = ask(planner, 1.0)
    assert (again.start, again.end) == (0, request.end // 2)


def test_a_final_failure_breaks_the_stream_at_its_offset() -> None:
    planner = Planner(capacity_bytes=1 << 20, start=5, in_flight=1)
    planner.on_error(ask(planner, 0.0, 5).id, 0.1, "final")
    assert planner.broken == (5, "refused", 0.0)


def test_a_damaged_answer_is_read_once_more() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1)
    planner.on_error(ask(planner, 0.0).id, 0.1, "damaged")
    assert planner.broken is None
    planner.on_error(ask(planner, 0.1).id, 0.2, "damaged")
    assert planner.broken == (0, "refused", 0.0)


def test_patience_is_spent_only_while_the_reader_waits() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1, patience_seconds=10.0, timeout_seconds=5.0)
    planner.on_error(ask(planner, 0.0).id, 0.0, "lost")
    planner.set_demand(100.0, "waiting")
    planner.set_demand(104.0, "supplied")
    assert planner.waited_seconds(200.0) == 4.0
    planner.set_demand(200.0, "waiting")
    planner.next(205.9, 0)
    assert planner.broken is None
    planner.next(206.0, 0)
    assert planner.broken == (0, "patience", 0.0)


def test_a_wait_that_the_server_asks_for_past_the_patience_breaks_the_stream_with_it() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1, patience_seconds=10.0)
    planner.set_demand(0.0, "waiting")
    planner.on_error(ask(planner, 0.0).id, 0.0, "lost", code=503, retry_after_seconds=300.0)
    assert planner.broken == (0, "retry-after", 300.0)


def test_answers_without_a_new_byte_end_in_a_break() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1)
    for number in range(100):
        if planner.broken is None:
            planner.probe(0, 10)
            planner.on_answer(ask(planner, float(number)).id, number + 0.5, 10)
    assert planner.broken == (0, "stagnant", 9.0)


def test_an_answer_that_is_held_is_neither_late_nor_read_again() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1, timeout_seconds=5.0)
    request = ask(planner, 0.0)
    planner.hold(request.id)
    assert planner.expired(1000.0) == []
    assert ask(planner, 1000.0).start == request.end
    assert planner.on_answer(request.id, 1000.0, 100)


def test_bytes_that_the_caller_stored_are_progress() -> None:
    planner = Planner(capacity_bytes=1 << 20)
    planner.set_demand(0.0, "waiting")
    assert planner.waited_seconds(9.0) == 9.0
    planner.on_fed(9.0, 1234)
    assert planner.waited_seconds(9.0) == 0.0
    assert (planner.statistics().pages, planner.statistics().bytes) == (1, 1234)


def test_a_seek_names_the_stale_requests_and_their_answers_are_refused() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1)
    request = ask(planner, 0.0)
    assert planner.seek(1_000_000) == [request.id]
    assert not planner.on_answer(request.id, 0.1, 10)
    assert ask(planner, 0.1, 1_000_000).start == 1_000_000


def test_statistics_count_what_was_done() -> None:
    planner = Planner(capacity_bytes=1 << 20, in_flight=1)
    before = planner.statistics()
    assert (before.requests, before.bandwidth_bytes_per_second, before.rtt_seconds) == (0, None, None)
    request = ask(planner, 1.0)
    planner.on_answer(request.id, 3.0, 100)
    after = planner.statistics()
    assert (after.requests, after.pages, after.bytes) == (1, 1, 100)
    assert (after.bandwidth_bytes_per_second, after.rtt_seconds) == (50.0, 2.0)
    assert (after.in_flight, after.in_flight_max, after.retries, after.hedges) == (0, 1, 0, 0)
    assert not after.size_was_wrong
    assert planner.page_bytes > 0


def test_before_anything_is_known_of_the_link_half_a_second_in_hand_is_enough() -> None:
    planner = Planner(capacity_bytes=1 << 20)
    assert (Planner.START_SECONDS, Planner.REFILL_SECONDS) == (0.5, 1.0)
    assert not planner.can_play(0.0, 19_999, 40_000.0, None)
    assert planner.can_play(0.0, 20_000, 40_000.0, None)
    assert planner.can_play(0.0, 100, 40_000.0, 100), "all of it is in hand"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"capacity_bytes": 0}, r"capacity_bytes: expected 1 to 2\*\*40, got 0"),
        ({"capacity_bytes": 1, "page_bytes_max": 0}, r"page_bytes_max: expected 1 to 2\*\*40, got 0"),
        ({"capacity_bytes": 1, "in_flight": 257}, "in_flight: expected 1 to 256"),
        (
            {"capacity_bytes": 1, "timeout_seconds": float("nan")},
            "timeout_seconds: expected a finite number above 0",
        ),
        (
            {"capacity_bytes": 1, "patience_seconds": 0.0},
            "patience_seconds: expected a finite number above 0",
        ),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Planner(**settings)  # type: ignore[arg-type]  # a table of wrong settings


WORDS: list[tuple[str, Callable[[Planner], object]]] = [
    ("end", lambda planner: planner.on_answer(0, 0.0, 0, "eof")),  # type: ignore[arg-type]
    ("kind", lambda planner: planner.on_error(0, 0.0, "odd")),  # type: ignore[arg-type]
    ("demand", lambda planner: planner.set_demand(0.0, "hungry")),  # type: ignore[arg-type]
    ("by", lambda planner: planner.set_end(0, "luck")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("name", "use"), WORDS, ids=[name for name, _ in WORDS])
def test_a_word_that_is_not_known_is_refused_with_those_that_are(
    name: str, use: Callable[[Planner], object]
) -> None:
    planner = Planner(capacity_bytes=1 << 20)
    planner.next(0.0, 0)
    with pytest.raises(UsageError, match=rf"^{name}: expected one of \w+, .*, got \"\w+\"$"):
        use(planner)


def test_negative_numbers_are_refused() -> None:
    with pytest.raises(OverflowError):
        Planner(capacity_bytes=1).seek(-1)


def test_a_request_says_what_it_is() -> None:
    assert repr(ask(Planner(capacity_bytes=1 << 20), 0.0)) == (
        "Request(id=0, start=0, end=8192, is_retry=False, is_hedge=False, is_probe=False)"
    )
