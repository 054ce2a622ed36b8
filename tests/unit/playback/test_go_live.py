"""A player with a radio or HLS: no duration, its title, and a jump to its newest part."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path

import httpx2
import pytest
import trio
import trio.testing

from playhead.errors import SeekError
from playhead.playback import ItemTitle, NullSink, Player, StateChange, Status
from playhead.playback.state import PlayerEvent
from tests.live_kit import LiveMedia, MemoryWeb, hls_files
from tests.unit.playback.pieces import wait_until

MP3 = (Path(__file__).parents[2] / "data" / "bare.mp3").read_bytes()
INTERVAL = 16_000


@asynccontextmanager
async def playing(media: LiveMedia) -> AsyncIterator[tuple[Player, trio.MemoryReceiveChannel[PlayerEvent]]]:
    """A player in real time, whose item is heard, and its further events."""
    async with Player(NullSink()) as player:
        events = player.events()
        await player.play(media)
        with trio.fail_after(20):
            async for event in events:
                if isinstance(event, StateChange) and event.state.status is Status.PLAYING:
                    break
            yield player, events


async def test_going_live_on_a_paused_radio_drops_what_waits_and_its_titles() -> None:
    connections = 0

    def station(request: httpx2.Request) -> httpx2.Response:
        nonlocal connections
        connections += 1
        titles = ["First", "Later"] if connections == 1 else ["Now"]

        async def chunks() -> AsyncIterator[bytes]:
            for number, data in enumerate(repeat(MP3[:INTERVAL])):
                text = f"StreamTitle='{titles[number]}';".encode() if number < len(titles) else b""
                yield data + bytes([-(-len(text) // 16)]) + text.ljust(-(-len(text) // 16) * 16, b"\0")

        headers = {"icy-metaint": str(INTERVAL), "content-type": "audio/mpeg"}
        return httpx2.Response(200, headers=headers, content=chunks())

    media = LiveMedia(web=MemoryWeb({"/radio": station}), path="/radio")
    async with playing(media) as (player, events):
        player.pause()
        await trio.testing.wait_all_tasks_blocked(0.02)  # the ring is full
        assert player.snapshot().is_live
        before = player.snapshot().position_seconds
        await player.go_live()
        player.resume()
        titles: list[str] = []
        async for event in events:
            if isinstance(event, ItemTitle):
                titles.append(event.stream_title)
                if event.stream_title == "Now":
                    break
        assert "Later" not in titles
        assert connections == 2
        assert player.snapshot().position_seconds >= before
        with pytest.raises(SeekError, match="got a radio"):
            await player.seek(1.0)
        assert player.snapshot().status is not Status.IDLE


async def test_going_live_on_hls_begins_with_the_newest_segment(run_directory: Path) -> None:
    piece, count = hls_files("adts", run_directory), 3
    files = {f"/{name}": data for name, data in piece.files.items()}

    def playlist(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=piece.playlist(count, kind="EVENT", is_ended=False, target="30"))

    media = LiveMedia(web=MemoryWeb({**files, "/list.m3u8": playlist}), path="/list.m3u8")
    async with playing(media) as (player, _events):
        assert (player.snapshot().is_live, player.snapshot().duration_seconds) == (True, None)
        await player.go_live()
        assert 2.0 <= player.snapshot().position_seconds < 3.0
        assert await player.seek(0.5)
        assert 0.5 <= player.snapshot().position_seconds < 2.0


@pytest.mark.parametrize("form", ["adts", "fmp4"])
async def test_a_list_that_stands_still_is_sought_in_after_its_last_audio(
    form: str, run_directory: Path
) -> None:
    piece = hls_files(form, run_directory)
    files = {f"/{name}": data for name, data in piece.files.items()}

    def playlist(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=piece.playlist(4, kind="EVENT", is_ended=False))

    media = LiveMedia(web=MemoryWeb({**files, "/list.m3u8": playlist}), path="/list.m3u8")
    async with Player(NullSink(real_time=False)) as player:
        await player.play(media)
        await wait_until(lambda: player.snapshot().position_seconds > 3.9)
        with trio.fail_after(20):
            assert await player.seek(3.2)
            await wait_until(lambda: player.snapshot().position_seconds > 3.9)
            await player.go_live()
            assert await player.seek(0.5)
        await wait_until(lambda: player.snapshot().position_seconds > 3.9)


async def test_going_live_does_not_wait_for_a_list_that_is_not_sent(run_directory: Path) -> None:
    piece = hls_files("adts", run_directory)
    files = {f"/{name}": data for name, data in piece.files.items()}
    is_hung = False

    async def nothing() -> AsyncIterator[bytes]:
        await trio.sleep_forever()
        yield b""

    def playlist(request: httpx2.Request) -> httpx2.Response:
        data = piece.playlist(4, kind="EVENT", is_ended=False, target="0.5")
        return httpx2.Response(200, content=nothing() if is_hung else data)

    media = LiveMedia(web=MemoryWeb({**files, "/list.m3u8": playlist}), path="/list.m3u8")
    async with Player(NullSink(real_time=False)) as player:
        await player.play(media)
        await wait_until(lambda: player.snapshot().position_seconds > 3.9)
        is_hung = True
        await wait_until(lambda: media.web.requests[-1].url.path == "/list.m3u8")
        with trio.fail_after(20):
            await player.go_live()
            await wait_until(lambda: player.snapshot().frames > 4.5 * 22_050)
