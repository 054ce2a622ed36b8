"""The examples for pipecat and LiveKit, with the peers of the tests in place of a loudspeaker and a room."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from runpy import run_path

import pytest

from tests.under_asyncio import under_asyncio

pytest.importorskip("pipecat", reason="needs `make extra NAME=adapters`")

from playhead.adapters.pipecat import PlayheadMixer
from tests.adapters.test_livekit import Background
from tests.adapters.test_pipecat import ScriptedOutput

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVER = f"{os.environ.get('PLAYHEAD_PYTHON', sys.executable)} -m playhead serve audio --mixer memory"


async def cancelled(task: asyncio.Task[None]) -> None:
    """Cancel the program as Ctrl-C does, and wait until it has ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):  # pipecat's runner ends without one
        await task


@under_asyncio
async def test_the_pipecat_example_plays() -> None:
    example = run_path(str(EXAMPLES / "pipecat_music.py"))
    example["main"].__globals__["SERVER"] = SERVER
    made: asyncio.Future[ScriptedOutput] = asyncio.get_running_loop().create_future()

    def make_output(mixer: PlayheadMixer) -> ScriptedOutput:
        made.set_result(ScriptedOutput(mixer))
        return made.result()

    running = asyncio.create_task(example["main"](make_output))
    await (await made).wait_for_music()
    await cancelled(running)


@under_asyncio
async def test_the_livekit_example_plays() -> None:
    example = run_path(str(EXAMPLES / "livekit_music.py"))
    example["play"].__globals__["SERVER"] = SERVER
    background = Background()
    await background.start(room=None)
    running = asyncio.create_task(example["play"](background))
    await background.wait_for_blocks(3, music=True)
    await cancelled(running)
    await background.aclose()
