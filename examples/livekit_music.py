"""A conversation with a LiveKit agent that plays music from an MCP server into its room.

pip install livekit-agents 'playhead[cli]'
python livekit_music.py dev

Whoever speaks first in the room asks for music, and whoever speaks again interrupts it and asks what it was.
The model, its ears and its voice are scripted, so no other key is needed: put your own in their places.
"""

# not run: a LiveKit server and its keys

import array
import asyncio
import time

from livekit import rtc
from livekit.agents import (
    Agent,
    AgentServer,
    AgentSession,
    BackgroundAudioPlayer,
    JobContext,
    cli,
    llm,
    stt,
    tts,
    vad,
)

import playhead
from playhead.adapters.livekit import LiveKitSink, register_tools
from playhead.playback import Player

SERVERS = {"music": "playhead serve audio --mixer memory"}
SENTENCES = ["Play first light", "What was that?"]
RATE_HZ = 24_000
LOUD = 3000
SILENCE_SECONDS = 0.3
server = AgentServer()


class ScriptedModel(llm.LLM):
    """Calls the music player when it is asked to play, and otherwise repeats what it knows of the music."""

    def chat(self, *, chat_ctx: llm.ChatContext, tools=None, conn_options=None, **_: object) -> llm.LLMStream:
        return ScriptedReply(self, chat_ctx=chat_ctx, tools=tools or [], conn_options=conn_options)


class ScriptedReply(llm.LLMStream):
    async def _run(self) -> None:
        texts = [item.text_content or "" for item in self._chat_ctx.items if item.type == "message"]
        if texts[-1].startswith("Play "):
            arguments = f'{{"query": "{texts[-1].removeprefix("Play ")}"}}'
            call = llm.FunctionToolCall(name="music__musicPlayer", arguments=arguments, call_id="call-1")
            delta = llm.ChoiceDelta(role="assistant", tool_calls=[call])
        else:
            notes = [text for text in texts if text.startswith("[The user interrupted")]
            delta = llm.ChoiceDelta(role="assistant", content=f"That was First Light. {' '.join(notes)}")
        self._event_ch.send_nowait(llm.ChatChunk(id="1", delta=delta))


class ScriptedRecognition(stt.STT):
    """Understands the next of `SENTENCES` in whatever is said."""

    def __init__(self) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=False, interim_results=False))
        self._sentences = iter(SENTENCES)

    async def _recognize_impl(self, buffer, *, language=None, conn_options=None) -> stt.SpeechEvent:
        said = stt.SpeechData(language="en", text=next(self._sentences, ""))
        return stt.SpeechEvent(type=stt.SpeechEventType.FINAL_TRANSCRIPT, alternatives=[said])


class ScriptedVoice(tts.TTS):
    """Speaks with a hum of a tenth of a second per word."""

    def __init__(self) -> None:
        super().__init__(
            capabilities=tts.TTSCapabilities(streaming=False), sample_rate=RATE_HZ, num_channels=1
        )

    def synthesize(self, text: str, *, conn_options=None) -> tts.ChunkedStream:
        return ScriptedSpeech(tts=self, input_text=text, conn_options=conn_options)


class ScriptedSpeech(tts.ChunkedStream):
    async def _run(self, output: tts.AudioEmitter) -> None:
        output.initialize(request_id="1", sample_rate=RATE_HZ, num_channels=1, mime_type="audio/pcm")
        hum = array.array("h", (2000 if at // 100 % 2 else -2000 for at in range(RATE_HZ // 10)))
        output.push(hum.tobytes() * len(self.input_text.split()))
        output.flush()


class Loudness(vad.VAD):
    """Takes whatever is loud for speech."""

    def __init__(self) -> None:
        super().__init__(capabilities=vad.VADCapabilities(update_interval=0.02))

    def stream(self) -> vad.VADStream:
        return LoudnessStream(self)


class LoudnessStream(vad.VADStream):
    async def _main_task(self) -> None:
        spoken: list[rtc.AudioFrame] = []
        quiet_seconds, samples = 0.0, 0
        async for frame in self._input_ch:
            if not isinstance(frame, rtc.AudioFrame):
                continue
            samples += frame.samples_per_channel
            is_loud = max(map(abs, frame.data), default=0) > LOUD
            quiet_seconds = 0.0 if is_loud else quiet_seconds + frame.duration
            if not (spoken or is_loud):
                continue
            if not spoken:
                self._send(vad.VADEventType.START_OF_SPEECH, samples, [frame], quiet_seconds)
            spoken.append(frame)
            self._send(vad.VADEventType.INFERENCE_DONE, samples, spoken, quiet_seconds)
            if quiet_seconds > SILENCE_SECONDS:
                self._send(vad.VADEventType.END_OF_SPEECH, samples, spoken, quiet_seconds)
                spoken = []

    def _send(self, kind: vad.VADEventType, samples: int, frames: list[rtc.AudioFrame], quiet: float) -> None:
        self._event_ch.send_nowait(
            vad.VADEvent(
                type=kind,
                samples_index=samples,
                timestamp=time.time(),
                speech_duration=sum(frame.duration for frame in frames) - quiet,
                silence_duration=quiet,
                frames=list(frames),
                speaking=kind is not vad.VADEventType.END_OF_SPEECH and not quiet,
                raw_accumulated_silence=quiet,
                raw_accumulated_speech=sum(frame.duration for frame in frames) - quiet,
            )
        )


@server.rtc_session()
async def entrypoint(ctx: JobContext) -> None:
    await ctx.connect()
    await converse(ctx.room)


async def converse(room: rtc.Room, started: "asyncio.Future[Agent] | None" = None) -> None:
    agent = Agent(instructions="You play music.")
    session = AgentSession(
        llm=ScriptedModel(), stt=ScriptedRecognition(), tts=ScriptedVoice(), vad=Loudness()
    )
    background = BackgroundAudioPlayer()
    async with playhead.asyncio_portal() as portal:
        await session.start(agent, room=room)
        await background.start(room=room, agent_session=session)
        player = await portal.enter(Player(LiveKitSink(background, portal)))
        hub = await portal.enter(playhead.open_hub(SERVERS))
        await register_tools(agent, hub, player, session=session, portal=portal)
        if started is not None:
            started.set_result(agent)
        try:
            await asyncio.Event().wait()
        finally:
            await background.aclose()
            await session.aclose()


if __name__ == "__main__":
    cli.run_app(server)
