"""The player: what is told when, two callers, a network that hangs, and nothing left behind."""

from __future__ import annotations

import gc
import hashlib
import math
import os
import random
import threading
import wave
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import miniaudio
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from playhead.concurrency import Broadcast
from playhead.errors import (
    ConnectionLostError,
    NoDeviceError,
    StreamBrokenError,
    UnsupportedFormatError,
    UsageError,
)
from playhead.playback.controller import STOP_FADE_SECONDS
from playhead.playback.decoder import RawPcmDecoder
from playhead.playback.files import FileMedia
from playhead.playback.pcm_buffer import DECODED_SECONDS, PcmBuffer
from playhead.playback.player import EVENT_CAPACITY, Player, gain_of
from playhead.playback.sinks import NullSink, WaveSink
from playhead.playback.state import (
    ItemEnd,
    ItemError,
    ItemResumed,
    ItemStart,
    ItemWaiting,
    PlayerEvent,
    StateChange,
    Status,
)
from playhead.stream.answer import Page
from playhead.stream.options import StreamEvent, StreamResumed, StreamWaiting
from playhead.stream.reader import open_stream
from playhead.stream.source import Demand
from playhead.testing.media import ScriptedMedia, ScriptedReader
from tests.local_vorbis import decode_vorbis
from tests.servers.wave import wave_header
from tests.tones import wave_file
from tests.unit.playback.pieces import (
    BROKEN,
    DATA,
    MUSIC,
    DeafReader,
    SteppedSink,
    fast,
    held,
    piece,
    reader_of,
    wait_until,
)


def bytes_of(name: str) -> bytes:
    return (DATA / name).read_bytes()


def told(event: PlayerEvent) -> str:
    return str(event.state.status) if isinstance(event, StateChange) else type(event).__name__


async def until(channel: trio.MemoryReceiveChannel[PlayerEvent], *statuses: Status) -> StateChange:
    with trio.fail_after(20):
        async for event in channel:
            if isinstance(event, StateChange) and event.state.status in statuses:
                return event
    raise AssertionError(f"the player closed before it was {statuses}")


@pytest.mark.parametrize("name", [*MUSIC, "chord.flac in real time"])
async def test_what_reaches_the_sink_equals_a_local_decode(name: str) -> None:
    name, _, in_real_time = name.partition(" ")
    sink = NullSink(real_time=bool(in_real_time))
    async with Player(sink) as player:
        await player.play(FileMedia(DATA / name))
        await player.wait_finished()
        state = player.snapshot()
    assert sink.report is not None
    format = sink.report.format
    if name.endswith(".ogg"):
        local = decode_vorbis(bytes_of(name))[2]
    else:
        sound = miniaudio.decode(bytes_of(name), nchannels=format.channels, sample_rate=format.rate_hz)
        local = sound.samples.tobytes()
    frames = len(local) // format.frame_bytes
    assert sink.report.sha256 == hashlib.sha256(local).hexdigest()
    assert state.frames == sink.report.frames == frames
    assert state.position_seconds == pytest.approx(frames / format.rate_hz)
    assert (state.status, state.underruns, state.last_error) == (Status.IDLE, 0, None)
    assert state.first_audio_seconds is not None


async def test_a_rate_far_below_the_usual_ones_is_played_whole() -> None:
    whole = wave_file(bytes(range(1, 17)) * 20_000, 100, channels=8)
    sink = fast()
    async with Player(sink) as player:
        await player.play(ScriptedMedia(reader=ScriptedReader(whole)))
        await player.wait_finished()
    assert sink.report is not None
    assert sink.report.frames == 20_000


async def test_a_ranged_stream_plays_into_a_wave_file(tmp_path: Path) -> None:
    data = bytes_of("tagged.mp3")

    async def read_range(start: int, end: int) -> Page:
        part = data[start:end]
        return Page(blobs=(part,) if part else ())

    class Ranged:
        title, mime_type, uri, size_bytes = "ranged", None, None, None

        def open(self, options: object = None) -> object:
            return open_stream(read_range)

    async with Player(WaveSink(tmp_path / "out.wav")) as player:
        await player.play(Ranged())  # type: ignore[arg-type]  # its context gives a RangeStream
        with trio.fail_after(20):
            await player.wait_finished()
        assert player.snapshot().frames == 132_300
    with wave.open(str(tmp_path / "out.wav")) as written:
        assert written.getnframes() == 132_300


@pytest.mark.requirement("PQ-05")
async def test_the_title_is_told_before_the_first_sound_and_the_end_after_the_last() -> None:
    async with Player(fast()) as player:
        events = player.events()
        await player.play(piece("gapless.mp3"))
        await player.wait_finished()
    seen: list[PlayerEvent] = [event async for event in events]
    assert [told(event) for event in seen] == ["buffering", "ItemStart", "playing", "ItemEnd", "idle"]
    start, end = seen[1], seen[3]
    assert isinstance(start, ItemStart)
    assert (start.title, start.duration_seconds, start.format.rate_hz) == ("gapless.mp3", 3.0, 44100)
    assert end == ItemEnd(index=0, title="gapless.mp3", frames=132_300, stopped=False)


@pytest.mark.parametrize("name", MUSIC)
async def test_a_stream_that_breaks_in_the_middle_is_played_so_far_and_then_fails(name: str) -> None:
    data = bytes_of(name)
    media = ScriptedMedia(reader=ScriptedReader(data[: len(data) * 3 // 4], error=BROKEN), title=name)
    for sink in (fast(), NullSink()):
        media.reader = ScriptedReader(data[: len(data) - 4000], error=BROKEN)
        async with Player(sink) as player:
            events = player.events()
            await player.play(media)
            with pytest.raises(StreamBrokenError) as caught:
                await player.wait_finished()
            state = player.snapshot()
        assert caught.value is BROKEN
        assert (state.status, state.last_error) == (Status.ERROR, BROKEN)
        assert state.frames > 0
        last = [event async for event in events][-2:]
        assert last[0] == ItemError(index=0, title=name, frames=state.frames, error=BROKEN)


class Unraising:
    """As a sink with a callback: it plays what is there and cannot raise what broke the stream."""

    name = "unraising"

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        async for buffer in buffers:
            await buffer.wait_ready()
            while not buffer.over:
                buffer.fill(memoryview(bytearray(1000)))
                await trio.lowlevel.checkpoint()


@pytest.fixture
def held_decoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldDecoder]:
    held = HeldDecoder(monkeypatch)
    yield held
    held.go_on.set()
    assert held.closed.wait(20)  # not while the next test holds another one


class HeldDecoder:
    """The decoder's thread stops once the audio is complete, until `go_on`; `closed` is set when the decoder
    is freed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on, self.closed = threading.Event(), threading.Event()
        finish, close = PcmBuffer.finish, RawPcmDecoder.close

        def finish_and_wait(buffer: PcmBuffer, failure: Exception | None = None) -> None:
            finish(buffer, failure)
            assert self.go_on.wait(20)

        def noted(decoder: RawPcmDecoder) -> None:
            close(decoder)
            self.closed.set()

        monkeypatch.setattr(PcmBuffer, "finish", finish_and_wait)
        monkeypatch.setattr(RawPcmDecoder, "close", noted)


async def test_a_break_is_told_even_if_the_sound_is_over_before_the_decoder_thread_is(
    held_decoder: HeldDecoder,
) -> None:
    reader = ScriptedReader(bytes(3000), error=BROKEN)
    async with Player(Unraising()) as player:
        await player.play(ScriptedMedia(reader=reader, mime_type="audio/L16;rate=8000"))
        with pytest.raises(StreamBrokenError):
            await player.wait_finished()
        assert not held_decoder.go_on.is_set()


async def test_a_decoder_is_freed_only_when_no_thread_is_in_it(held_decoder: HeldDecoder) -> None:
    async with Player(Unraising()) as player:
        await player.play(ScriptedMedia(reader=ScriptedReader(bytes(3000)), mime_type="audio/L16;rate=8000"))
        await player.wait_finished()
    assert not held_decoder.closed.is_set()
    held_decoder.go_on.set()
    assert await trio.to_thread.run_sync(held_decoder.closed.wait, 20)


class Lingering(Unraising):
    """Has something to do after its last frame, and may fail at it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.go_on, self.plays, self.done = trio.Event(), 0, 0
        self._error = error

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        self.plays += 1
        await super().play(buffers)
        await self.go_on.wait()
        self.done += 1
        if self._error is not None:
            raise self._error


async def test_waiting_for_the_end_waits_for_the_sink(nursery: trio.Nursery) -> None:
    sink, finished = Lingering(), trio.Event()

    async def wait_finished() -> None:
        await player.wait_finished()
        finished.set()

    async with Player(sink) as player:
        events = player.events()
        await player.play(piece("chord.wav"))
        nursery.start_soon(wait_finished)
        await until(events, Status.IDLE)
        await wait_all_tasks_blocked()
        assert not finished.is_set()
        sink.go_on.set()
        with trio.fail_after(20):
            await finished.wait()
        assert sink.done == 1


async def test_an_item_that_starts_while_the_sink_ends_is_played_by_a_new_call(nursery: trio.Nursery) -> None:
    sink = Lingering()
    async with Player(sink) as player:
        events = player.events()
        await player.play(piece("chord.wav"))
        await until(events, Status.IDLE)
        await player.enqueue(piece("chord.flac"))
        await until(events, Status.BUFFERING)
        await wait_all_tasks_blocked()
        sink.go_on.set()
        with trio.fail_after(20):
            await player.wait_finished()
        assert (sink.plays, sink.done, player.snapshot().frames) == (2, 2, 48_000)


async def test_what_a_sink_raises_after_its_last_frame_is_raised_at_the_end() -> None:
    full = OSError(28, "No space left on device")
    sink = Lingering(full)
    sink.go_on.set()
    async with Player(sink) as player:
        await player.play(piece("chord.wav"))
        with pytest.raises(OSError, match="No space") as caught:
            await player.wait_finished()
        assert caught.value is full is player.snapshot().last_error


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>not music</html>",
        random.Random(1).randbytes(200_000),
        b"\x00" * 3,
        b"MThd" + bytes(100),
    ],
    ids=["empty", "html", "noise", "three bytes", "midi"],
)
async def test_what_is_no_music_fails_without_a_sound(body: bytes) -> None:
    sink = fast()
    async with Player(sink) as player:
        await player.play(ScriptedMedia(reader=ScriptedReader(body), mime_type="audio/mpeg"))
        with (
            trio.fail_after(20),
            pytest.raises(UnsupportedFormatError, match=r"^'a scripted piece': "),
        ):
            await player.wait_finished()
        assert player.snapshot().status is Status.ERROR
    assert sink.report is None


WAV_BYTES_PER_SECOND = 32_000
"""Of chord.wav, behind a header of 44 bytes."""


def wav_bytes(seconds: float) -> int:
    return 44 + int(seconds * WAV_BYTES_PER_SECOND)


class Foreseeing(ScriptedReader):
    """A reader that lets audio start at `enough_bytes` in hand, and remembers what it was asked."""

    def __init__(
        self, data: bytes, *, enough_bytes: int, hold_at: int | None = None, error: Exception | None = None
    ) -> None:
        super().__init__(data, sizes=[1024], hold_at=hold_at, error=error)
        self.enough_bytes = enough_bytes
        self.asked: list[tuple[int, float]] = []
        self.demands: list[Demand] = []

    @property
    def buffered_bytes(self) -> int:
        return 0

    def can_play(self, in_hand_bytes: int, bytes_per_second: float) -> bool:
        self.asked.append((in_hand_bytes, bytes_per_second))
        return in_hand_bytes >= self.enough_bytes

    seekable = True

    def seek_from_thread(self, offset: int) -> None:
        raise AssertionError("there is nothing to skip")

    def set_demand(self, demand: Demand) -> None:
        self.demands.append(demand)


async def test_nothing_is_heard_with_less_than_half_a_second_in_hand_and_decoding_does_not_wait() -> None:
    reader = ScriptedReader(bytes_of("chord.wav"), hold_at=wav_bytes(0.48))
    async with Player(fast()) as player:
        await player.play(ScriptedMedia(reader=reader))
        await held(reader)
        await wait_all_tasks_blocked()
        state = player.snapshot()
        assert (state.status, state.frames) == (Status.BUFFERING, 0)
        assert state.buffered_seconds > 0.2, "decoded as far as its pipe goes"
        reader.release()
        await player.wait_finished()
        assert player.snapshot().frames == 32_000


async def test_half_a_second_in_hand_starts_what_comes_from_a_reader_that_cannot_foresee() -> None:
    reader = ScriptedReader(bytes_of("chord.wav"), sizes=[1024], hold_at=wav_bytes(0.56))
    async with Player(fast()) as player:
        events = player.events()
        await player.play(ScriptedMedia(reader=reader))
        await until(events, Status.PLAYING)
        assert wav_bytes(0.5) <= reader.position <= wav_bytes(0.56)
        assert player.snapshot().frames > 0


async def test_a_reader_that_foresees_its_arrival_is_asked_from_half_a_second_on_and_decides() -> None:
    reader = Foreseeing(bytes_of("chord.wav"), enough_bytes=40_000, hold_at=wav_bytes(1.4))
    async with Player(fast()) as player:
        events = player.events()
        await player.play(ScriptedMedia(reader=reader))
        await until(events, Status.PLAYING)
    in_hand, rates = zip(*reader.asked, strict=True)
    assert 16_000 <= in_hand[0] < 20_000
    assert in_hand[-2] < 40_000 <= in_hand[-1]
    assert all(rate == pytest.approx(WAV_BYTES_PER_SECOND, rel=0.02) for rate in rates)


@pytest.mark.parametrize("name", ["chord.wav", "bare.mp3", "chord.flac"])
async def test_a_device_starts_with_several_periods_decoded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_with: list[float] = []
    release = PcmBuffer.release

    def noted(buffer: PcmBuffer) -> None:
        if buffer.held:
            started_with.append(buffer.buffered_seconds)
        release(buffer)

    monkeypatch.setattr(PcmBuffer, "release", noted)
    async with Player(fast()) as player:
        await player.play(ScriptedMedia(reader=ScriptedReader(bytes_of(name))))
        await player.wait_finished()
    assert started_with[0] > DECODED_SECONDS, "one busy moment of the decoder would be heard"


class QueueReader(ScriptedReader):
    """Hands its bytes out while they are made."""

    is_queue = True


async def test_a_queue_is_heard_from_its_first_chunk_on() -> None:
    reader = QueueReader(bytes_of("chord.wav"), hold_at=wav_bytes(0.2))
    async with Player(fast()) as player:
        events = player.events()
        await player.play(ScriptedMedia(reader=reader))
        await until(events, Status.PLAYING)
        assert reader.position == wav_bytes(0.2)
        assert player.snapshot().frames > 0


async def test_audio_that_ran_dry_goes_on_with_a_second_in_hand_and_tells_its_reader() -> None:
    sink = SteppedSink()
    reader = Foreseeing(bytes_of("chord.wav"), enough_bytes=0, hold_at=wav_bytes(0.56))
    async with Player(sink) as player:
        await player.play(ScriptedMedia(reader=reader))
        await held(reader)
        heard = await sink.periods(20)
        assert sum(heard) == wav_bytes(0.32) - 44
        await wait_all_tasks_blocked()
        assert (player.snapshot().status, player.snapshot().underruns) == (Status.BUFFERING, 0)
        for seconds in (0.8, 1.3):  # of them 0.32 s were heard: the decoder waits for whole pieces
            reader.release(hold_at=wav_bytes(seconds))
            await held(reader)
            assert await sink.periods(3) == [0, 0, 0], f"{seconds} s"
        reader.release(hold_at=wav_bytes(1.7))
        await wait_until(lambda: not sink.buffer.held)
        assert all(await sink.periods(3))
        await wait_all_tasks_blocked()
        assert (player.snapshot().status, player.snapshot().underruns) == (Status.PLAYING, 1)
        player.pause()
        player.resume()
        reader.release()
        while not sink.buffer.over:
            await sink.periods(1)
        await player.wait_finished()
        assert player.snapshot().frames == 32_000
    changes = [
        demand
        for demand, before in zip(reader.demands, [None, *reader.demands], strict=False)
        if demand is not before
    ]
    assert changes[:7] == [
        Demand.WAITING,
        Demand.FED,
        Demand.WAITING,
        Demand.FED,
        Demand.PAUSED,
        Demand.FED,
        Demand.WAITING,
    ]


async def test_a_stream_that_breaks_while_audio_is_held_back_is_played_so_far() -> None:
    data = bytes_of("chord.wav")[: wav_bytes(1.5)]
    reader = Foreseeing(data, enough_bytes=1_000_000, error=BROKEN)
    sink = fast()
    async with Player(sink) as player:
        await player.play(ScriptedMedia(reader=reader))
        with pytest.raises(StreamBrokenError):
            await player.wait_finished()
    assert sink.report is not None
    assert sink.report.frames == 24_000


async def test_a_tag_does_not_count_for_the_gate() -> None:
    reader = ScriptedReader(
        bytes_of("tagged.mp3"), sizes=[4096], hold_at=len(bytes_of("tagged.mp3")) - 16_000
    )
    async with Player(fast()) as player:
        await player.play(ScriptedMedia(reader=reader))
        await held(reader)
        await wait_all_tasks_blocked()
        assert player.snapshot().frames == 0


@pytest.mark.requirement("PQ-09")
async def test_pause_holds_the_playhead_and_not_the_reading() -> None:
    reader = ScriptedReader(bytes_of("chord.ogg"))
    async with Player(fast()) as player:
        events = player.events()
        await player.play(ScriptedMedia(reader=reader))
        player.pause()
        await until(events, Status.PAUSED)
        await wait_until(lambda: player.snapshot().buffered_seconds >= 0.3)
        assert player.snapshot().frames == 0
        assert reader.position >= 12_000
        player.resume()
        await until(events, Status.PLAYING)
        await player.wait_finished()
        assert player.snapshot().frames == 144_000


@pytest.mark.requirement("PQ-08")
@pytest.mark.parametrize("hold_at", [0, 10, 5_000, 15_000, 30_000])
async def test_stop_returns_at_once_while_the_network_hangs_and_wakes_the_thread(hold_at: int) -> None:
    media = piece("chord.flac", hold_at=hold_at)
    reader = reader_of(media)
    async with Player(fast()) as player:
        events = player.events()
        await player.play(media)
        await held(reader)
        await player.stop()
        assert player.snapshot().status is Status.STOPPED
        assert (media.closings, reader.readers_blocked) == (1, 0)
        await player.wait_finished()
        await player.play(piece("chord.wav"))
        await player.wait_finished()
    seen = [told(event) async for event in events]
    assert seen[-1] == "idle"
    assert "ItemError" not in seen


class WatchedReader(ScriptedReader):
    """Holds the callbacks that it was given."""

    def watch(self, on_event: Callable[[StreamEvent], None]) -> None:
        self.on_event = on_event


async def test_the_current_items_waits_are_reported_and_those_of_the_next_once_it_starts() -> None:
    error = ConnectionLostError("cut")
    wait = StreamWaiting(seconds=3.0, offset=7, last_error=error, patience_seconds=60.0)
    short = wave_header(9044) + bytes(9000)  # shorter than the buffer between decoder and sink
    first, second = (WatchedReader(short, hold_at=1000) for _ in range(2))
    seen: list[PlayerEvent] = []
    gate = trio.Event()

    class GatedSink(NullSink):
        async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
            await gate.wait()
            await super().play(buffers)

    async with Player(GatedSink(real_time=False)) as player, trio.open_nursery() as nursery:

        async def watch() -> None:
            async for event in events:
                if isinstance(event, ItemWaiting | ItemResumed):
                    seen.append(event)

        events = player.events()
        nursery.start_soon(watch)
        await player.play([ScriptedMedia(reader=first, title="A"), ScriptedMedia(reader=second, title="B")])
        await held(first)
        first.on_event(wait)
        first.on_event(StreamResumed(seconds=4.0))
        first.release()
        await held(second)  # the next item is opened, and the first one has not ended
        second.on_event(wait)
        await wait_all_tasks_blocked()
        assert seen == [
            ItemWaiting(index=0, title="A", seconds=3.0, last_error=error, patience_seconds=60.0),
            ItemResumed(index=0, title="A", seconds=4.0),
        ]
        gate.set()
        await wait_until(lambda: len(seen) >= 3)
        second.on_event(StreamResumed(seconds=5.0))
        second.release()
        await player.wait_finished()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    events.close()
    assert seen[2:] == [
        ItemWaiting(index=1, title="B", seconds=3.0, last_error=error, patience_seconds=60.0),
        ItemResumed(index=1, title="B", seconds=5.0),
    ]


async def test_stop_does_not_wait_for_a_reader_that_ignores_its_closing() -> None:
    reader = DeafReader(bytes_of("chord.flac"), hold_at=1000)
    async with Player(fast()) as player:
        await player.play(ScriptedMedia(reader=reader))
        await held(reader)
        with trio.fail_after(5):
            await player.stop()
        assert player.snapshot().status is Status.STOPPED
        await player.play(piece("chord.wav"))
        await player.wait_finished()
        assert player.snapshot().frames == 32_000
    reader.release()


async def test_stop_does_not_wait_for_a_media_that_cannot_be_closed() -> None:
    hang = trio.Event()

    class Stubborn(ScriptedMedia):
        def open(self, options: object = None) -> object:  # type: ignore[override]  # a context made by hand
            outer = self

            class Context:
                async def __aenter__(self) -> ScriptedReader:
                    assert isinstance(outer.reader, ScriptedReader)
                    return outer.reader

                async def __aexit__(self, *_: object) -> None:
                    assert isinstance(outer.reader, ScriptedReader)
                    outer.reader.close()
                    with trio.CancelScope(shield=True):
                        await hang.wait()

            return Context()

    async with Player(fast()) as player:
        reader = ScriptedReader(bytes_of("chord.flac"), hold_at=1000)
        await player.play(Stubborn(reader=reader))  # type: ignore[arg-type]  # its context is made by hand
        await held(reader)
        try:
            with trio.fail_after(5):
                await player.stop()
                assert player.snapshot().status is Status.STOPPED
                await player.play(piece("chord.wav"))
                await player.wait_finished()
            assert player.snapshot().frames == 32_000
        finally:
            hang.set()


async def test_play_replaces_what_plays_and_wait_finished_follows_it() -> None:
    first, second = piece("chord.flac", hold_at=30_000), piece("chord.wav")
    async with Player(fast()) as player:
        events = player.events()
        await player.play(first)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(player.wait_finished)
            await player.play(second)
        assert player.snapshot().title == "chord.wav"
        assert player.snapshot().frames == 32_000
    ends = [event async for event in events if isinstance(event, ItemEnd)]
    assert [(end.title, end.stopped) for end in ends] == [("chord.flac", True), ("chord.wav", False)]


@pytest.mark.requirement("PQ-07")
async def test_many_tasks_may_call_it_at_once() -> None:
    async with Player(fast()) as player, trio.open_nursery() as nursery:

        async def insist(name: str) -> None:
            for _ in range(8):
                await player.play(piece(name))
                player.pause()
                player.resume()
                player.set_volume(100)
                await player.stop()

        for name in MUSIC[:4]:
            nursery.start_soon(insist, name)
    assert player.snapshot().status is Status.STOPPED


async def test_a_sink_that_fails_fails_the_item_and_the_player_goes_on(tmp_path: Path) -> None:
    class Deaf:
        name = "deaf"

        async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
            raise NoDeviceError("no sound device")

    media = piece("chord.flac", hold_at=40_000)
    async with Player(Deaf()) as player:
        await player.play(media)
        with trio.fail_after(20), pytest.raises(NoDeviceError):
            await player.wait_finished()
        assert media.closings == 1
        await player.play(FileMedia(tmp_path / "missing.mp3"))
        with pytest.raises(UsageError, match=r"missing\.mp3 \(No such file or directory\); check the path"):
            await player.wait_finished()
        await player.play(FileMedia(tmp_path))
        with pytest.raises(UsageError, match="regular file"):
            await player.wait_finished()


async def test_volume_reaches_the_samples(tmp_path: Path) -> None:
    assert (gain_of(0), gain_of(50), gain_of(100)) == (0.0, 0.125, 1.0)
    for wrong in (-1, 101, 50.5, True, "50"):
        with pytest.raises(UsageError, match="0 to 100"):
            gain_of(wrong)  # type: ignore[arg-type]  # that is the mistake
    async with Player(WaveSink(tmp_path / "out.wav"), volume=0) as player:
        events = player.events()
        await player.play(piece("chord.wav"))
        await player.wait_finished()
        player.set_volume(30)
        assert player.snapshot().volume == 30
    with wave.open(str(tmp_path / "out.wav")) as written:
        assert written.readframes(written.getnframes()) == bytes(64_000)
    assert [event.state.volume async for event in events if isinstance(event, StateChange)][-1] == 30


@pytest.mark.requirement("PQ-05")
async def test_a_slow_listener_loses_the_oldest_events_and_a_gone_one_costs_nothing() -> None:
    hub = Broadcast[PlayerEvent](EVENT_CAPACITY)
    slow, gone = hub.subscribe(), hub.subscribe()
    gone.close()
    for number in range(EVENT_CAPACITY + 10):
        hub.send(ItemEnd(index=0, title=str(number), frames=0, stopped=False))
    hub.close()
    kept = [event.title async for event in slow if isinstance(event, ItemEnd)]
    assert kept == [str(number) for number in range(10, EVENT_CAPACITY + 10)]
    late = hub.subscribe()
    assert [event async for event in late] == []


async def test_a_player_is_opened_once() -> None:
    async with Player(fast()) as player:
        with pytest.raises(UsageError, match="create another"):
            async with player:
                pass
        await player.play(piece("chord.wav"))
        await player.wait_finished()
    with pytest.raises(UsageError, match="create another"):
        async with player:
            pass


@pytest.mark.parametrize(
    "error", [ValueError("mine"), ExceptionGroup("mine", [ValueError("mine")])], ids=type
)
async def test_an_error_of_the_players_block_comes_out_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        async with Player(fast()):
            raise error
    assert caught.value is error


async def test_leaving_the_player_stops_what_plays() -> None:
    media = piece("chord.flac", hold_at=1000)
    async with Player(NullSink()) as player:
        await player.play(media)
        await held(reader_of(media))
    assert (media.closings, reader_of(media).readers_blocked) == (1, 0)


async def test_what_was_played_is_let_go_and_waits_for_no_collection() -> None:
    gc.collect()
    gc.disable()
    try:
        async with Player(fast()) as player:
            media = piece("chord.ogg")
            await player.play(media)
            await player.wait_finished()
            gone = trio.Event()
            token = trio.lowlevel.current_trio_token()
            # The decoder's thread may be the last to let go.
            reader = weakref.ref(media.reader, lambda _: token.run_sync_soon(gone.set))
            media.reader = ScriptedReader(b"")
            with trio.fail_after(10):
                await gone.wait()
            assert reader() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("real_time", [True, False])
async def test_cancelled_at_any_checkpoint_it_leaves_no_thread_in_the_reader(real_time: bool) -> None:
    for steps in range(40):
        media = piece("chord.flac", hold_at=30_000, sizes=[3000])
        with trio.CancelScope() as scope:
            async with Player(NullSink(real_time=real_time)) as player:
                await player.play(media)
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
                await player.wait_finished()
        assert scope.cancelled_caught
        assert reader_of(media).readers_blocked == 0
        assert media.closings in (0, 1)
    assert [thread for thread in threading.enumerate() if "miniaudio" in thread.name] == []


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts file descriptors by /proc")
async def test_playing_again_and_again_leaves_no_file_descriptor_behind() -> None:
    async with Player(NullSink()) as player:

        async def play_and_stop() -> None:
            await player.play(FileMedia(DATA / "chord.wav"))
            await player.stop()

        await play_and_stop()
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a count
        for _ in range(20):
            await play_and_stop()
        assert len(os.listdir("/proc/self/fd")) <= before + 2  # noqa: PTH208  # the newest item's pipe


# --- barge-in ----------------------------------------------------------------------------------------------


async def test_a_player_is_held_until_no_reason_is_left() -> None:
    sink = SteppedSink()
    async with Player(sink) as player:
        player.hold("speech")
        await player.play(piece("chord.wav"))
        assert await sink.periods(2) == [0, 0]
        assert (player.snapshot().status, player.snapshot().holds) == (Status.PAUSED, frozenset({"speech"}))
        player.pause()
        player.release("speech")
        player.release("call")
        assert (await sink.periods(1), player.snapshot().holds) == ([0], frozenset({"user"}))
        player.resume()
        assert (await sink.periods(1))[0] > 0
        assert (player.snapshot().status, player.snapshot().holds) == (Status.PLAYING, frozenset())
        player.hold("call")
        player.hold("call")
        player.release("call")
        assert (await sink.periods(1))[0] > 0


async def test_a_call_to_play_takes_back_the_listeners_pause_and_no_other_hold() -> None:
    sink = SteppedSink()
    async with Player(sink) as player:
        player.pause()
        assert player.snapshot().holds == frozenset(), "nothing plays"
        await player.play(piece("chord.wav"))
        player.pause()
        player.hold("speech")
        await player.play(piece("chord.wav"))
        assert player.snapshot().holds == {"speech"}


async def test_a_duck_lasts_over_items_and_is_refused_beyond_full_volume() -> None:
    sink = SteppedSink()
    async with Player(sink) as player:
        player.duck(gain=0.0)
        await player.play(piece("chord.wav"))
        assert (await sink.periods(1))[0] > 0
        assert not any(sink.last)
        player.unduck(release_seconds=0.0)
        await sink.periods(1)
        assert any(sink.last)
        for gain, seconds in ((1.5, 0.1), (-0.1, 0.1), (math.nan, 0.1), (0.5, -1.0)):
            with pytest.raises(UsageError, match="expected a gain from 0"):
                player.duck(gain=gain, attack_seconds=seconds)


async def test_a_stop_waits_for_the_sink_to_take_the_fade_but_not_for_long() -> None:
    sink = SteppedSink()
    async with Player(sink) as player:
        await player.play(piece("chord.wav"))
        await sink.periods(2)
        buffer = sink.buffer
        before = buffer.frames
        async with trio.open_nursery() as nursery:
            nursery.start_soon(player.stop)
            await wait_all_tasks_blocked()
            await sink.periods(1)
        assert buffer.closed
        assert buffer.frames - before == int(STOP_FADE_SECONDS * buffer.format.rate_hz)
        assert player.snapshot().status is Status.STOPPED


async def test_times_that_are_none_are_refused_and_long_ones_are_taken() -> None:
    async with Player(NullSink(real_time=True)) as player:
        await player.play(piece("chord.wav"))
        for seconds in (-1.0, math.nan, math.inf):
            with pytest.raises(UsageError, match=r"stop: expected a fade of 0\.0 or more seconds, got"):
                await player.stop(fade_seconds=seconds)
        with pytest.raises(UsageError, match=r"seek: expected 0\.0 or more seconds, got nan"):
            await player.seek_by(math.nan)
        player.duck(attack_seconds=1e9)
        await player.stop(fade_seconds=1e9)


@pytest.mark.parametrize("call", [Player.stop, Player.next])
async def test_a_program_that_was_busy_while_the_sound_faded_has_stopped_it_all_the_same(
    call: Callable[[Player], Awaitable[None]], mock_clock: MockClock
) -> None:
    sink = SteppedSink()
    async with Player(sink) as player:
        await player.play(piece("chord.wav"))
        await sink.periods(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, player)
            await wait_all_tasks_blocked()
            assert player.snapshot().status is Status.PLAYING, "its fade is not taken yet"
            mock_clock.jump(1.0)
        assert player.snapshot().status is Status.STOPPED


async def test_what_was_heard_is_behind_the_playhead_by_what_follows_the_sink() -> None:
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="output_latency_seconds"):
            Player(fast(), output_latency_seconds=wrong)
    for stated, chosen in ((0.0, 3600.0), (3600.0, None)):
        await hear_nothing(stated_seconds=stated, output_latency_seconds=chosen)
    async with Player(fast()) as player:
        await player.play(piece("chord.wav"))
        await player.wait_finished()
        assert player.snapshot().heard_seconds == 2.0


async def hear_nothing(*, stated_seconds: float, output_latency_seconds: float | None) -> None:
    sink = SteppedSink()
    sink.output_latency_seconds = stated_seconds
    async with Player(sink, output_latency_seconds=output_latency_seconds) as player:
        await player.play(piece("chord.wav"))
        await sink.periods(3)
        state = player.snapshot()
        assert state.position_seconds == pytest.approx(0.12)
        assert state.heard_seconds == 0.0


async def test_a_latency_that_is_unknown_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="latency: expected deep or low, got 'high'"):
        Player(fast(), latency="high")  # type: ignore[arg-type]
