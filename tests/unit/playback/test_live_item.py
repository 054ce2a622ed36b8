"""Seeks of a player in live items: refused ones, and those of an item that waits for bytes yet to be made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
import trio

from playhead.errors import SeekError
from playhead.playback import ItemStart, Player, Status
from playhead.stream.options import StreamOptions
from playhead.stream.reader import RangeStream
from playhead.stream.source import Playable
from tests.live_kit import LiveMedia, MemoryWeb, hls_files
from tests.servers.growth import Growth
from tests.servers.wave import wave_header
from tests.unit.playback.pieces import DATA, fast, wait_until

SILENCE = wave_header(2**31) + bytes(400_000)


@dataclass
class GrowingMedia:
    """The resource of a `Growth`, whose schedule begins when it is opened."""

    growth: Growth
    title: str = "growing"
    mime_type: str | None = None
    uri: str | None = None
    size_bytes: int | None = None

    def open(self, options: StreamOptions | None = None) -> AbstractAsyncContextManager[RangeStream]:
        return self.growth.open(StreamOptions(profile="play", capacity_bytes=65_536))


@asynccontextmanager
async def playing(media: Playable) -> AsyncIterator[Player]:
    async with Player(fast()) as player:
        events = player.events()
        with trio.fail_after(20):
            await player.play(media)
            while not isinstance(await events.receive(), ItemStart):
                pass
            yield player


async def wait_heard(player: Player, frames: int) -> None:
    """Wait until `frames` were taken, or the item is over."""
    over = {Status.IDLE, Status.ERROR}
    await wait_until(lambda: player.snapshot().frames >= frames or player.snapshot().status in over)
    assert player.snapshot().last_error is None
    assert player.snapshot().frames >= frames


@pytest.mark.parametrize(
    ("name", "mime_type", "frames"),
    [("bare.mp3", "audio/mpeg", 30_000), ("chord.flac", "audio/flac", 30_000)],
)
async def test_a_radio_that_cannot_seek_refuses_and_plays_on(name: str, mime_type: str, frames: int) -> None:
    audio, goes_on = (DATA / name).read_bytes(), trio.Event()

    async def send() -> AsyncIterator[bytes]:
        yield audio[: len(audio) // 2]
        await goes_on.wait()
        yield audio[len(audio) // 2 :]
        await trio.sleep_forever()

    def station(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"icy-name": "x", "content-type": mime_type}, content=send())

    web = MemoryWeb({"/live": station})
    async with playing(LiveMedia(web=web, path="/live")) as player:
        with pytest.raises(SeekError, match="got a radio, which is heard as it is sent"):
            await player.seek(10.0)
        goes_on.set()
        await wait_heard(player, frames)


@pytest.mark.parametrize("seconds", [0.2, 100.0])
async def test_an_item_that_waits_for_growth_seeks_at_once(seconds: float) -> None:
    growth = Growth(data=SILENCE, schedule=[(0.0, 300_000), (1000.0, len(SILENCE))], notifies=True)
    async with playing(GrowingMedia(growth)) as player:
        await wait_heard(player, 74_500)  # less than a block of the decoder is left
        assert await player.seek(seconds)


async def test_an_item_whose_server_has_dropped_the_place_goes_to_the_earliest_part() -> None:
    growth = Growth(data=SILENCE, schedule=[(0.0, 100_000), (1000.0, 0)])
    async with playing(GrowingMedia(growth)) as player:
        await wait_heard(player, 20_000)
        # The stream skips from the byte that it has reached: all that there is must have been read.
        await wait_until(lambda: max(start + count for _, start, _, count in growth.reads) == 100_000)
        growth.earliest_at, growth.schedule = [(0.0, 200_000)], [(0.0, 300_000), (1000.0, 0)]
        await wait_heard(player, 45_000)
        assert await player.seek(0.0)
        skipped_bytes = -(-100_000 // 288) * 288
        earliest_seconds = (100_000 + skipped_bytes - 44) / 4 / 44_100
        assert player.snapshot().position_seconds == pytest.approx(earliest_seconds, abs=0.1)
        growth.schedule = [(0.0, len(SILENCE))]
        await player.wait_finished()
        assert player.snapshot().position_seconds == 400_000 / 4 / 44_100


@pytest.mark.parametrize("form", ["adts", "fmp4"])
async def test_a_file_that_grows_is_sought_in_after_its_last_audio(form: str, run_directory: Path) -> None:
    piece = hls_files(form, run_directory)
    head = piece.files.get("init.mp4", b"")
    data, present = head + b"".join(piece.segments), head + b"".join(piece.segments[:3])
    growth = Growth(data=data, schedule=[(0.0, len(present)), (1000.0, len(data))])
    async with Player(fast()) as player:
        await player.play(GrowingMedia(growth))
        await wait_until(lambda: player.snapshot().position_seconds > 2.9)
        with trio.fail_after(20):
            assert await player.seek(2.2)
            await wait_until(lambda: player.snapshot().position_seconds > 2.9)
            await player.go_live()
            assert await player.seek(0.5)
            await wait_until(lambda: player.snapshot().position_seconds > 2.9)
        growth.schedule = [(0.0, len(data))]
        await player.wait_finished()
        assert player.snapshot().position_seconds == pytest.approx(4.0, abs=0.1)
