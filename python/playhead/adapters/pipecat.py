"""pipecat: mix music into an output transport, stop it when the user interrupts, give the model its tools.

mixer = PlayheadMixer()  # TransportParams(audio_out_mixer=mixer)
async with playhead.asyncio_portal() as portal:
    player = await portal.enter(Player(mixer))
    hub = await portal.enter(open_hub(servers))
    interruption = await register_tools(llm, hub, player, context=context, portal=portal)
    pipeline = Pipeline([..., llm, ..., interruption, transport.output(), ...])

Without a model, `StopOnInterruption(portal, player)` takes the place of `interruption`.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio

from playhead.adapters.voice_tools import OnInterruption, VoiceTool, VoiceTools
from playhead.errors import UsageError
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.player import Player
from playhead.playback.sinks.frames import AudioFrame, FrameEvent, FramesSink
from playhead.portals import AsyncioPortal

try:
    import numpy as np
    from pipecat.audio.mixers.base_audio_mixer import BaseAudioMixer
    from pipecat.frames.frames import (
        Frame,
        FunctionCallResultProperties,
        InterruptionFrame,
        MixerControlFrame,
        MixerEnableFrame,
        UserStoppedSpeakingFrame,
    )
    from pipecat.processors.aggregators.llm_context import FunctionSchema, LLMContext, ToolsSchema
    from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
    from pipecat.services.llm_service import FunctionCallParams, LLMService
except ImportError as error:
    raise ImportError("playhead.adapters.pipecat needs pipecat: pip install 'pipecat-ai>=1.7'") from error

if TYPE_CHECKING:
    from playhead.client.hub import Hub

MOST_WAITING_FRAMES = 4
"""Limits the frames that wait for the transport: the two that a sink delivers ahead, and two more because a
transport may take audio in bursts."""


class PlayheadMixer(BaseAudioMixer):  # type: ignore[misc]  # pipecat is not installed with playhead
    """A mixer for pipecat, and a sink for playhead: `Player(mixer)`.

    It adds music to the bot's voice at the transport's rate; `channels` must be the transport's number of
    channels. `Player.duck` and `set_volume` lower the music; a `MixerEnableFrame` silences it while it plays
    on. An item that is played before the transport has started fails with `UsageError`.
    """

    name = "pipecat"

    def __init__(self, *, channels: int = 1) -> None:
        self._channels = channels
        self._rate_hz: int | None = None
        self._is_enabled = True
        self._lock = threading.Lock()  # the sink runs in trio's thread, the rest in asyncio's
        self._waiting = bytearray()
        self._room: tuple[trio.lowlevel.TrioToken, trio.Event] | None = None
        """The event that the sink waits for if `_waiting` is full, and the token of its trio run."""

    # --- pipecat's side --------------------------------------------------------------------------------

    async def start(self, sample_rate: int) -> None:
        self._rate_hz = sample_rate

    async def stop(self) -> None:
        self._rate_hz = None

    async def process_frame(self, frame: MixerControlFrame) -> None:
        if isinstance(frame, MixerEnableFrame):
            self._is_enabled = frame.enable

    async def mix(self, audio: bytes) -> bytes:
        with self._lock:
            music = bytes(self._waiting[: len(audio)])
            del self._waiting[: len(audio)]
            room, self._room = self._room, None
        if room is not None:
            token, has_room = room
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(has_room.set)
        if not (music and self._is_enabled):
            return audio
        samples = np.frombuffer(audio, dtype="<i2").astype(np.int32)
        samples[: len(music) // 2] += np.frombuffer(music, dtype="<i2")
        return bytes(np.clip(samples, -32768, 32767).astype("<i2").tobytes())

    # --- playhead's side -------------------------------------------------------------------------------

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        """See `Sink.play`."""
        if self._rate_hz is None:
            raise UsageError("expected a transport that has started the mixer, got none yet")
        await FramesSink(self._deliver, rate_hz=self._rate_hz, channels=self._channels).play(buffers)

    async def _deliver(self, event: FrameEvent) -> None:
        if not isinstance(event, AudioFrame):
            with self._lock:
                self._waiting.clear()
            return
        while True:
            with self._lock:
                if len(self._waiting) < MOST_WAITING_FRAMES * len(event.data):
                    self._waiting += event.data
                    return
                has_room = trio.Event()
                self._room = trio.lowlevel.current_trio_token(), has_room
            await has_room.wait()


class StopOnInterruption(FrameProcessor):  # type: ignore[misc]
    """Stops the player when pipecat interrupts the bot; put it before the output transport."""

    def __init__(self, portal: AsyncioPortal, player: Player) -> None:
        super().__init__()
        self._portal = portal
        self._player = player

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)
        if isinstance(frame, InterruptionFrame):
            await self._portal.call(self._player.stop)


async def register_tools(
    llm: LLMService,
    hub: Hub,
    player: Player,
    *,
    context: LLMContext,
    portal: AsyncioPortal,
    on_interruption: OnInterruption = "stop",
) -> Interruption:
    """Give `llm` and its `context` the tools of `hub`'s servers and those of `player`, in addition to others.

    This connects to the hub's servers and lists their tools; call it again after their tools have changed.
    Raises `ConnectError` if no server is connected.

    A result's media replaces what plays. Its text goes to the model, which replies unless the listener hears
    the effect. An interruption cancels a call.

    Put the returned processor before the output transport. When the user speaks, `on_interruption` decides:
    "stop" ends the music, "duck" lowers it until the user has finished. A note in the context says how much
    was heard.
    """
    voice = VoiceTools(hub, player, on_interruption=on_interruption)
    tools = await portal.call(voice.connect)

    async def call(params: FunctionCallParams) -> None:
        answer = await portal.call(voice.call, params.function_name, dict(params.arguments))
        properties = FunctionCallResultProperties(run_llm=None if answer.needs_reply else False)
        await params.result_callback(answer.text, properties=properties)

    for tool in tools:
        llm.register_function(tool.name, call)
    names = {tool.name for tool in tools}
    others, custom = [], None
    if isinstance(context.tools, ToolsSchema):
        others = [tool for tool in context.tools.standard_tools if tool.name not in names]
        custom = context.tools.custom_tools
    context.set_tools(ToolsSchema([*others, *map(_ToolSchema, tools)], custom))
    return Interruption(portal, voice, context)


class _ToolSchema(FunctionSchema):  # type: ignore[misc]
    """A tool with its whole JSON Schema. pipecat's own class reduces it to `properties` and `required`."""

    def __init__(self, tool: VoiceTool) -> None:
        super().__init__(
            tool.name,
            tool.description,
            dict(tool.parameters.get("properties", {})),
            list(tool.parameters.get("required", ())),
        )
        self._parameters = {"type": "object", "properties": {}} | dict(tool.parameters)

    def to_default_dict(self) -> dict[str, Any]:
        return {**super().to_default_dict(), "parameters": self._parameters}


class Interruption(FrameProcessor):  # type: ignore[misc]
    """Stops or ducks the music when the user interrupts, and adds a note to the context. `register_tools`
    returns it."""

    def __init__(self, portal: AsyncioPortal, voice: VoiceTools, context: LLMContext) -> None:
        super().__init__()
        self._portal = portal
        self._voice = voice
        self._context = context

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)
        if isinstance(frame, InterruptionFrame):
            note = await self._portal.call(self._voice.interrupt)
            if note is not None:
                self._context.add_message({"role": "user", "content": note})
        elif isinstance(frame, UserStoppedSpeakingFrame):
            await self._portal.call(self._voice.listened)
