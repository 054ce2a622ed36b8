"""The sink through the real `BackgroundAudioPlayer`, up to the source of its track; no server is there."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import playhead
from playhead.errors import UsageError
from playhead.playback import FileMedia, Player
from playhead.portals import AsyncioPortal
from tests.servers.wave import numbered_wave

pytest.importorskip("livekit.agents", reason="needs `make extra NAME=adapters`")

from livekit import rtc
from livekit.agents import BackgroundAudioPlayer

from playhead.adapters.livekit import RATE_HZ, LiveKitSink


class Background(BackgroundAudioPlayer):  # type: ignore[misc]
    """Remembers what goes into the track, which is not published."""

    def __init__(self) -> None:
        super().__init__()
        self.captured: list[tuple[float, bytes]] = []
        self._came = asyncio.Event()
        capture = self._audio_source.capture_frame

        async def remember(frame: rtc.AudioFrame) -> None:
            self.captured.append((time.monotonic(), bytes(frame.data)))
            self._came.set()
            await capture(frame)  # the source's own queue of 0.4 s sets the pace

        self._audio_source.capture_frame = remember

    async def _publish_track(self) -> None:
        pass

    async def heard(self, size: int) -> array[int]:
        """The samples but for silence, once there are `size` bytes of them, or half a second later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while len(samples := self._samples()) * 2 < size:
                    self._came.clear()
                    await self._came.wait()
        return samples

    def _samples(self) -> array[int]:
        heard = array("h", b"".join(data for _, data in self.captured))
        return array("h", (value for value in heard if value))

    async def wait_for_blocks(self, count: int, *, music: bool) -> None:
        wanted = len(self.captured) + count
        while sum(any(data) or not music for _, data in self.captured[wanted - count :]) < count:
            self._came.clear()
            await self._came.wait()


@asynccontextmanager
async def playing() -> AsyncIterator[tuple[AsyncioPortal, Player, Background]]:
    background = Background()
    await background.start(room=rtc.Room())
    async with playhead.asyncio_portal() as portal:
        player = await portal.enter(Player(LiveKitSink(background, portal)))
        yield portal, player, background
    await background.aclose()


def test_the_track_gets_the_samples_of_the_source(tmp_path: Path) -> None:
    pcm = numbered_wave(tmp_path / "a.wav", 1.25, rate_hz=RATE_HZ)

    async def main() -> None:
        async with playing() as (portal, player, background):
            await portal.call(player.play, FileMedia(tmp_path / "a.wav"))
            await portal.call(player.wait_finished)
            assert (await background.heard(len(pcm))).tobytes() == pcm

    asyncio.run(main())


def test_a_pause_is_silence_and_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pcm = numbered_wave(tmp_path / "a.wav", 1.5, rate_hz=RATE_HZ)

    async def main() -> None:
        async with playing() as (portal, player, background):
            await portal.call(player.play, FileMedia(tmp_path / "a.wav"))
            await background.wait_for_blocks(3, music=True)
            await portal.call(player.hold, "test")
            await background.wait_for_blocks(8, music=False)
            await portal.call(player.release, "test")
            await portal.call(player.wait_finished)
            heard = await background.heard(len(pcm) - RATE_HZ // 50)  # but for the ends of the fades
            assert len(heard) == pytest.approx(len(pcm) // 2, abs=RATE_HZ // 100)

    asyncio.run(main())
    assert [record.message for record in caplog.records if "timeout" in record.message] == []


def test_a_stop_ends_the_queue_and_the_next_one_plays(tmp_path: Path) -> None:
    numbered_wave(tmp_path / "a.wav", 30, rate_hz=RATE_HZ)

    async def main() -> None:
        async with playing() as (portal, player, background):
            for _ in range(2):
                await portal.call(player.play, FileMedia(tmp_path / "a.wav"))
                await background.wait_for_blocks(3, music=True)
                asked = time.monotonic()
                await portal.call(player.stop)
                await asyncio.sleep(0.5)  # as long as LiveKit could hold audio
                last = max(at for at, data in background.captured if any(data))
                print("last block after the stop, s:", round(last - asked, 3))
                assert last - asked < 0.1
                assert background._play_tasks == []

    asyncio.run(main())


def test_a_background_that_was_not_started_fails_the_item(tmp_path: Path) -> None:
    numbered_wave(tmp_path / "a.wav", 1, rate_hz=RATE_HZ)

    async def main() -> None:
        async with playhead.asyncio_portal() as portal:
            player = await portal.enter(Player(LiveKitSink(Background(), portal)))
            await portal.call(player.play, FileMedia(tmp_path / "a.wav"))
            with pytest.raises(UsageError, match="not started"):
                await portal.call(player.wait_finished)

    asyncio.run(main())
