"""A player with an item that still grows: no duration, a jump to its newest part, and its end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio
import trio.testing
from mcp.server import MCPServer

from playhead.client import connect
from playhead.errors import SeekError
from playhead.limits import KIB
from playhead.playback import ItemSkipped, NullSink, Player, StateChange, Status
from playhead.playback.player_tools import PLAYER_TOOLS
from playhead.servers.growing_source import KEPT_BYTES
from playhead.servers.ranged_resource import ranged_resource
from playhead.stream.options import StreamOptions
from playhead.stream.source import Playable, PlayableWrapper, Reader
from tests.servers.wave import wave_header

BYTES_PER_SECOND = 4 * 44_100
SECOND = bytes(BYTES_PER_SECOND)
SMALL_RING = StreamOptions(capacity_bytes=128 * KIB)


class Speech:
    """WAV of unknown length, made by the second."""

    def __init__(self) -> None:
        self.send, self._pieces = trio.open_memory_channel[bytes](1000)

    def make(self, seconds: int) -> None:
        self.send.send_nowait(SECOND * seconds)

    async def pieces(self) -> AsyncIterator[bytes]:
        yield wave_header(2**31)
        async for piece in self._pieces:
            yield piece


class OpenedWith(PlayableWrapper):
    def __init__(self, inner: Playable, options: StreamOptions | None) -> None:
        super().__init__(inner)
        self._options = options

    def open(self, options: StreamOptions | None = None) -> AbstractAsyncContextManager[Reader]:
        return self.inner.open(self._options)


@asynccontextmanager
async def playing(
    speech: Speech, *, kept_bytes: int = KEPT_BYTES, options: StreamOptions | None = None
) -> AsyncIterator[Player]:
    """A player in real time, whose item is heard."""
    server = MCPServer("speech")
    ranged_resource(
        server, "speech://1.wav", growing=speech.pieces, mime_type="audio/wav", kept_bytes=kept_bytes
    )
    async with connect(server) as session, Player(NullSink()) as player:
        events = player.events()
        await player.play(OpenedWith(session.media("speech://1.wav"), options))
        with trio.fail_after(20):
            async for event in events:
                if isinstance(event, StateChange) and event.state.status is Status.PLAYING:
                    break
        yield player


async def test_a_growing_item_has_no_duration_and_a_jump_leads_to_its_newest_part() -> None:
    speech = Speech()
    speech.make(60)
    async with playing(speech) as player:
        now = player.snapshot()
        assert (now.is_live, now.duration_seconds) == (True, None)
        await player.go_live()
        assert 55 < player.snapshot().position_seconds <= 60
        answer = await PLAYER_TOOLS["go_live"].call(player, {})
        assert "newest part" in str(answer)
        await player.seek(10.0)
        assert player.snapshot().position_seconds == pytest.approx(10.0, abs=1.0)


async def test_a_seek_beyond_the_newest_part_goes_there() -> None:
    speech = Speech()
    speech.make(30)
    async with playing(speech) as player:
        assert await player.seek(1000.0)
        assert 25 < player.snapshot().position_seconds <= 30


async def test_an_item_that_has_ended_is_no_longer_live() -> None:
    speech = Speech()
    speech.make(5)
    async with playing(speech) as player:
        speech.send.close()
        with trio.fail_after(20):
            while player.snapshot().is_live:
                await trio.testing.wait_all_tasks_blocked(0.005)
        with pytest.raises(SeekError, match="expected a live item that plays"):
            await player.go_live()


async def test_positions_count_what_the_server_has_dropped() -> None:
    speech = Speech()
    speech.make(10)
    async with playing(speech, kept_bytes=20 * BYTES_PER_SECOND, options=SMALL_RING) as player:
        events = player.events()
        player.pause()
        speech.make(110)  # of 120 seconds the newest 20 are kept
        player.resume()
        with trio.fail_after(20):
            async for event in events:
                if isinstance(event, ItemSkipped):
                    break
            while player.snapshot().position_seconds < 100.0:
                await trio.testing.wait_all_tasks_blocked(0.005)
        assert player.snapshot().position_seconds < 105.0
        await player.go_live()
        assert 115 < player.snapshot().position_seconds <= 120
        await player.seek(110.0)
        assert player.snapshot().position_seconds == pytest.approx(110.0, abs=1.0)
        await player.seek(10.0)
        assert player.snapshot().position_seconds == pytest.approx(100.0, abs=1.0)
        assert player.snapshot().heard_seconds < 20.0
