"""Seeks of the player: the audio continues at that very sample, and a seek that fails changes nothing."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from playhead.errors import SeekError, UsageError
from playhead.playback.files import FileMedia
from playhead.playback.pcm_buffer import SEEK_FADE_SECONDS
from playhead.playback.player import Player
from playhead.playback.sinks import NullSink
from playhead.stream.answer import Page
from playhead.stream.options import StreamOptions
from playhead.stream.reader import RangeStream, open_stream
from playhead.stream.source import BytesReader, Playable, Reader
from playhead.testing.media import ScriptedMedia, ScriptedReader
from tests.unit.playback import pieces
from tests.unit.playback.pieces import DATA, MUSIC, wait_until
from tests.unit.playback.test_seeking import RATE_HZ, decoded, encoded

PERIOD_FRAMES = 512


class SteppedSink(pieces.SteppedSink):
    async def heard(self, frames: int) -> bytes:
        """The audio of the next periods, without the silence while it is held back."""
        with trio.fail_after(20):
            await self.opened.wait()
            heard, size = bytearray(), self.buffer.format.frame_bytes
            while len(heard) < frames * size and not self.buffer.ended:
                period = bytearray(PERIOD_FRAMES * size)
                if count := self.buffer.fill(period):
                    heard += period[:count]
                else:
                    await trio.lowlevel.checkpoint()
            return bytes(heard)

    async def heard_after_seek(self, frames: int) -> bytes:
        """The audio after a seek, without both fades."""
        await self.opened.wait()
        size = self.buffer.format.frame_bytes
        fades = 2 * int(SEEK_FADE_SECONDS * self.buffer.format.rate_hz)
        return (await self.heard(fades + frames))[fades * size :]


def place(pcm: bytes, heard: bytes, frame_bytes: int) -> float:
    """The frame at which `heard` begins."""
    assert len(heard) > 200 * frame_bytes
    return pcm.find(heard) / frame_bytes


@asynccontextmanager
async def playing(media: Playable) -> AsyncIterator[tuple[Player, SteppedSink]]:
    sink = SteppedSink()
    async with Player(sink) as player:
        await player.play(media)
        await sink.heard(PERIOD_FRAMES)
        yield player, sink


@pytest.mark.parametrize("name", MUSIC)
async def test_the_sink_gets_the_samples_from_there_after_a_fade(name: str) -> None:
    pcm, draw = decoded((DATA / name).read_bytes()), random.Random(1)
    async with playing(FileMedia(DATA / name)) as (player, sink):
        format = sink.buffer.format
        fade = int(SEEK_FADE_SECONDS * format.rate_hz)
        for _ in range(8):
            frame = draw.randrange(len(pcm) // format.frame_bytes - 3 * format.rate_hz // 4)
            await player.seek(frame / format.rate_hz)
            assert player.snapshot().position_seconds == pytest.approx(frame / format.rate_hz)
            assert player.snapshot().position_is_exact
            heard = await sink.heard_after_seek(4 * PERIOD_FRAMES)
            assert frame + fade <= place(pcm, heard, format.frame_bytes) <= frame + 2 * fade
            begin = place(pcm, heard, format.frame_bytes)
            assert sink.buffer.position_frames == begin + len(heard) // format.frame_bytes


async def test_a_thousand_seeks_while_playing_give_no_wrong_sample() -> None:
    pcm, draw = decoded(encoded("flac")), random.Random(2)
    media = ScriptedMedia(reader=BytesReader(encoded("flac")))
    async with playing(media) as (player, sink):
        format = sink.buffer.format
        total = len(pcm) // format.frame_bytes
        for _ in range(1000):
            frame = draw.randrange(total - format.rate_hz)
            await player.seek(frame / format.rate_hz)
            heard = await sink.heard_after_seek(draw.randrange(300, 3000))
            begin = frame + int(SEEK_FADE_SECONDS * format.rate_hz)
            near = pcm[begin * format.frame_bytes : (begin + 8000) * format.frame_bytes]
            assert 0 <= near.find(heard) <= (begin - frame) * format.frame_bytes


async def test_a_paused_player_seeks_and_stays_paused() -> None:
    pcm = decoded((DATA / "chord.wav").read_bytes())
    async with playing(FileMedia(DATA / "chord.wav")) as (player, sink):
        player.pause()
        await sink.heard(0)
        for _ in range(4):
            sink.buffer.fill(bytearray(PERIOD_FRAMES * 2))
        await player.seek(1.0)
        assert player.snapshot().position_seconds == 1.0
        assert sink.buffer.fill(bytearray(PERIOD_FRAMES * 2)) == 0
        player.resume()
        heard = await sink.heard_after_seek(2 * PERIOD_FRAMES)
        assert 16_000 <= place(pcm, heard, 2) <= 16_300


async def test_one_can_seek_back_while_the_last_audio_plays() -> None:
    pcm = decoded((DATA / "chord.wav").read_bytes())
    async with playing(FileMedia(DATA / "chord.wav")) as (player, sink):
        await player.seek(1.9)  # the rest fits into the buffer: everything is decoded
        await wait_all_tasks_blocked()
        await player.seek(0.5)
        assert 8_000 <= place(pcm, await sink.heard_after_seek(1000), 2) <= 8_300
        assert len(await sink.heard(1 << 30)) > 2 * 20_000
        with trio.fail_after(20):
            await player.wait_finished()
        with pytest.raises(SeekError, match="play"):
            await player.seek(0.5)


async def test_past_the_end_is_the_end() -> None:
    async with playing(FileMedia(DATA / "chord.flac")) as (player, sink):
        await player.seek(1e6)
        await sink.heard(1 << 30)
        with trio.fail_after(20):
            await player.wait_finished()
        assert player.snapshot().last_error is None


async def test_seek_by_counts_from_the_playhead_and_stops_at_the_beginning() -> None:
    async with playing(FileMedia(DATA / "chord.wav")) as (player, _):
        begin = player.snapshot().position_seconds
        await player.seek_by(1.0)
        assert player.snapshot().position_seconds == pytest.approx(begin + 1.0)
        await player.seek_by(-100)
        assert player.snapshot().position_seconds == 0.0


async def test_a_source_that_cannot_seek_is_refused_and_plays_on() -> None:
    data = (DATA / "chord.wav").read_bytes()
    pcm = decoded(data)
    async with playing(ScriptedMedia(reader=ScriptedReader(data), title="a queue")) as (player, sink):
        with pytest.raises(SeekError, match="a queue"):
            await player.seek(1.0)
        rest = await sink.heard(1 << 30)
        assert pcm.endswith(rest)
        assert len(rest) == len(pcm) - 2 * PERIOD_FRAMES


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
async def test_a_time_that_cannot_be_meant_is_refused(seconds: float) -> None:
    async with Player(NullSink()) as player:
        with pytest.raises(UsageError, match="or more seconds"):
            await player.seek(seconds)


async def test_without_an_item_there_is_nothing_to_seek() -> None:
    async with Player(NullSink()) as player:
        with pytest.raises(SeekError, match="play"):
            await player.seek(1.0)


class StreamMedia(ScriptedMedia):
    """Plays what `read_range` gives."""

    def __init__(self, read_range: Callable[[int, int], Awaitable[Page]], size_bytes: int) -> None:
        super().__init__(reader=BytesReader(b""), size_bytes=size_bytes)
        self._read_range = read_range
        self.stream: RangeStream

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[Reader]:
        async with open_stream(self._read_range, size_bytes=self.size_bytes) as stream:
            self.stream = stream
            yield stream


async def test_a_seek_leaves_a_read_that_hangs() -> None:
    data = encoded("wav")
    pcm, hangs_from = decoded(data), 40_000
    hung = trio.Event()

    async def read_range(start: int, end: int) -> Page:
        if hangs_from <= start < 5_000_000:
            hung.set()
            await trio.sleep_forever()
        return Page(blobs=(data[start:end],))

    sink = SteppedSink()
    async with Player(sink) as player:
        media = StreamMedia(read_range, len(data))
        await player.play(media)
        await hung.wait()
        await wait_until(lambda: media.stream.position >= 8 << 10 and media.stream._driver.wait.reader_waits)
        with trio.fail_after(20):
            await player.seek(40.0)
            assert player.snapshot().position_seconds == 40.0
        assert place(pcm, await sink.heard_after_seek(5000), 4) == pytest.approx(40 * RATE_HZ, abs=500)
