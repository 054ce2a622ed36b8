"""The snippets of docs/voice-stacks.md for pipecat and LiveKit run with the real packages."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import playhead
from playhead.playback import FileMedia, Player
from tests.snippets import run_snippet, snippet
from tests.tones import numbered_wave

pytest.importorskip("pipecat", reason="needs `make extra NAME=adapters`")

from livekit import rtc
from livekit.agents import AgentSession
from pipecat.frames.frames import EndFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.workers.runner import WorkerRunner

from playhead.adapters.livekit import RATE_HZ, LiveKitSink
from playhead.adapters.pipecat import PlayheadMixer, StopOnInterruption
from tests.adapters import test_livekit, test_pipecat


def test_the_pipeline_of_pipecat_plays(tmp_path: Path) -> None:
    pcm = numbered_wave(tmp_path / "a.wav", 1.5, rate_hz=test_pipecat.RATE)

    async def main() -> bytearray:
        names: dict[str, Any] = {"playhead": playhead, "Player": Player, "Pipeline": Pipeline, "voice": []}
        names |= {"PlayheadMixer": PlayheadMixer, "StopOnInterruption": StopOnInterruption}
        made: list[test_pipecat.ScriptedOutput] = []

        def output() -> test_pipecat.ScriptedOutput:
            made.append(test_pipecat.ScriptedOutput(names["mixer"]))
            return made[0]

        async def play() -> None:
            params = PipelineParams(audio_out_sample_rate=test_pipecat.RATE)
            worker = PipelineWorker(names["pipeline"], params=params)
            runner = WorkerRunner(handle_sigint=False)
            await runner.add_workers(worker)
            running = asyncio.create_task(runner.run())
            await made[0].ready.wait()
            await names["portal"].call(names["player"].play, FileMedia(tmp_path / "a.wav"))
            await names["portal"].call(names["player"].wait_finished)
            await made[0].wait_for_writes(5)
            await worker.queue_frame(EndFrame())
            await running

        names["transport"] = SimpleNamespace(output=output)
        await run_snippet(snippet("voice-stacks.md", "PlayheadMixer"), names, then=play)
        return made[0].heard

    assert test_pipecat.without_silence(asyncio.run(main())) == pcm


def test_the_background_of_livekit_plays(tmp_path: Path) -> None:
    numbered_wave(tmp_path / "a.wav", 30, rate_hz=RATE_HZ)

    async def main() -> None:
        background = test_livekit.Background()
        names: dict[str, Any] = {"playhead": playhead, "Player": Player, "LiveKitSink": LiveKitSink}
        names |= {
            "background": background,
            "ctx": SimpleNamespace(room=rtc.Room()),
            "session": AgentSession(),
        }

        async def play() -> None:
            await names["portal"].call(names["player"].play, FileMedia(tmp_path / "a.wav"))
            await background.wait_for_blocks(3, music=True)

        await run_snippet(snippet("voice-stacks.md", "LiveKitSink"), names, then=play)
        await background.aclose()
        with suppress(RuntimeError):  # it was never started
            await names["session"].aclose()

    asyncio.run(main())
