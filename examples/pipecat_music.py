"""A pipecat bot with music on this machine's loudspeaker.

    pip install 'pipecat-ai[local]' 'playhead[cli]'
    python pipecat_music.py

When the user speaks, the music stops. Put your speech recognition, model and voice where it says so.
"""

# not run: a loudspeaker and a microphone

import asyncio
from collections.abc import Callable

from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.workers.runner import WorkerRunner

import playhead
from playhead.adapters.pipecat import PlayheadMixer, StopOnInterruption
from playhead.playback import Player

SERVER = "playhead serve audio --mixer memory"


async def main(make_output: Callable[[PlayheadMixer], FrameProcessor]) -> None:
    mixer = PlayheadMixer()
    async with playhead.asyncio_portal() as portal:
        session = await portal.enter(playhead.connect(SERVER))
        player = await portal.enter(Player(mixer))
        worker = PipelineWorker(
            Pipeline(
                [
                    # transport.input(), speech recognition, model, voice
                    StopOnInterruption(portal, player),
                    make_output(mixer),
                ]
            )
        )

        started = asyncio.Event()

        @worker.event_handler("on_pipeline_started")
        async def start(*_: object) -> None:
            started.set()

        async def play() -> None:
            result = await portal.call(session.call_tool, "musicPlayer", {"query": "first light"})
            await started.wait()
            await portal.call(player.play, result.media)
            await portal.call(player.wait_finished)
            await worker.stop_when_done()

        runner = WorkerRunner()
        await runner.add_workers(worker)
        playing = asyncio.create_task(play())
        try:
            await runner.run()
        finally:
            playing.cancel()


if __name__ == "__main__":
    from pipecat.transports.local.audio import LocalAudioTransport, LocalAudioTransportParams

    asyncio.run(
        main(
            lambda mixer: LocalAudioTransport(
                LocalAudioTransportParams(audio_out_enabled=True, audio_out_mixer=mixer)
            ).output()
        )
    )
