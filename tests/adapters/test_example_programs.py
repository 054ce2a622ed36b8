"""The example for pipecat: a conversation with a scripted model and a scripted transport."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from pathlib import Path
from runpy import run_path

import pytest

pytest.importorskip("pipecat", reason="needs `make extra NAME=adapters`")

from pipecat.frames.frames import InterruptionFrame
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext

from playhead.adapters.pipecat import PlayheadMixer
from tests.adapters.test_pipecat import ScriptedOutput

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVER = f"{os.environ.get('PLAYHEAD_PYTHON', sys.executable)} -m playhead serve audio --mixer memory"


def test_the_pipecat_example_is_a_conversation() -> None:
    example = run_path(str(EXAMPLES / "pipecat_music.py"))
    example["main"].__globals__["SERVERS"] = {"music": SERVER}
    outputs: list[ScriptedOutput] = []
    silences: list[float] = []

    def make_output(mixer: PlayheadMixer) -> ScriptedOutput:
        outputs.append(ScriptedOutput(mixer))
        return outputs[0]

    async def converse(worker: PipelineWorker, context: LLMContext) -> None:
        output, speaks = outputs[0], example["user_speaks"]
        await speaks(worker, "Play first light")
        await output.wait_for_music()
        await output.wait_for_writes(40)
        assert context.messages[-1]["role"] == "tool", "the model was asked again, though it plays"
        asked = time.monotonic()
        await worker.queue_frame(InterruptionFrame())
        await output.wait_for_writes(10)
        silences.append(max(at for at, audio in output.written if any(audio)) - asked)
        await speaks(worker, "What was that?")
        await output.wait_for_music()  # the voice

        while len(context.messages) < 6:
            await output.wait_for_writes(1)
        song, call, result, note, question, answer = context.messages
        assert song == {"role": "user", "content": "Play first light"}
        assert call["tool_calls"][0]["function"]["name"] == "music__musicPlayer"
        assert "First Light" in result["content"]
        assert "base64" not in result["content"]
        heard = re.search(r"stopped after ([\d.]+) s heard", note["content"])
        assert heard is not None
        assert 0.5 < float(heard[1]) < asked
        assert question["content"] == "What was that?"
        assert answer["content"].endswith(note["content"])

    asyncio.run(example["main"](make_output, converse))
    print("last music after the barge-in, s:", [round(each, 3) for each in silences])
    assert silences[0] < 0.1
