"""The mixer in a pipeline of the real pipecat, whose output transport writes to the test in real time."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import playhead
from playhead.errors import UsageError
from playhead.playback import FileMedia, Player
from playhead.portals import AsyncioPortal
from tests.servers.wave import numbered_wave

pytest.importorskip("pipecat", reason="needs `make extra NAME=adapters`")

from pipecat.frames.frames import (
    EndFrame,
    InterruptionFrame,
    MixerEnableFrame,
    OutputAudioRawFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

from playhead.adapters.pipecat import PlayheadMixer, StopOnInterruption

RATE = 24_000


class ScriptedOutput(BaseOutputTransport):  # type: ignore[misc]
    """An output transport that takes audio as a loudspeaker does, and remembers it."""

    def __init__(self, mixer: PlayheadMixer) -> None:
        super().__init__(TransportParams(audio_out_enabled=True, audio_out_mixer=mixer))
        self.ready = asyncio.Event()
        self.heard = bytearray()
        self.written: list[tuple[float, bytes]] = []
        self._due = 0.0
        self._wrote = asyncio.Event()

    async def start(self, frame: Any) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)
        self.ready.set()

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        now = time.monotonic()
        self._due = max(self._due, now - 0.02) + len(frame.audio) / 2 / RATE
        self.heard += frame.audio
        self.written.append((now, frame.audio))
        self._wrote.set()
        await asyncio.sleep(self._due - now)
        return True

    async def wait_until(self, seen: Callable[[list[bytes]], bool]) -> None:
        """Wait until what is written from now on is as wanted."""
        count = len(self.written)
        while not seen([audio for _, audio in self.written[count:]]):
            self._wrote.clear()
            await self._wrote.wait()

    async def wait_for_music(self) -> None:
        await self.wait_until(lambda written: any(map(any, written)))

    async def wait_for_writes(self, count: int) -> None:
        await self.wait_until(lambda written: len(written) >= count)


@asynccontextmanager
async def pipeline() -> AsyncIterator[
    tuple[AsyncioPortal, Player, PlayheadMixer, ScriptedOutput, PipelineWorker]
]:
    mixer = PlayheadMixer()
    output = ScriptedOutput(mixer)
    async with playhead.asyncio_portal() as portal:
        player = await portal.enter(Player(mixer))
        worker = PipelineWorker(
            Pipeline([StopOnInterruption(portal, player), output]),
            params=PipelineParams(audio_out_sample_rate=RATE),
        )
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(worker)
        running = asyncio.create_task(runner.run())
        await output.ready.wait()
        try:
            yield portal, player, mixer, output, worker
        finally:
            await worker.queue_frame(EndFrame())
            await running


def without_silence(heard: bytes | bytearray) -> bytes:
    return array("h", (value for value in array("h", bytes(heard)) if value)).tobytes()


def test_the_transport_plays_the_samples_of_the_source(tmp_path: Path) -> None:
    pcm = numbered_wave(tmp_path / "a.wav", 1.5, rate_hz=RATE)

    async def main() -> None:
        async with pipeline() as (portal, player, _, output, _):
            await portal.call(player.play, FileMedia(tmp_path / "a.wav"))
            await portal.call(player.wait_finished)
            await output.wait_for_writes(5)
            assert without_silence(output.heard) == pcm

    asyncio.run(main())


def test_the_bots_voice_is_heard_over_the_music(tmp_path: Path) -> None:
    numbered_wave(tmp_path / "a.wav", 3, rate_hz=RATE)

    async def main() -> None:
        async with pipeline() as (portal, player, _, output, worker):
            await portal.call(player.play, FileMedia(tmp_path / "a.wav"))
            await output.wait_for_music()
            voice = array("h", [-20_000] * RATE).tobytes()
            await worker.queue_frame(OutputAudioRawFrame(voice, sample_rate=RATE, num_channels=1))
            await output.wait_until(lambda written: any(max(array("h", audio)) < 0 for audio in written))
            mixed = next(audio for _, audio in output.written if max(array("h", audio)) < 0)
            assert any(value > -20_000 for value in array("h", mixed))

    asyncio.run(main())


def test_an_interruption_stops_the_music_within_100_ms(tmp_path: Path) -> None:
    numbered_wave(tmp_path / "a.wav", 30, rate_hz=RATE)

    async def main() -> list[float]:
        silences = []
        async with pipeline() as (portal, player, _, output, worker):
            for _ in range(5):
                await portal.call(player.play, FileMedia(tmp_path / "a.wav"))
                await output.wait_for_music()
                asked = time.monotonic()
                await worker.queue_frame(InterruptionFrame())
                await portal.call(player.wait_finished)
                await output.wait_for_writes(5)
                last = max(at for at, audio in output.written if any(audio))
                silences.append(last - asked)
        return silences

    silences = asyncio.run(main())
    print("last music after the interruption, s:", [round(each, 3) for each in silences])
    assert max(silences) < 0.1


def test_a_disabled_mixer_is_silent_while_the_music_goes_on(tmp_path: Path) -> None:
    numbered_wave(tmp_path / "a.wav", 30, rate_hz=RATE)

    async def main() -> None:
        async with pipeline() as (portal, player, _, output, worker):
            await portal.call(player.play, FileMedia(tmp_path / "a.wav"))
            await output.wait_for_music()
            await worker.queue_frame(MixerEnableFrame(False))
            await output.wait_for_writes(3)
            count, position = len(output.written), player.snapshot().position_seconds
            await output.wait_for_writes(5)
            assert not any(any(audio) for _, audio in output.written[count:])
            assert player.snapshot().position_seconds > position
            await worker.queue_frame(MixerEnableFrame(True))
            await output.wait_for_music()

    asyncio.run(main())


def test_music_before_the_transport_has_started_fails(tmp_path: Path) -> None:
    numbered_wave(tmp_path / "a.wav", 1, rate_hz=RATE)

    async def main() -> None:
        async with playhead.asyncio_portal() as portal:
            player = await portal.enter(Player(PlayheadMixer()))
            await portal.call(player.play, FileMedia(tmp_path / "a.wav"))
            with pytest.raises(UsageError, match="a transport that has started the mixer"):
                await portal.call(player.wait_finished)

    asyncio.run(main())
