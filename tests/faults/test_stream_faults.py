"""Faults under a stream: they are retried or reported, and are never an end of file."""

from __future__ import annotations

import base64
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from playhead.errors import (
    Base64Error,
    ClosedError,
    ConnectionLostError,
    ContentError,
    ContradictionError,
    DeadlineError,
    HttpRefusedError,
    HttpStatusError,
    LimitError,
    PlayheadError,
    ServerEndedError,
    ServerError,
    SessionLostError,
    StreamBrokenError,
    TextContentError,
)
from playhead.limits import Limits
from playhead.stream.answer import Page
from playhead.stream.options import StreamEvent, StreamOptions, StreamResumed, StreamWaiting
from playhead.stream.reader import RangeStream, open_stream
from playhead.stream.source import Demand
from playhead.testing.pages import ScriptedPages

DATA = random.Random(6).randbytes(500_000)
LOST = ConnectionLostError("gone")


async def good_bytes_and_error(
    pages: ScriptedPages, *, options: StreamOptions | None = None, size_bytes: int | None = None
) -> tuple[bytes, PlayheadError, RangeStream]:
    """Return what a reader gets before a stream breaks, and its error."""
    got = b""
    async with open_stream(pages, options=options or StreamOptions(), size_bytes=size_bytes) as stream:
        with trio.fail_after(10_000), pytest.raises(PlayheadError) as caught:  # noqa: PT012  # counts
            while chunk := await stream.receive_some():
                got += chunk
        with pytest.raises(PlayheadError) as again:
            await stream.receive_some()
        assert again.value is caught.value, "a broken stream stays broken"
        assert stream.statistics().ended_by is None
        await trio.testing.wait_all_tasks_blocked()
        assert pages.in_flight == 0
    return got, caught.value, stream


RETRIED = [
    LOST,
    DeadlineError("late"),
    SessionLostError("gone"),
    HttpStatusError("502", status=502),
    HttpStatusError("503", status=503),
    HttpStatusError("429", status=429),
    ServerError("internal", code=-32603),
    ServerError("busy", code=-32000),
    ServerError("busy", code=-32099),
    ServerError("odd", code=1234),
]
REFUSED = [
    *(ServerError("no", code=code) for code in (-32700, -32600, -32601, -32602, -32002)),
    HttpRefusedError("410", status=410),
]


def named(error: PlayheadError) -> str:
    return f"{type(error).__name__} {getattr(error, 'code', getattr(error, 'status', ''))}"


@pytest.mark.parametrize("error", RETRIED, ids=named)
@pytest.mark.parametrize("at", [8192, 300_000, 499_999])
async def test_a_page_that_fails_once_is_read_again_at_once(
    autojump_clock: trio.testing.MockClock, error: PlayheadError, at: int
) -> None:
    pages = ScriptedPages(DATA, faults={at: [error]}, delay=0.01)
    async with open_stream(pages) as stream:
        assert await stream.read_all() == DATA
    assert 1 <= stream.statistics().retries <= 3, (
        "a page that may have been too large: its half, the rest, and what follows the last page"
    )
    assert trio.current_time() < 1


@pytest.mark.parametrize("error", RETRIED[:3] + RETRIED[4:6], ids=named)
async def test_a_first_page_that_is_lost_is_read_again_at_once(
    autojump_clock: trio.testing.MockClock, error: PlayheadError
) -> None:
    async with open_stream(ScriptedPages(DATA, faults={0: [error]}, delay=0.01)) as stream:
        assert await stream.read_all() == DATA
    assert trio.current_time() < 1


@pytest.mark.parametrize("error", [*REFUSED, RETRIED[3], *RETRIED[6:]], ids=named)
async def test_any_other_error_before_the_first_byte_refuses_the_form_which_is_tried_once_more(
    autojump_clock: trio.testing.MockClock, error: PlayheadError
) -> None:
    async with open_stream(ScriptedPages(DATA, faults={0: [error]}, delay=0.01)) as stream:
        assert await stream.receive_some(1) == DATA[:1]
    assert 1 < trio.current_time() < 1.1, "a second round after one second"
    pages = ScriptedPages(DATA, faults={0: [error] * 99}, delay=0.01)
    got, broken, _ = await good_bytes_and_error(pages)
    assert got == b""
    assert type(broken) is type(error)
    assert str(error) in str(broken)
    assert sum(record.start == 0 for record in pages.reads) == 2
    assert trio.current_time() < 4, "a mistyped URI fails in about two seconds"


async def test_a_page_that_stalls_is_asked_for_again(autojump_clock: trio.testing.MockClock) -> None:
    pages = ScriptedPages(DATA, stalls={300_000: 1000.0}, delay=0.05)
    async with open_stream(pages) as stream:
        assert await stream.read_all() == DATA
    statistics = stream.statistics()
    assert statistics.hedges + statistics.retries >= 1
    assert trio.current_time() < 40
    assert sum(record.cancelled for record in pages.reads) >= 1


async def test_the_first_page_that_stalls_times_out_and_is_asked_for_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pages = ScriptedPages(DATA[:5000], stalls={0: 1000.0})
    async with open_stream(pages, options=StreamOptions(timeout=2.0)) as stream:
        assert await stream.read_all() == DATA[:5000]
    assert trio.current_time() < 4


@pytest.mark.parametrize("demand", [Demand.FED, Demand.PAUSED])
async def test_a_player_with_audio_in_hand_or_at_rest_costs_no_patience(
    autojump_clock: trio.testing.MockClock, demand: Demand
) -> None:
    pages = ScriptedPages(DATA, faults={8192: [LOST] * 9999}, delay=0.01)
    async with open_stream(pages) as stream:
        stream.set_demand(demand)
        with trio.move_on_after(1000):
            await stream.read_all()
        assert stream.position == 8192
        tried = sum(record.start == 8192 for record in pages.reads)
        assert tried < 30 if demand is Demand.PAUSED else tried > 150, "paused, once a minute"
        stream.set_demand(Demand.WAITING)
        with pytest.raises(StreamBrokenError):
            await stream.receive_some()
    assert 1060 <= trio.current_time() < 1062


async def test_a_listener_is_told_of_a_wait_and_of_its_end(autojump_clock: trio.testing.MockClock) -> None:
    told: list[tuple[float, StreamEvent]] = []
    options = StreamOptions(on_event=lambda event: told.append((trio.current_time(), event)))
    error = HttpStatusError("later", status=503, retry_after_seconds=10.0)
    async with open_stream(
        ScriptedPages(DATA, faults={8192: [error]}, delay=0.01), options=options
    ) as stream:
        watched: list[StreamEvent] = []
        stream.watch(watched.append)
        assert await stream.read_all() == DATA
    assert watched == [event for _, event in told]
    (first, waiting), (second, resumed) = told
    assert isinstance(waiting, StreamWaiting)
    assert (waiting.offset, waiting.last_error, waiting.patience_seconds) == (8192, error, 60.0)
    assert waiting.seconds == pytest.approx(3.0, abs=0.1)
    assert first == pytest.approx(3.0, abs=0.2)
    assert isinstance(resumed, StreamResumed)
    assert resumed.seconds == pytest.approx(10.0, abs=0.2)
    assert second == pytest.approx(10.0, abs=0.2)


async def test_a_stream_that_flows_tells_nothing(autojump_clock: trio.testing.MockClock) -> None:
    told: list[StreamEvent] = []
    async with open_stream(
        ScriptedPages(DATA, delay=2.5), options=StreamOptions(on_event=told.append)
    ) as stream:
        assert await stream.read_all() == DATA
        await trio.sleep(10)
    assert told == []


@pytest.mark.parametrize("refusal", REFUSED, ids=named)
@pytest.mark.parametrize("at", [100_000, 490_000])
async def test_a_refusal_of_a_form_that_delivers_is_tried_three_times_more_and_passes_unchanged(
    autojump_clock: trio.testing.MockClock, at: int, refusal: PlayheadError
) -> None:
    pages = ScriptedPages(DATA, faults={at: [refusal] * 99}, delay=0.01)
    got, error, _ = await good_bytes_and_error(pages, size_bytes=len(DATA))
    assert error is refusal
    assert got == DATA[: len(got)]
    assert at - 102_400 <= len(got) <= at
    assert 21 <= trio.current_time() < 24, "after 1, 5 and 15 s"


async def test_a_refusal_that_passes_is_forgotten(autojump_clock: trio.testing.MockClock) -> None:
    pages = ScriptedPages(DATA, faults={100_000: [REFUSED[3]] * 3, 400_000: [REFUSED[3]] * 3}, delay=0.01)
    async with open_stream(pages) as stream:
        assert await stream.read_all() == DATA


async def test_a_process_that_may_not_be_started_again_breaks_the_stream_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ended = ServerEndedError("exited with 1")
    got, error, _ = await good_bytes_and_error(ScriptedPages(DATA, faults={8192: [ended] * 9}, delay=0.01))
    assert (got, error) == (DATA[:8192], ended)
    assert trio.current_time() < 1


async def test_text_that_says_timeout_is_read_again(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[int] = []

    def slow_origin(start: int, page: Page) -> Page:
        if start in {0, 8192} and seen.count(start) < 3:
            seen.append(start)
            return Page(blobs=(), text_items=1, text="Timeout while reading from the origin")
        return page

    async with open_stream(ScriptedPages(DATA, rewrite=slow_origin, delay=0.01)) as stream:
        assert await stream.read_all() == DATA


async def test_an_error_past_the_end_is_nobodys_concern(autojump_clock: trio.testing.MockClock) -> None:
    pages = ScriptedPages(DATA[:5000], faults={30_000: [ServerError("bad range", code=-32602)]})
    async with open_stream(pages) as stream:
        assert await stream.read_all() == DATA[:5000]


async def test_bad_base64_is_named_with_its_page_and_byte(autojump_clock: trio.testing.MockClock) -> None:
    def spoil(start: int, page: Page) -> Page:
        if start != 8192:
            return page
        (blob,) = page.blobs
        assert isinstance(blob, str)
        return Page(blobs=(blob[:1000] + "!" + blob[1001:],))

    pages = ScriptedPages(DATA, rewrite=spoil, delay=0.01)
    got, error, _ = await good_bytes_and_error(pages)
    assert got == DATA[:8192]
    assert sum(record.start == 8192 for record in pages.reads) == 2, "read once more"
    assert isinstance(error, Base64Error)
    assert (error.offset, error.index, error.kind) == (8192, 1000, "byte")
    assert f"byte {8192 + 750}" in str(error)


async def test_bad_base64_that_is_good_the_second_time_is_no_trouble(
    autojump_clock: trio.testing.MockClock,
) -> None:
    spoiled: set[int] = set()

    def spoil(start: int, page: Page) -> Page:
        if start in spoiled or start not in {0, 8192, 57_344}:
            return page
        spoiled.add(start)
        return Page(blobs=("!!!!",))

    async with open_stream(ScriptedPages(DATA, rewrite=spoil, delay=0.01)) as stream:
        assert await stream.read_all() == DATA


@pytest.mark.parametrize("cut", [1, 2, 3])
async def test_base64_without_its_padding_is_bad(autojump_clock: trio.testing.MockClock, cut: int) -> None:
    def spoil(start: int, _: Page) -> Page:
        return Page(blobs=(base64.b64encode(DATA[start:]).decode()[:-cut],) if start < 5000 else ())

    _, error, _ = await good_bytes_and_error(ScriptedPages(DATA[:5000], rewrite=spoil))
    assert isinstance(error, Base64Error)


@pytest.mark.parametrize("at", [0, 8192])
async def test_text_where_bytes_are_expected_is_an_error(
    autojump_clock: trio.testing.MockClock, at: int
) -> None:
    def speak(start: int, page: Page) -> Page:
        return Page(blobs=(), text_items=1, text="no audio here") if start >= at else page

    got, error, _ = await good_bytes_and_error(ScriptedPages(DATA, rewrite=speak))
    assert got == DATA[:at]
    assert isinstance(error, TextContentError)


async def test_bad_bytes_past_the_announced_size_are_not_taken_for_its_confirmation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def spoil(start: int, page: Page) -> Page:
        return Page(blobs=("!!!!",)) if start >= 400_000 else page

    got, error, _ = await good_bytes_and_error(ScriptedPages(DATA, rewrite=spoil), size_bytes=400_000)
    assert isinstance(error, ContentError)
    assert got == DATA[:400_000]


@pytest.mark.parametrize("lies", [True, False])
async def test_bytes_past_a_pages_range_are_never_delivered(
    autojump_clock: trio.testing.MockClock, lies: bool
) -> None:
    async with open_stream(ScriptedPages(DATA, overlap_bytes=500, overlap_lies=lies, delay=0.1)) as stream:
        assert await stream.read_all() == DATA


@pytest.mark.parametrize("others", [[8192], [8192, 24_576]])
async def test_a_late_first_page_that_goes_on_wrongly_past_its_range_is_clipped(
    autojump_clock: trio.testing.MockClock, others: list[int]
) -> None:
    def deny(start: int, page: Page) -> Page:
        wrong = bytes(byte ^ 255 for byte in DATA[8192:12_288])
        return Page(blobs=(DATA[:8192] + wrong,)) if start == 0 else page

    pages = ScriptedPages(
        DATA, rewrite=deny, delay=lambda start, _, __: 0.1 if start in others else 0.2 + start / 1e8
    )
    async with open_stream(pages) as stream:
        assert await stream.read_all() == DATA


async def test_a_byte_that_is_read_twice_and_differs_is_a_contradiction(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A claim by `[DONE]` is confirmed from the byte before it, which is held."""

    def flip(start: int, page: Page) -> Page:
        return Page(blobs=(bytes([DATA[4999] ^ 255]),)) if start == 4999 else page

    got, error, _ = await good_bytes_and_error(ScriptedPages(DATA[:5000], end="done", rewrite=flip))
    assert isinstance(error, ContradictionError)
    assert got == DATA[:5000]


async def test_a_false_claim_is_read_again_and_three_are_a_contradiction(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def server(claims: int) -> ScriptedPages:
        seen: list[int] = []

        def hole(start: int, page: Page) -> Page:
            if not 100_000 < start < 200_000 or seen.count(start) >= claims:
                return page
            seen.append(start)
            return Page(blobs=())

        return ScriptedPages(DATA, rewrite=hole, delay=lambda start, *_: 0.1 if start < 200_000 else 0.05)

    async with open_stream(server(1)) as stream:
        assert await stream.read_all() == DATA
    got, error, _ = await good_bytes_and_error(server(99))
    assert isinstance(error, ContradictionError)
    assert DATA.startswith(got)
    assert 100_000 < error.offset == len(got)


async def test_an_endless_stream_ends_at_its_cap_with_the_bytes_below_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for options, limits in (
        (StreamOptions(max_bytes=1_234_567), Limits()),
        (StreamOptions(), Limits(stream_bytes=1_234_567)),
    ):
        got = b""
        async with open_stream(
            ScriptedPages(DATA, endless=True, delay=0.01), options=options, limits=limits
        ) as stream:
            with pytest.raises(LimitError) as caught:  # noqa: PT012  # counts until it raises
                while chunk := await stream.receive_some():
                    got += chunk
        assert caught.value.limit == "stream_bytes"
        assert got == (DATA * 3)[:1_234_567]


async def test_a_stream_of_exactly_the_cap_is_whole(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stream(ScriptedPages(DATA), options=StreamOptions(max_bytes=len(DATA))) as stream:
        assert await stream.read_all() == DATA


async def test_a_cap_holds_for_an_oversized_page_too(autojump_clock: trio.testing.MockClock) -> None:
    got, error, _ = await good_bytes_and_error(
        ScriptedPages(DATA, ignore_range=True), options=StreamOptions(max_bytes=100_000)
    )
    assert isinstance(error, LimitError)
    assert got == DATA[:100_000]


@pytest.mark.parametrize("own_page_bytes", [None, 400_000])
async def test_the_reads_of_a_server_with_large_pages_are_tried_again_too(
    autojump_clock: trio.testing.MockClock, own_page_bytes: int | None
) -> None:
    faults = {at: [LOST, LOST] for at in (0, 400_000, 500_000)}
    pages = ScriptedPages(
        DATA, own_page_bytes=own_page_bytes, ignore_range=own_page_bytes is None, faults=faults, delay=0.1
    )
    async with open_stream(pages, options=StreamOptions(capacity_bytes=65_536)) as stream:
        assert await stream.read_all() == DATA
    assert stream.statistics().retries >= 2


async def test_a_whole_that_never_comes_breaks_the_stream(autojump_clock: trio.testing.MockClock) -> None:
    pages = ScriptedPages(DATA, ignore_range=True, faults={0: [LOST] * 999})
    async with open_stream(pages, strategy_name="whole") as stream:
        with pytest.raises(StreamBrokenError) as caught:
            await stream.read_all()
    assert caught.value.offset == 0
    assert 60 <= trio.current_time() < 62
    assert 5 < len(pages.reads) < 30


async def test_a_seek_on_a_broken_stream_gives_its_error(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stream(ScriptedPages(DATA, faults={0: [ServerError("no", code=-32602)] * 9})) as stream:
        with pytest.raises(ServerError) as broken:
            await stream.receive_some()
        with pytest.raises(ServerError) as caught:
            await stream.seek(5)
    assert caught.value is broken.value


class CancelAt(trio.abc.Instrument):
    """Cancels a scope before the nth step that any task takes."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.steps = 0
        self.scope = trio.CancelScope()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        if self.steps == self.step:
            self.scope.cancel()


PATIENT = StreamOptions(capacity_bytes=16_384, timeout=300.0, patience_seconds=600.0)
"""A clock that runs a thousand times as fast makes 30 s of a pause of this process of 30 ms."""
SERVERS: dict[str, Callable[[], ScriptedPages]] = {
    "honest": lambda: ScriptedPages(DATA[:90_000], delay=0.01),
    "ignores ranges": lambda: ScriptedPages(DATA[:90_000], ignore_range=True, delay=0.01),
    "own page size": lambda: ScriptedPages(DATA[:90_000], own_page_bytes=20_000, delay=0.01),
    "loses a page": lambda: ScriptedPages(DATA[:90_000], faults={9000: [LOST]}, delay=0.01),
}


@pytest.mark.parametrize("server", SERVERS)
def test_cancelled_at_any_step_it_leaves_no_read_and_no_file(server: str, tmp_path: Path) -> None:
    async def scene(instrument: CancelAt, pages: ScriptedPages) -> bool:
        done = False
        with instrument.scope:
            async with open_stream(pages, options=PATIENT) as stream:
                await stream.receive_some(10)
                await stream.seek(40_000)
                await stream.save(tmp_path / "song.bin")
                done = True
        return done

    step, done = 0, False
    while not done:
        step += 7 if step > 150 else 1  # the beginning closely, the steady state in strides
        instrument, pages = CancelAt(step), SERVERS[server]()
        clock = trio.testing.MockClock(rate=1000.0)
        done = trio.run(scene, instrument, pages, clock=clock, instruments=[instrument])
        assert pages.in_flight == 0, step
        left = [path.name for path in tmp_path.iterdir()]
        if done:
            assert left == ["song.bin"]
        else:
            assert not left or left == ["song.bin"], step
            for path in tmp_path.iterdir():
                assert path.read_bytes() == DATA[40_000:90_000]
                path.unlink()
    assert step > 20


@pytest.mark.parametrize("server", SERVERS)
def test_cancelled_at_any_step_it_leaves_no_thread_hanging(server: str) -> None:
    async def scene(instrument: CancelAt, pages: ScriptedPages, outcome: list[str]) -> None:
        def consume(stream: RangeStream) -> None:
            buffer = bytearray(10_000)
            try:
                while stream.readinto(buffer, 30.0):
                    pass
                outcome.append("end")
            except ClosedError:
                outcome.append("closed")

        thread: threading.Thread | None = None
        try:
            with instrument.scope:
                async with open_stream(pages, options=StreamOptions(capacity_bytes=16_384)) as stream:
                    thread = threading.Thread(target=consume, args=(stream,))
                    thread.start()
                    await trio.sleep_forever()
        finally:
            if thread is not None:
                thread.join(10.0)
                assert not thread.is_alive()

    for step in (*range(1, 12), *range(12, 60, 6)):
        instrument, pages = CancelAt(step), SERVERS[server]()
        outcome: list[str] = []

        async def guarded(
            instrument: CancelAt = instrument, pages: ScriptedPages = pages, outcome: list[str] = outcome
        ) -> None:
            with trio.move_on_after(0.25):  # the steady state may have fewer steps than that
                await scene(instrument, pages, outcome)

        trio.run(guarded, instruments=[instrument])
        assert outcome in (["closed"], ["end"], []), step
        assert pages.in_flight == 0
