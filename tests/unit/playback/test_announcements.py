"""Announcements over music: the very samples of both, the duck, and music that goes on whatever happens."""

from __future__ import annotations

import threading
import wave
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from playhead.errors import ClosedError, DecodeError, UnsupportedFormatError, UsageError
from playhead.playback import FramesSink, MixingSink, NullSink, Player, WaveSink
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.state import ItemStart, Status
from playhead.testing.media import ScriptedMedia, ScriptedReader
from tests import tones
from tests.unit.playback.pieces import wait_until
from tests.unit.playback.test_frames import Device
from tests.unit.playback.test_pcm_buffer import assert_no_click

RATE = 8000
PERIOD = 200
FULL = 1.0
"""A gain that ducks nothing."""


def sine(frames: int, *, hz: float, peak: int) -> array[int]:
    """A sine without a sample of silence."""
    return array("h", (sample or 1 for sample in tones.sine(frames, RATE, hz=hz, peak=peak)))


MUSIC = sine(30 * RATE, hz=101, peak=20_000)
SAID = sine(2 * RATE // 5 + 6, hz=333, peak=16_000)[6:]
"""0.4 s, so that all of it is in hand when it starts; with the music, beyond full scale. It begins at its
peak: no frame of the music, ducked to a quarter, sounds with it as the music does alone."""


def media(samples: array[int], *, rate_hz: int = RATE, title: str = "piece") -> ScriptedMedia:
    return ScriptedMedia(
        reader=ScriptedReader(samples.tobytes()),
        title=title,
        size_bytes=2 * len(samples),
        mime_type=f"audio/pcm;rate={rate_hz};channels=1",
    )


def broken() -> ScriptedMedia:
    reader = ScriptedReader(SAID.tobytes(), error=DecodeError("damaged"))
    return ScriptedMedia(reader=reader, mime_type=f"audio/pcm;rate={RATE};channels=1")


class PeriodSink:
    """A device whose periods a test makes. It keeps what each call of `play` was given to hear."""

    name = "periods"

    def __init__(self) -> None:
        self.runs: list[array[int]] = []
        self.buffer: PcmBuffer | None = None

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        self.runs.append(array("h"))
        try:
            async for buffer in buffers:
                await buffer.wait_ready()
                self.buffer = buffer
                while not buffer.over:
                    await buffer.wait_change()
        finally:
            self.buffer = None

    @property
    def heard(self) -> array[int]:
        return self.runs[-1]

    async def periods(self, count: int) -> None:
        """Periods with audio; one without it is made again."""
        with trio.fail_after(20):
            while count:
                count -= await self._period()

    async def until(self, over: trio.Event) -> None:
        with trio.fail_after(20):
            while not over.is_set():
                await self._period()

    async def _period(self) -> bool:
        """Make one period once the decoder of the music has one. Returns whether it had audio."""
        await wait_all_tasks_blocked()
        buffer = self.buffer
        if buffer is None or buffer.over:
            return False
        if not (buffer.paused or buffer.pipe.closed) and buffer.buffered_seconds < PERIOD / RATE:
            return False
        out = array("h", bytes(2 * PERIOD))
        audio_bytes = buffer.fill(memoryview(out))
        self.heard.extend(out[: audio_bytes // 2])
        return audio_bytes > 0


@asynccontextmanager
async def playing(*music: ScriptedMedia, periods: int = 5) -> AsyncIterator[tuple[Player, PeriodSink]]:
    """A player that has played so many periods of the music."""
    sink = PeriodSink()
    async with Player(sink) as player:
        await player.play(music)
        await sink.periods(periods)
        yield player, sink


async def announce(
    player: Player,
    said: ScriptedMedia,
    done: trio.Event,
    *,
    gain: float = FULL,
    seconds: float = 0.0,
    in_hand: bool = False,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Announce `said`, and set `done` after it. With `in_hand`, it has started once all of it is decoded."""
    async with player.announce(
        said, gain=gain, attack_seconds=seconds, release_seconds=seconds
    ) as announcement:
        while in_hand and announcement.snapshot().buffered_seconds < 0.4:
            await trio.lowlevel.checkpoint()
        task_status.started()
    done.set()


async def hear_out(player: Player, sink: PeriodSink, said: ScriptedMedia, **options: Any) -> None:
    """Announce it, and make the periods in which it is heard."""
    done = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(announce, player, said, done, **options))
        await sink.until(done)


def scaled(sample: int, gain: float) -> int:
    """As the core does it: 16 bits after the point, rounded to nearest."""
    return (sample * round(gain * 65_536) + 32_768) >> 16


def clipped(sample: int) -> int:
    return max(-32_768, min(32_767, sample))


def begin_of(heard: array[int], music: array[int]) -> int:
    """The first frame that is not the music alone."""
    return next(at for at, pair in enumerate(zip(heard, music, strict=False)) if pair[0] != pair[1])


@pytest.mark.parametrize("gain", [FULL, 0.25])
async def test_the_sum_is_exact_and_clipped_and_then_the_music_goes_on(gain: float) -> None:
    async with playing(media(MUSIC)) as (player, sink):
        at = len(sink.heard)
        await hear_out(player, sink, media(SAID), gain=gain)
        await sink.periods(5)
        assert player.snapshot().frames == len(sink.heard), "no sample of the music was skipped"
    heard = sink.heard
    assert heard[:at] == MUSIC[:at]
    ducked = array("h", (scaled(sample, gain) for sample in MUSIC[: len(heard)]))
    begin = at + begin_of(heard[at:], MUSIC[at:] if gain == FULL else ducked[at:])
    while heard[begin] == MUSIC[begin]:  # before the duck
        begin += 1
    begin += begin_of(heard[begin:], ducked[begin:])
    end = begin + len(SAID)
    sums = [clipped(low + high) for low, high in zip(ducked[begin:end], SAID, strict=True)]
    assert heard[begin:end].tolist() == sums
    assert (max(sums) == 32_767) == (gain == FULL)
    back = end + next(
        n for n, pair in enumerate(zip(heard[end:], MUSIC[end:], strict=False)) if pair[0] == pair[1]
    )
    assert heard[back:] == MUSIC[back : len(heard)]
    assert back - end <= 3 * PERIOD


async def test_the_music_is_ducked_and_raised_without_a_click() -> None:
    hum = sine(len(SAID), hz=20, peak=800)
    async with playing(media(MUSIC)) as (player, sink):
        await hear_out(player, sink, media(hum), gain=0.05, seconds=0.05)
        await sink.periods(10)
    assert_no_click(sink.heard, MUSIC, fade_frames=RATE // 20)
    quiet = sink.heard[6 * PERIOD + RATE // 20 :][: RATE // 5]
    assert max(quiet) <= 0.05 * 20_000 + 800 + 1
    assert sink.heard[-PERIOD:] == MUSIC[len(sink.heard) - PERIOD : len(sink.heard)]


@pytest.mark.parametrize("rate_hz", [16_000, 44_100])
async def test_what_has_another_format_is_converted_to_that_of_the_music(rate_hz: int) -> None:
    said = array("h", [9000]) * rate_hz
    async with playing(media(MUSIC)) as (player, sink):
        await hear_out(player, sink, media(said, rate_hz=rate_hz))
    added = [heard - music for heard, music in zip(sink.heard, MUSIC, strict=False) if heard != music]
    assert RATE - 100 <= len(added) <= RATE + 100
    steady = added[200:-200]
    assert max(steady) - min(steady) <= 2
    assert abs(steady[0] - 9000) <= 2


async def test_a_paused_player_announces_and_stays_paused() -> None:
    async with playing(media(MUSIC)) as (player, sink):
        player.pause()
        await sink.periods(1)
        frames = player.snapshot().frames
        at = len(sink.heard)
        await hear_out(player, sink, media(SAID))
        assert sink.heard[at:] == SAID
        assert (player.snapshot().status, player.snapshot().frames) == (Status.PAUSED, frames)


async def test_without_music_it_is_played_alone() -> None:
    sink = PeriodSink()
    async with Player(sink) as player:
        await hear_out(player, sink, media(SAID))
        assert player.snapshot().status is Status.IDLE
    assert sink.runs == [SAID]


async def test_music_that_ends_leaves_the_announcement_and_the_next_in_another_format_waits_for_it() -> None:
    first, second = MUSIC[: 20 * PERIOD], array("h", [7]) * 4410
    items = media(first), media(second, rate_hz=44_100)
    async with playing(*items, periods=15) as (player, sink):
        await hear_out(player, sink, media(SAID), in_hand=True)
        while sum(map(len, sink.runs)) < 20 * PERIOD + len(second):
            await sink.periods(1)
    heard = sink.runs[0]
    begin = begin_of(heard, first)
    added = [a - b for a, b in zip(heard[begin:], first[begin:], strict=False)]
    after = heard[20 * PERIOD : begin + len(SAID)]
    assert added == [clipped(a + b) - b for a, b in zip(SAID, first[begin:], strict=False)]
    assert after == SAID[20 * PERIOD - begin :], "not a sample is missing"
    assert heard[begin + len(SAID) :].tolist()[:100] == [7] * 100


async def test_over_two_items_of_one_format_it_goes_on_without_a_gap() -> None:
    items = media(MUSIC[: 20 * PERIOD]), media(MUSIC[20 * PERIOD :])
    async with playing(*items, periods=15) as (player, sink):
        await hear_out(player, sink, media(SAID), in_hand=True)
    (heard,) = sink.runs
    begin = begin_of(heard, MUSIC)
    assert begin < 20 * PERIOD < begin + len(SAID)
    sums = [clipped(low + high) for low, high in zip(MUSIC[begin:], SAID, strict=False)]
    assert heard[begin : begin + len(SAID)].tolist() == sums


async def test_music_that_is_stopped_leaves_the_announcement() -> None:
    done = trio.Event()
    async with playing(media(MUSIC)) as (player, sink), trio.open_nursery() as nursery:
        await nursery.start(partial(announce, player, media(SAID), done, in_hand=True))
        await sink.periods(4)
        async with trio.open_nursery() as stopping:
            stopping.start_soon(player.stop)
            await sink.periods(2)
        first = len(sink.runs[0])
        await sink.until(done)
        assert first < 5 * PERIOD + len(SAID)
    assert len(sink.runs) == 2
    rest = sink.runs[1]
    assert rest[100:] == SAID[len(SAID) - len(rest) + 100 :], "from the next frame, after a fade, to the end"


async def test_an_announcement_that_fails_is_raised_and_leaves_the_music() -> None:
    async with playing(media(MUSIC)) as (player, sink):
        for bad, error in ((broken(), DecodeError), (media(array("h")), UnsupportedFormatError)):
            over = trio.Event()

            async def fail(
                bad: ScriptedMedia = bad, error: type[Exception] = error, over: trio.Event = over
            ) -> None:
                with pytest.raises(error):
                    async with player.announce(bad, release_seconds=0.0):
                        pass
                over.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail)
                await sink.until(over)
            await sink.periods(3)
            at = len(sink.heard)
            await sink.periods(5)
            assert sink.heard[at:] == MUSIC[at : len(sink.heard)]
        assert player.snapshot().status is Status.PLAYING
        assert player.snapshot().last_error is None


async def test_a_block_that_raises_ends_the_announcement_and_raises_the_music() -> None:
    async with playing(media(MUSIC)) as (player, sink):
        with suppress(RuntimeError):
            async with player.announce(media(SAID), release_seconds=0.0) as announcement:
                raise RuntimeError
        assert announcement.snapshot().status is Status.STOPPED
        await sink.periods(2)
        at = len(sink.heard)
        await sink.periods(3)
        assert sink.heard[at:] == MUSIC[at : len(sink.heard)]


async def test_announcements_follow_one_another_and_a_duck_of_the_players_own_outlasts_them() -> None:
    ends = [trio.Event(), trio.Event()]
    async with playing(media(MUSIC)) as (player, sink), trio.open_nursery() as nursery:
        player.duck(gain=0.0, attack_seconds=0.0)
        at = len(sink.heard)
        for end in ends:
            nursery.start_soon(partial(announce, player, media(SAID), end, gain=0.5))
        for end in ends:
            await sink.until(end)
        await sink.periods(3)
    said = array("h", (sample for sample in sink.heard[at:] if sample))
    assert said == SAID + SAID


async def test_the_frames_of_a_device_have_both() -> None:
    decoded = trio.Event()
    device = Device(lambda _: decoded.wait())
    music, said = array("h", [1000]) * 32_000, array("h", [300]) * 8_000
    async with Player(FramesSink(device)) as player:
        await player.play(media(music, rate_hz=16_000))
        await wait_until(lambda: device.events)
        async with player.announce(media(said, rate_hz=16_000), gain=FULL) as announcement:
            await wait_until(
                lambda: (
                    announcement.snapshot().buffered_seconds == 0.5 and player.snapshot().buffered_seconds > 1
                )
            )
            decoded.set()
        await player.stop()
    samples = array("h", device.pcm)
    assert samples.count(1300) == len(said)
    assert set(samples) == {1000, 1300}


async def test_a_file_gets_it_as_an_item_of_its_own(tmp_path: Path) -> None:
    sink = WaveSink(tmp_path / "out.wav")
    async with Player(sink) as player:
        await player.play(media(MUSIC))
        await wait_until(lambda: sink.paths)  # else the announcement may be decoded first, and be the first
        async with player.announce(media(SAID)):
            pass
        await player.wait_finished()
    lengths = []
    for path in sink.paths:
        with wave.open(str(path)) as file:
            lengths.append(file.getnframes())
    assert lengths == [len(MUSIC), len(SAID)]


async def test_two_players_share_a_mixing_sink() -> None:
    mixing = MixingSink(NullSink())
    async with Player(mixing) as music, Player(mixing.over) as speech:
        await music.play(media(MUSIC))
        events = music.events()
        async for event in events:
            if isinstance(event, ItemStart):
                break
        await speech.play(media(SAID))
        await speech.wait_finished()
        assert speech.snapshot().heard_seconds == pytest.approx(0.4, abs=0.05)
        assert music.snapshot().status is not Status.IDLE


async def test_mistakes_are_refused_and_duck_nothing() -> None:
    sink = PeriodSink()
    player = Player(sink)
    with pytest.raises(ClosedError):
        async with player.announce(media(SAID)):
            pass
    async with player:
        await player.play(media(MUSIC))
        with pytest.raises(UsageError, match="announce: expected a playable"):
            async with player.announce(7):  # type: ignore[arg-type]  # the mistake
                pass
        with pytest.raises(UsageError, match="got a gain of 2"):
            async with player.announce(media(SAID), gain=2):
                pass
        await sink.periods(5)
        assert sink.heard == MUSIC[: len(sink.heard)]


async def test_cancelled_at_any_checkpoint_the_music_is_raised_and_no_thread_is_left() -> None:
    for steps in range(0, 80, 2):
        sink = PeriodSink()
        async with Player(sink) as player:
            await player.play(media(MUSIC))
            await sink.periods(2)
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(partial(announce, player, media(SAID), trio.Event(), gain=0.1))
                    for _ in range(steps):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
            await sink.periods(3)
            at = len(sink.heard)
            await sink.periods(3)
            assert sink.heard[at:] == MUSIC[at : len(sink.heard)]
    assert [thread for thread in threading.enumerate() if "miniaudio" in thread.name] == []
