"""The queue: what plays next, and that one item's failure, hanging or format is its own."""

from __future__ import annotations

import hashlib
import threading
import wave
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path

import miniaudio
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from playhead.errors import ClosedError, NoDeviceError, StreamBrokenError, UnsupportedFormatError, UsageError
from playhead.limits import DEFAULT_LIMITS
from playhead.playback import queue
from playhead.playback.formats import PcmFormat
from playhead.playback.pcm_buffer import PcmBuffer, PcmSequence
from playhead.playback.player import Player
from playhead.playback.queue import QUEUE_ITEMS, RESTART_SECONDS, Queue, as_items
from playhead.playback.sinks import NullSink, Sink, WaveSink
from playhead.playback.sinks import null as null_sink
from playhead.playback.sinks.device import Device, play_through_device
from playhead.playback.state import ItemEnd, ItemStart, PlayerEvent, Repeat, StateChange, Status
from playhead.stream.source import Playable
from playhead.testing.media import ScriptedMedia, ScriptedReader
from tests.unit.playback.pieces import (
    BROKEN,
    DATA,
    DeafReader,
    FreshMedia,
    fast,
    held,
    piece,
    reader_of,
    wait_until,
)

MIXED = ["chord.wav", "gapless.mp3", "chord.flac"]
FRAMES = {"chord.wav": 32_000, "gapless.mp3": 132_300, "chord.flac": 48_000}


def damaged(title: str = "damaged") -> ScriptedMedia:
    return ScriptedMedia(reader=ScriptedReader(b"<html>not music</html>"), title=title)


def told(event: PlayerEvent) -> str:
    match event:
        case StateChange():
            return str(event.state.status)
        case ItemEnd(stopped=True):
            return f"stopped {event.index}"
        case _:
            return f"{type(event).__name__.removeprefix('Item').lower()} {event.index}"


Events = trio.MemoryReceiveChannel[PlayerEvent]


async def story(events: Events) -> list[str]:
    """Return the events of items, once the player has closed."""
    return [told(event) async for event in events if not isinstance(event, StateChange)]


async def started(events: Events, index: int) -> None:
    with trio.fail_after(20):
        async for event in events:
            if isinstance(event, ItemStart) and event.index == index:
                return


class GatedSink:
    """Takes nothing of a buffer until it is allowed to: the test decides when an item is over."""

    name = "gated"

    def __init__(self) -> None:
        self.allowed = trio.Semaphore(0)
        self.at_sink = 0
        self.most_at_sink = 0
        self.formats: list[int] = []

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        async for buffer in buffers:
            self.at_sink += 1
            self.most_at_sink = max(self.most_at_sink, self.at_sink)
            self.formats.append(buffer.format.rate_hz)
            try:
                await self.allowed.acquire()
                await NullSink(real_time=False).play(PcmSequence(buffer))
            finally:
                self.at_sink -= 1


@asynccontextmanager
async def playing(sink: Sink, *items: Playable) -> AsyncIterator[tuple[Player, Events]]:
    """A player whose sink has the first item."""
    async with Player(sink) as player:
        events = player.events()
        await player.play(items)
        await started(events, 0)
        yield player, events


# --- in order --------------------------------------------------------------------------------------------


@pytest.mark.requirement("PQ-01", "PQ-04", "PQ-12")
async def test_several_items_play_in_order_each_whole_and_in_its_own_format() -> None:
    sink = fast()
    async with Player(sink) as player:
        events = player.events()
        await player.play(piece(name) for name in MIXED)
        await player.wait_finished()
        state = player.snapshot()
    assert await story(events) == ["start 0", "end 0", "start 1", "end 1", "start 2", "end 2"]
    assert (state.status, state.index, state.queue_length) == (Status.IDLE, 2, 3)
    assert (state.title, state.last_error) == ("chord.flac", None)
    for name, report in zip(MIXED, sink.reports, strict=True):
        local = miniaudio.decode(
            (DATA / name).read_bytes(), nchannels=report.format.channels, sample_rate=report.format.rate_hz
        )
        assert report.sha256 == hashlib.sha256(local.samples).hexdigest()
    assert len({report.format.rate_hz for report in sink.reports}) > 1
    assert sink.reports[-1] == sink.report


async def test_there_is_no_moment_of_rest_between_two_items() -> None:
    async with Player(fast()) as player:
        events = player.events()
        await player.play([piece("chord.wav"), piece("chord.wav")])
        await player.wait_finished()
    assert [told(event) async for event in events] == [
        "buffering",
        "start 0",
        "playing",
        "end 0",
        "buffering",
        "start 1",
        "playing",
        "end 1",
        "idle",
    ]


async def test_the_next_item_is_read_while_the_current_one_still_sounds_and_waits_for_its_turn() -> None:
    sink = GatedSink()
    second = piece("chord.wav", hold_at=10_000)
    async with playing(sink, short(), second) as (player, events):
        await held(reader_of(second))
        await wait_all_tasks_blocked()
        assert (player.snapshot().index, sink.at_sink) == (0, 1)
        sink.allowed.release()
        reader_of(second).release()
        await started(events, 1)
        sink.allowed.release()
        await player.wait_finished()
        assert player.snapshot().frames == 32_000
    assert sink.most_at_sink == 1


def short() -> ScriptedMedia:
    """A tenth of a second: decoded whole before the sink takes anything."""
    return ScriptedMedia(
        reader=ScriptedReader(bytes(1600)), mime_type="audio/L16;rate=8000;channels=1", title="short"
    )


async def test_an_item_that_fails_while_the_one_before_still_sounds_is_told_in_its_turn() -> None:
    sink = GatedSink()
    bad = damaged()
    async with playing(sink, short(), bad, short()) as (player, events):
        await wait_until(lambda: bad.closings)
        await wait_all_tasks_blocked()
        assert (player.snapshot().index, player.snapshot().last_error) == (0, None)
        sink.allowed.release()
        await started(events, 2)
        sink.allowed.release()
        with pytest.raises(UnsupportedFormatError):
            await player.wait_finished()
    assert sink.most_at_sink == 1


# --- what fails ------------------------------------------------------------------------------------------


@pytest.mark.requirement("PQ-06", "PQ-12")
async def test_a_failed_item_is_told_and_the_queue_goes_on() -> None:
    sink = fast()
    broken = ScriptedMedia(
        reader=ScriptedReader(bytes(3000), error=BROKEN), mime_type="audio/L16;rate=8000", title="cut"
    )
    async with Player(sink) as player:
        events = player.events()
        await player.play([piece("chord.wav"), broken, damaged(), piece("gapless.mp3")])
        with pytest.raises(StreamBrokenError) as caught:
            await player.wait_finished()
        state = player.snapshot()
    assert caught.value is BROKEN, "the first failure"
    assert (state.status, state.index) == (Status.IDLE, 3), "the last item ended by itself"
    assert isinstance(state.last_error, UnsupportedFormatError)
    assert await story(events) == ["start 0", "end 0", "start 1", "error 1", "error 2", "start 3", "end 3"]
    assert sink.report is not None
    assert sink.report.frames == 132_300


async def test_a_new_play_forgets_the_failures_of_the_queue_before() -> None:
    async with Player(fast()) as player:
        await player.play(damaged())
        with pytest.raises(UnsupportedFormatError):
            await player.wait_finished()
        await player.enqueue(piece("chord.wav"))
        await player.wait_finished()
        assert player.snapshot().last_error is None
        await player.play([damaged(), piece("chord.wav")])
        await player.play(piece("chord.wav"))
        await player.wait_finished()


@pytest.mark.requirement("PQ-06")
@pytest.mark.parametrize("bad", [damaged, lambda: ScriptedMedia(reader=ScriptedReader(b"", error=BROKEN))])
async def test_asked_to_it_stops_at_an_error_and_next_goes_on(bad: object) -> None:
    assert callable(bad)
    async with Player(fast(), stop_on_error=True) as player:
        events = player.events()
        await player.play([piece("chord.wav"), bad(), piece("gapless.mp3")])
        with pytest.raises((UnsupportedFormatError, StreamBrokenError)):
            await player.wait_finished()
        assert (player.snapshot().status, player.snapshot().index) == (Status.ERROR, 1)
        await player.next()
        with pytest.raises((UnsupportedFormatError, StreamBrokenError)):
            await player.wait_finished()
    assert await story(events) == ["start 0", "end 0", "error 1", "start 2", "end 2"]


async def test_a_sink_that_fails_an_item_ends_the_queue_only_when_asked() -> None:
    class OnceDeaf(NullSink):
        def __init__(self, upcoming: ScriptedMedia, *, real_time: bool) -> None:
            super().__init__(real_time=real_time)
            self.upcoming = upcoming
            self.failed = trio.Event()

        async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
            if not self.failed.is_set():
                await held(reader_of(self.upcoming))
                self.failed.set()
                raise NoDeviceError("no sound device")
            await super().play(buffers)

    for stop_on_error, index in ((False, 1), (True, 0)):
        second = piece("chord.wav", hold_at=10_000)
        sink = OnceDeaf(second, real_time=False)
        async with Player(sink, stop_on_error=stop_on_error) as player:
            await player.play([short(), second])
            await sink.failed.wait()
            await wait_all_tasks_blocked()
            assert reader_of(second).closed == stop_on_error
            reader_of(second).release()
            with trio.fail_after(20), pytest.raises(NoDeviceError):
                await player.wait_finished()
            assert player.snapshot().index == index


# --- next, previous, enqueue, stop -------------------------------------------------------------------------


@pytest.mark.requirement("PQ-03")
async def test_next_leaves_an_item_whose_network_hangs() -> None:
    hanging = piece("chord.flac", hold_at=1000)
    async with Player(fast()) as player:
        events = player.events()
        await player.play([hanging, piece("chord.wav")])
        await held(reader_of(hanging))
        assert player.snapshot().status is Status.BUFFERING
        await player.next()
        assert player.snapshot().index == 1
        assert (hanging.closings, reader_of(hanging).readers_blocked) == (1, 0)
        await player.wait_finished()
    assert await story(events) == ["stopped 0", "start 1", "end 1"]


async def test_next_at_the_last_item_stops_it_and_previous_leads_back() -> None:
    hanging = piece("chord.flac", hold_at=1000)
    async with Player(fast()) as player:
        await player.play(hanging)
        await held(reader_of(hanging))
        await player.next()
        assert (player.snapshot().status, player.snapshot().queue_length) == (Status.STOPPED, 1)
        await player.next()
        assert player.snapshot().status is Status.STOPPED
        hanging.reader = ScriptedReader((DATA / "chord.flac").read_bytes())
        await player.previous()
        await player.wait_finished()
        assert player.snapshot().frames == 48_000


async def test_next_and_previous_without_a_queue_do_nothing() -> None:
    async with Player(fast()) as player:
        await player.next()
        await player.previous()
        await player.play(piece("chord.wav"))
        await player.stop()
        await player.next()
        await player.previous()
        assert player.snapshot().status is Status.STOPPED


async def test_next_plays_on_although_the_item_was_paused_but_the_end_of_an_item_keeps_the_pause() -> None:
    sink = GatedSink()
    async with Player(sink) as player:
        events = player.events()
        await player.play([short(), short(), short()])
        player.pause()
        await player.next()
        await started(events, 1)
        assert player.snapshot().status is Status.BUFFERING

        class PausedAtTheLastFrame(GatedSink):
            async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
                async for buffer in buffers:
                    await NullSink(real_time=False).play(PcmSequence(buffer))
                    player.pause()

        player._controller._sink = PausedAtTheLastFrame()
        await player.play([short(), short()])
        await wait_until(lambda: player.snapshot().index == 1)
        await wait_all_tasks_blocked()
        assert player.snapshot().status is Status.PAUSED
        assert player.snapshot().frames == 0


@pytest.mark.requirement("PQ-03")
@pytest.mark.parametrize(("seconds", "index"), [(1.0, 0), (RESTART_SECONDS + 0.5, 1)])
async def test_previous_goes_back_early_in_an_item_and_restarts_it_later(seconds: float, index: int) -> None:
    long = FreshMedia(frames=8000 * 10, hold_at=int((seconds + 1) * 16_000))
    async with Player(fast()) as player:
        events = player.events()
        await player.play([FreshMedia(), long, FreshMedia()])
        await started(events, 1)
        await wait_until(lambda: player.snapshot().position_seconds >= seconds)
        await player.previous()
        assert player.snapshot().index == index
        await started(events, index)
        assert player.snapshot().position_seconds < seconds


async def test_jump_plays_an_item_of_the_queue_and_its_titles_are_listed() -> None:
    sink = GatedSink()
    async with Player(sink) as player:
        assert player.queue_titles() == ()
        events = player.events()
        await player.play([FreshMedia(title=name) for name in MIXED])
        assert player.queue_titles() == tuple(MIXED)
        await started(events, 0)
        await player.jump(2)
        await started(events, 2)
        player.pause()
        await player.jump(0)
        await started(events, 0)
        assert (player.snapshot().title, player.snapshot().index) == (MIXED[0], 0)
        sink.allowed.release()
        await started(events, 1)
    assert player.queue_titles() == tuple(MIXED)


@pytest.mark.parametrize("index", [-1, 3])
async def test_a_jump_out_of_the_queue_is_refused_and_playing_goes_on(index: int) -> None:
    async with Player(GatedSink()) as player:
        with pytest.raises(UsageError, match="jump: expected items in the queue, which is empty, got 0"):
            await player.jump(0)
        events = player.events()
        await player.play([piece(name) for name in MIXED])
        await started(events, 0)
        with pytest.raises(UsageError, match=f"jump: expected an index from 0 to 2, got {index}"):
            await player.jump(index)
        assert (player.snapshot().index, player.snapshot().status) == (0, Status.BUFFERING)


async def test_the_rate_of_the_stream_is_known_once_it_is_decoded() -> None:
    sink = GatedSink()
    async with Player(sink) as player:
        assert player.snapshot().stream_bytes_per_second is None
        await player.play(piece("chord.wav"))
        sink.allowed.release()
        await player.wait_finished()
        now = player.snapshot()
    assert now.format is not None
    assert now.stream_bytes_per_second == pytest.approx(now.format.bytes_per_second, rel=0.05)


async def test_the_upcoming_item_is_given_up_when_something_else_comes_next() -> None:
    second = piece("chord.wav", hold_at=10_000)
    sink = GatedSink()
    async with Player(sink) as player:
        events = player.events()
        for call in (player.stop, player.previous, lambda: player.play(short())):
            second.reader = ScriptedReader((DATA / "chord.wav").read_bytes(), hold_at=10_000)
            reader = reader_of(second)
            await player.play([short(), second])
            await started(events, 0)
            await held(reader_of(second))
            await call()
            assert (reader.closed, reader.readers_blocked) == (True, 0)
    assert "start 1" not in await story(events)


@pytest.mark.requirement("PQ-02")
async def test_enqueue_adds_to_what_plays_and_opens_the_item_early_too() -> None:
    sink = GatedSink()
    second = piece("chord.wav", hold_at=10_000)
    async with playing(sink, short()) as (player, _):
        await wait_all_tasks_blocked()
        await player.enqueue([second, piece("gapless.mp3")])
        assert (player.snapshot().index, player.snapshot().queue_length) == (0, 3)
        await held(reader_of(second))
        reader_of(second).release()
        for _ in range(3):
            sink.allowed.release()
        await player.wait_finished()
        assert (player.snapshot().index, player.snapshot().frames) == (2, 132_300)


@pytest.mark.requirement("PQ-02")
async def test_enqueue_begins_where_nothing_plays() -> None:
    hanging = piece("chord.flac", hold_at=1000)
    async with Player(fast()) as player:
        events = player.events()
        await player.enqueue(short())
        await player.wait_finished()
        await player.enqueue([damaged(), short()])
        with pytest.raises(UnsupportedFormatError):
            await player.wait_finished()
        assert (player.snapshot().index, player.snapshot().queue_length) == (2, 3)
        await player.enqueue(hanging)
        await held(reader_of(hanging))
        await player.stop()
        assert (player.snapshot().index, player.snapshot().queue_length) == (None, 0)
        await player.enqueue(short())
        await player.wait_finished()
        assert (player.snapshot().index, player.snapshot().queue_length) == (0, 1)
    assert await story(events) == [
        *("start 0", "end 0", "error 1", "start 2", "end 2"),
        *("stopped 3", "start 0", "end 0"),
    ]


async def test_a_stop_wins_over_the_calls_before_it() -> None:
    reader = DeafReader((DATA / "chord.flac").read_bytes(), hold_at=1000)
    async with Player(fast()) as player:
        await player.play([ScriptedMedia(reader=reader), short()])
        await held(reader)
        async with trio.open_nursery() as nursery:
            for call in (player.next, player.previous):
                nursery.start_soon(call)
            nursery.start_soon(player.enqueue, short())
            nursery.start_soon(player.play, short())
            await wait_all_tasks_blocked()
            await player.stop()
        assert (player.snapshot().status, player.snapshot().queue_length) == (Status.STOPPED, 0)
        reader.release()


async def test_playing_and_enqueueing_nothing_are_refused_and_change_nothing() -> None:
    hanging = piece("chord.flac", hold_at=1000)
    async with Player(fast()) as player:
        for queue_length in (0, 1):
            for call in (player.play, player.enqueue, player.insert):
                with pytest.raises(
                    UsageError, match=f"{call.__name__}: expected one playable or more, got none"
                ):
                    await call([])
            assert player.snapshot().queue_length == queue_length
            await player.play(hanging)
        assert player.snapshot().status is Status.BUFFERING


@pytest.mark.parametrize(
    "wrong",
    ["song.mp3", b"bytes", Path("song.mp3"), ScriptedReader(b""), 3, None, [short(), "song.mp3"]],
)
async def test_what_is_no_media_is_refused_and_what_plays_goes_on_alone(wrong: object) -> None:
    async with Player(fast()) as player:
        await player.play(piece("chord.wav"))
        for call in (player.play, player.enqueue):
            with pytest.raises(UsageError, match=f"{call.__name__}: expected a playable.*FileMedia"):
                await call(wrong)  # type: ignore[arg-type]  # that is the mistake
        assert player.snapshot().queue_length == 1
        await player.wait_finished()
        assert player.snapshot().frames == 32_000


async def test_a_closed_player_refuses_every_call_but_stop() -> None:
    player = Player(fast())
    for _ in range(2):
        for call in (
            player.next,
            player.previous,
            lambda: player.jump(0),
            lambda: player.enqueue(short()),
            lambda: player.play(short()),
        ):
            with pytest.raises(ClosedError, match="async with"):
                await call()
        await player.stop()
        await player.wait_finished()
        assert player.snapshot().status is (Status.STOPPED if player._entered else Status.IDLE)
        if not player._entered:
            async with player:
                await player.play([short()] * 3)


# --- bounds ------------------------------------------------------------------------------------------------


async def test_a_queue_is_bounded_even_for_an_endless_iterable() -> None:
    one = short()
    assert DEFAULT_LIMITS.result_items <= QUEUE_ITEMS, "any result can be queued whole"
    with pytest.raises(UsageError, match="10000"):
        as_items(repeat(one), call="play")
    line = Queue()
    assert line.append((one,) * QUEUE_ITEMS) == 0
    with pytest.raises(UsageError, match="enqueue"):
        line.append((one,))
    assert len(line) == QUEUE_ITEMS


async def test_the_oldest_that_were_played_make_room() -> None:
    line = Queue()
    media = tuple(short() for _ in range(3))
    line.append((short(),) * (QUEUE_ITEMS - 2) + media[:2])
    for _ in range(QUEUE_ITEMS):
        line.forward()
    assert line.current is media[1]
    assert line.append(media[2:]) == 1
    assert (len(line), line.index) == (QUEUE_ITEMS, QUEUE_ITEMS - 2)
    assert line.current is media[1]
    assert line.following is media[2]


async def test_an_item_is_told_by_its_place_among_those_that_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue, "QUEUE_ITEMS", 2)
    sink = GatedSink()
    async with Player(sink) as player:
        events = player.events()
        await player.play([short(), short()])
        sink.allowed.release()
        await started(events, 1)
        await player.enqueue(short())
        assert (player.snapshot().index, player.snapshot().queue_length) == (0, 2)
        sink.allowed.release()
        await started(events, 1)
        sink.allowed.release()
        await player.wait_finished()
    assert await story(events) == ["end 1"]


async def test_a_long_queue_holds_two_items_open_at_most() -> None:
    most = 0

    class Watched(FreshMedia):
        def __setattr__(self, name: str, value: object) -> None:
            nonlocal most
            if name == "open_now":
                assert isinstance(value, int)
                most = max(most, value)
            super().__setattr__(name, value)

    media = Watched()
    async with Player(fast()) as player:
        await player.play([media] * 50)
        await player.wait_finished()
        assert player.snapshot().index == 49
    assert (most, media.open_now) == (2, 0)


async def test_cancelled_at_any_checkpoint_it_opens_nothing_more_and_leaves_no_thread() -> None:
    for steps in range(60):
        media = FreshMedia()
        with trio.CancelScope() as scope:
            async with Player(fast()) as player:
                await player.play([media] * 3)
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
                await player.next()
        assert scope.cancelled_caught
        assert media.open_now == 0
    assert [thread for thread in threading.enumerate() if "miniaudio" in thread.name] == []


# --- wave files --------------------------------------------------------------------------------------------


async def test_each_further_item_gets_a_wave_file_of_its_own_and_replaces_nobodys(tmp_path: Path) -> None:
    (tmp_path / "out.wav").write_bytes(b"an older file of that name")
    (tmp_path / "out-2.wav").write_bytes(b"somebody's")
    sink = WaveSink(tmp_path / "out.wav")
    async with Player(sink) as player:
        await player.play([damaged(), *(piece(name) for name in MIXED)])
        with pytest.raises(UnsupportedFormatError):
            await player.wait_finished()
    assert [path.name for path in sink.paths] == ["out.wav", "out-3.wav", "out-4.wav"]
    for path, name in zip(sink.paths, MIXED, strict=True):
        with wave.open(str(path)) as written:
            assert written.getnframes() == FRAMES[name]
    assert (tmp_path / "out-2.wav").read_bytes() == b"somebody's"


# --- without a gap -----------------------------------------------------------------------------------------


class Kept(NullSink):
    """Keeps the buffers that it plays, in real time."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers: list[PcmBuffer] = []
        self.went_on: list[bool] = []
        """For each buffer: the device had gone on with the next one when it asked for it."""

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        async def kept() -> AsyncIterator[PcmBuffer]:
            async for buffer in buffers:
                self.buffers.append(buffer)
                yield buffer
                self.went_on.append(buffer.playout.followed)

        await super().play(kept())


async def test_a_device_goes_on_by_itself_with_an_item_of_the_same_format_and_is_reopened_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[int] = []

    def null_device(format: PcmFormat) -> Device:
        opened.append(format.rate_hz)
        return Device(format, backends=[miniaudio.Backend.NULL])

    def play(buffers: AsyncIterator[PcmBuffer]) -> Awaitable[None]:
        return play_through_device(buffers, null_device)

    monkeypatch.setattr(null_sink, "_take_in_real_time", play)
    sink = Kept()
    async with Player(sink) as player:
        events = player.events()
        await player.play([FreshMedia(), FreshMedia(frames=900), piece("chord.wav"), FreshMedia()])
        with trio.fail_after(20):
            await player.wait_finished()
    assert opened == [8000, 16_000, 8000]
    assert sink.went_on == [True, False, False, False]
    assert [report.frames for report in sink.reports] == [800, 900, 32_000, 800]
    assert await story(events) == [f"{word} {index}" for index in range(4) for word in ("start", "end")]


async def test_an_item_that_was_removed_before_its_turn_is_not_heard_in_the_chain() -> None:
    sink = Kept()
    async with playing(sink, FreshMedia(frames=4000), FreshMedia(frames=900)) as (player, _):
        await wait_until(lambda: player._controller._linked)
        dropped = player._controller._linked
        assert dropped is not None
        player._controller.drop_upcoming()
        player._controller._look_ahead()
        await player.wait_finished()
    assert dropped.frames == 0
    assert [buffer.frames for buffer in sink.buffers] == [4000, 900]
    assert sink.went_on == [True, False]


async def test_the_next_item_is_opened_when_ten_seconds_are_left_and_decoded_to_one() -> None:
    long = FreshMedia(frames=8000 * 12, size_bytes=8000 * 12 * 2)
    following = FreshMedia(frames=8000 * 5)
    sink = NullSink()
    async with Player(sink) as player:
        await player.play([long, following])
        await wait_until(lambda: following.open_now)
        left = 12.0 - player.snapshot().position_seconds - player.snapshot().buffered_seconds
        assert 9.0 < left <= 10.2
        upcoming = player._controller._upcoming
        assert upcoming is not None
        await wait_until(lambda: upcoming.buffer and upcoming.buffer.buffered_seconds >= 1.0)


# --- changes of the queue while it plays -------------------------------------------------------------------


def titled(*titles: str) -> list[FreshMedia]:
    return [FreshMedia(title=title) for title in titles]


async def test_items_are_inserted_after_the_current_one_or_at_an_index_and_the_current_one_plays_on() -> None:
    sink = GatedSink()
    async with playing(sink, *titled("a", "b")) as (player, events):
        await player.insert(titled("c", "d"))
        assert (player.queue_titles(), player.snapshot().index) == (("a", "c", "d", "b"), 0)
        await player.insert(titled("e"), index=0)
        assert (player.queue_titles(), player.snapshot().index) == (("e", "a", "c", "d", "b"), 1)
        await player.insert(titled("f"), index=5)
        for index in (-1, 7):
            with pytest.raises(UsageError, match=f"insert: expected an index from 0 to 6, got {index}"):
                await player.insert(titled("g"), index=index)
        for _ in range(5):
            sink.allowed.release()
        await player.wait_finished()
        assert player.snapshot().index == 5
    titles = [event.title async for event in events if isinstance(event, ItemStart)]
    assert titles == ["c", "d", "b", "f"]
    assert sink.most_at_sink == 1


async def test_an_insert_while_nothing_plays_starts_and_one_beyond_the_room_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Player(fast()) as player:
        await player.insert(titled("a"))
        await player.wait_finished()
        assert player.snapshot().frames == 800
        monkeypatch.setattr(queue, "QUEUE_ITEMS", 2)
        with pytest.raises(UsageError, match="at most 2 items"):
            await player.insert(titled("b", "c"))
        assert player.queue_titles() == ("a",)


async def test_a_removed_item_is_not_heard_and_the_current_one_gives_way_to_the_next() -> None:
    sink = GatedSink()
    async with playing(sink, *titled("a", "b", "c", "d")) as (player, events):
        await player.remove(1)
        assert (player.queue_titles(), player.snapshot().title) == (("a", "c", "d"), "a")
        await player.remove(0)
        await started(events, 0)
        assert (player.queue_titles(), player.snapshot().title) == (("c", "d"), "c")
        sink.allowed.release()
        await started(events, 1)
        await player.remove(0)
        assert (player.queue_titles(), player.snapshot().index) == (("d",), 0)
        await player.remove(0)
        assert (player.queue_titles(), player.snapshot().status) == ((), Status.STOPPED)
        with pytest.raises(UsageError, match="remove: expected items in the queue, which is empty, got 0"):
            await player.remove(0)
        await player.enqueue(titled("e"))
        sink.allowed.release()
        await player.wait_finished()
        assert player.snapshot().title == "e"


async def test_an_item_or_the_queue_is_repeated_until_that_is_taken_back() -> None:
    sink = GatedSink()
    async with Player(sink) as player:
        events = player.events()
        player.set_repeat(Repeat.ONE)
        await player.play(titled("a", "b"))
        for _ in range(2):
            await started(events, 0)
            sink.allowed.release()
        await started(events, 0)
        await player.next()
        await started(events, 1)
        player.set_repeat(Repeat.ALL)
        assert player.snapshot().repeat is Repeat.ALL
        sink.allowed.release()
        await started(events, 0)
        await player.next()
        await started(events, 1)
        await player.next()
        await started(events, 0)
        player.set_repeat(Repeat.OFF)
        for _ in range(2):
            sink.allowed.release()
        await player.wait_finished()
        with pytest.raises(UsageError, match="repeat: expected off, one or all, got 'twice'"):
            player.set_repeat("twice")  # type: ignore[arg-type]


@pytest.mark.parametrize("repeat", [Repeat.ONE, Repeat.ALL])
async def test_a_queue_of_failures_is_not_repeated_for_ever(repeat: Repeat) -> None:
    async with Player(fast()) as player:
        player.set_repeat(repeat)
        await player.play([damaged(), damaged()])
        with trio.fail_after(20), pytest.raises(UnsupportedFormatError):
            await player.wait_finished()
        assert player.snapshot().status is Status.ERROR


async def test_a_change_of_the_queue_changes_what_a_device_goes_on_with() -> None:
    sink = Kept()
    async with playing(sink, FreshMedia(frames=8000), FreshMedia(frames=900)) as (player, _):
        await wait_until(lambda: player._controller._linked)
        await player.insert(FreshMedia(frames=700))
        await player.wait_finished()
    assert [buffer.frames for buffer in sink.buffers] == [8000, 700, 900]
    assert sink.went_on == [True, True, False]
