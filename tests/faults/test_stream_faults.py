"""What goes wrong under a stream: it is retried, or said, and is never an end of file."""

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
    HttpStatusError,
    LimitError,
    PlayheadError,
    ServerError,
    StreamBrokenError,
    TextContentError,
)
from playhead.limits import Limits
from playhead.stream.options import StreamOptions
from playhead.stream.page import Page
from playhead.stream.reader import RangeStream, open_stream
from playhead.testing.pages import ScriptedPages

DATA = random.Random(6).randbytes(500_000)
LOST = ConnectionLostError("gone")


async def good_bytes_and_error(
    pages: ScriptedPages, *, options: StreamOptions | None = None, size_bytes: int | None = None
) -> tuple[bytes, PlayheadError, RangeStream]:
    """What a reader gets before a stream breaks, and with what."""
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


@pytest.mark.parametrize(
    "error", [LOST, DeadlineError("late"), HttpStatusError("502", status=502)], ids=lambda error: type(error)
)
@pytest.mark.parametrize("at", [0, 8192, 300_000, 499_999, 500_000])
async def test_a_page_that_fails_once_is_read_again_at_once(
    autojump_clock: trio.testing.MockClock, error: PlayheadError, at: int
) -> None:
    pages = ScriptedPages(DATA, faults={at: [error]}, delay=0.01)
    async with open_stream(pages) as stream:
        assert await stream.read_all() == DATA
    assert stream.statistics().retries == 1
    assert trio.current_time() < 1


async def test_a_page_that_stalls_is_asked_for_again(autojump_clock: trio.testing.MockClock) -> None:
    pages = ScriptedPages(DATA, stalls={300_000: 1000.0}, delay=0.05)
    async with open_stream(pages) as stream:
        assert await stream.read_all() == DATA
    statistics = stream.statistics()
    assert statistics.hedges + statistics.retries >= 1
    assert trio.current_time() < 10
    assert sum(record.cancelled for record in pages.reads) >= 1


async def test_the_first_page_that_stalls_times_out_and_is_asked_for_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pages = ScriptedPages(DATA[:5000], stalls={0: 1000.0})
    async with open_stream(pages, options=StreamOptions(timeout=2.0)) as stream:
        assert await stream.read_all() == DATA[:5000]
    assert trio.current_time() < 3


async def test_a_page_that_never_comes_breaks_the_stream_after_its_tries(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pages = ScriptedPages(DATA, faults={8192: [LOST] * 99}, delay=0.01)
    got, error, _ = await good_bytes_and_error(pages)
    assert got == DATA[:8192]
    assert isinstance(error, StreamBrokenError)
    assert (error.offset, error.tries) == (8192, 6)
    assert error.__cause__ is LOST
    assert sum(record.start == 8192 for record in pages.reads) == 6
    assert trio.current_time() > 1, "later tries wait"


async def test_a_silent_server_breaks_the_stream_with_a_deadline_as_cause(
    autojump_clock: trio.testing.MockClock,
) -> None:
    options = StreamOptions(timeout=1.0, max_tries=2)
    got, error, _ = await good_bytes_and_error(ScriptedPages(DATA, delay=1e6), options=options)
    assert got == b""
    assert isinstance(error, StreamBrokenError)
    assert isinstance(error.__cause__, DeadlineError)


@pytest.mark.parametrize("at", [0, 100_000, 490_000])
async def test_a_servers_final_answer_passes_unchanged_after_the_good_bytes_before_it(
    autojump_clock: trio.testing.MockClock, at: int
) -> None:
    refusal = ServerError("no", code=-32000)
    pages = ScriptedPages(DATA, faults={at: [refusal]}, delay=lambda start, _, __: 0.1 - start / 1e8)
    got, error, _ = await good_bytes_and_error(pages)
    assert error is refusal
    start = max(record.start for record in pages.reads if record.start <= at < record.end)
    assert got == DATA[:start]
    assert sum(record.start <= at < record.end for record in pages.reads) == 1, "never tried again"


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

    got, error, _ = await good_bytes_and_error(ScriptedPages(DATA, rewrite=spoil, delay=0.01))
    assert got == DATA[:8192]
    assert isinstance(error, Base64Error)
    assert (error.offset, error.index, error.kind) == (8192, 1000, "byte")
    assert f"byte {8192 + 750}" in str(error)


@pytest.mark.parametrize("cut", [1, 2, 3])
async def test_base64_without_its_padding_is_bad(autojump_clock: trio.testing.MockClock, cut: int) -> None:
    def spoil(start: int, _: Page) -> Page:
        return Page(blobs=(base64.b64encode(DATA[start:]).decode()[:-cut],) if start < 5000 else ())

    _, error, _ = await good_bytes_and_error(ScriptedPages(DATA[:5000], rewrite=spoil))
    assert isinstance(error, Base64Error)


async def test_text_where_bytes_are_expected_is_an_error(autojump_clock: trio.testing.MockClock) -> None:
    pages = ScriptedPages(DATA, rewrite=lambda _, __: Page(blobs=(), text_items=1))
    got, error, _ = await good_bytes_and_error(pages)
    assert got == b""
    assert isinstance(error, TextContentError)


async def test_bad_bytes_past_the_announced_size_are_not_taken_for_its_confirmation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def spoil(start: int, page: Page) -> Page:
        return Page(blobs=("!!!!",)) if start >= 400_000 else page

    got, error, _ = await good_bytes_and_error(ScriptedPages(DATA, rewrite=spoil), size_bytes=400_000)
    assert isinstance(error, ContentError)
    assert got == DATA[:400_000]


async def test_overlapping_pages_that_disagree_are_a_contradiction(
    autojump_clock: trio.testing.MockClock,
) -> None:
    _, error, _ = await good_bytes_and_error(
        ScriptedPages(DATA, overlap_bytes=500, overlap_lies=True, delay=0.1)
    )
    assert isinstance(error, ContradictionError)


@pytest.mark.parametrize("others", [[8192], [8192, 24_576]])
async def test_a_late_oversized_first_page_that_denies_a_later_one_is_a_contradiction(
    autojump_clock: trio.testing.MockClock, others: list[int]
) -> None:
    def deny(start: int, page: Page) -> Page:
        wrong = bytes(byte ^ 255 for byte in DATA[8192:12_288])
        return Page(blobs=(DATA[:8192] + wrong,)) if start == 0 else page

    pages = ScriptedPages(
        DATA, rewrite=deny, delay=lambda start, _, __: 0.1 if start in others else 0.2 + start / 1e8
    )
    got, error, _ = await good_bytes_and_error(pages)
    assert isinstance(error, ContradictionError)
    assert DATA.startswith(got)


async def test_overlapping_pages_that_agree_are_no_trouble(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stream(ScriptedPages(DATA, overlap_bytes=500, delay=0.1)) as stream:
        assert await stream.read_all() == DATA


async def test_bytes_behind_an_end_are_a_contradiction(autojump_clock: trio.testing.MockClock) -> None:
    def hole(start: int, page: Page) -> Page:
        return Page(blobs=()) if 100_000 < start < 200_000 else page

    pages = ScriptedPages(
        DATA, rewrite=hole, delay=lambda start, _, __: 1.0 if 100_000 < start < 200_000 else 0.1
    )
    got, error, _ = await good_bytes_and_error(pages)
    assert isinstance(error, ContradictionError)
    assert DATA.startswith(got)


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
    pages = ScriptedPages(DATA, ignore_range=True, faults={0: [LOST] * 99})
    async with open_stream(pages, strategy_name="whole", options=StreamOptions(max_tries=3)) as stream:
        with pytest.raises(StreamBrokenError) as caught:
            await stream.read_all()
    assert (caught.value.offset, caught.value.tries, len(pages.reads)) == (0, 3, 3)


async def test_a_seek_on_a_broken_stream_gives_its_error(autojump_clock: trio.testing.MockClock) -> None:
    refusal = ServerError("no", code=-32000)
    async with open_stream(ScriptedPages(DATA, faults={0: [refusal]})) as stream:
        with pytest.raises(ServerError):
            await stream.receive_some()
        with pytest.raises(ServerError) as caught:
            await stream.seek(5)
    assert caught.value is refusal


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
            async with open_stream(pages, options=StreamOptions(capacity_bytes=16_384)) as stream:
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
