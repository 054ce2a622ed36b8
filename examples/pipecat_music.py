"""A conversation with a pipecat bot that plays music from an MCP server on this machine's loudspeaker.

    pip install 'pipecat-ai[local]' 'playhead[cli]'
    python pipecat_music.py

The user asks for music, interrupts it, and asks what it was. The model and the voice are scripted, so the
program needs no key: put your own in their places, and `transport.input()` and speech recognition first.
"""

# not run: a loudspeaker

import asyncio
from collections.abc import Awaitable, Callable

from pipecat.frames.frames import (
    Frame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMTextFrame,
    OutputAudioRawFrame,
    TextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import FunctionCallFromLLM, LLMService
from pipecat.workers.runner import WorkerRunner

import playhead
from playhead.adapters.pipecat import PlayheadMixer, register_tools
from playhead.playback import Player

SERVERS = {"music": "playhead serve audio --mixer memory"}
RATE_HZ = 24_000


class ScriptedModel(LLMService):
    """Calls the music player when it is asked to play, and otherwise repeats what it knows of the music."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        messages = [str(message.get("content", "")) for message in frame.context.messages]
        if messages[-1].startswith("Play "):
            call = FunctionCallFromLLM(
                context=frame.context,
                tool_call_id="call-1",
                function_name="music__musicPlayer",
                arguments={"query": messages[-1].removeprefix("Play ")},
            )
            await self.run_function_calls([call])
            return
        notes = [message for message in messages if message.startswith("[The user interrupted")]
        await self.push_frame(LLMFullResponseStartFrame())
        await self.push_frame(LLMTextFrame(f"That was First Light. {notes[-1] if notes else ''}"))
        await self.push_frame(LLMFullResponseEndFrame())


class ScriptedVoice(FrameProcessor):
    """Speaks with a hum of a tenth of a second per word."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)
        if isinstance(frame, TextFrame):
            wave = [2000 if at // 100 % 2 else -2000 for at in range(RATE_HZ // 10)]
            word = b"".join(sample.to_bytes(2, "little", signed=True) for sample in wave)
            audio = word * len(frame.text.split())
            await self.push_frame(OutputAudioRawFrame(audio, sample_rate=RATE_HZ, num_channels=1))


async def user_speaks(worker: PipelineWorker, text: str) -> None:
    """Say what speech recognition would have understood. Speaking interrupts the bot, and its music."""
    await worker.queue_frame(InterruptionFrame())
    message = {"role": "user", "content": text}
    await worker.queue_frame(LLMMessagesAppendFrame([message], run_llm=True))


async def main(
    make_output: Callable[[PlayheadMixer], FrameProcessor],
    converse: Callable[[PipelineWorker, LLMContext], Awaitable[None]],
) -> None:
    mixer, context, llm = PlayheadMixer(), LLMContext(), ScriptedModel()
    user, assistant = LLMContextAggregatorPair(context)
    async with playhead.asyncio_portal() as portal:
        player = await portal.enter(Player(mixer))
        hub = await portal.enter(playhead.open_hub(SERVERS))
        interruption = await register_tools(llm, hub, player, context=context, portal=portal)
        output = make_output(mixer)
        worker = PipelineWorker(Pipeline([user, llm, ScriptedVoice(), interruption, output, assistant]))
        started = asyncio.Event()

        @worker.event_handler("on_pipeline_started")
        async def start(*_: object) -> None:
            started.set()

        async def talk() -> None:
            await started.wait()
            await converse(worker, context)
            await worker.stop_when_done()

        runner = WorkerRunner()
        await runner.add_workers(worker)
        async with asyncio.TaskGroup() as tasks:
            talking = tasks.create_task(talk())
            await runner.run()
            talking.cancel()


async def conversation(worker: PipelineWorker, context: LLMContext) -> None:
    await user_speaks(worker, "Play first light")
    await asyncio.sleep(8)
    await user_speaks(worker, "What was that?")
    await asyncio.sleep(3)
    for message in context.messages:
        print(message)


if __name__ == "__main__":
    from pipecat.transports.local.audio import LocalAudioTransport, LocalAudioTransportParams

    asyncio.run(
        main(
            lambda mixer: LocalAudioTransport(
                LocalAudioTransportParams(audio_out_enabled=True, audio_out_mixer=mixer)
            ).output(),
            conversation,
        )
    )
