"""LiveKit: play through an agent's `BackgroundAudioPlayer`, and give the agent's model its tools.

background = BackgroundAudioPlayer()
await background.start(room=ctx.room, agent_session=session)
async with playhead.asyncio_portal() as portal:
    player = await portal.enter(Player(LiveKitSink(background, portal)))
    hub = await portal.enter(open_hub(servers))
    await register_tools(agent, hub, player, session=session, portal=portal)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from concurrent import futures
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio

from playhead.adapters.voice_tools import OnInterruption, VoiceTool, VoiceTools
from playhead.errors import ClosedError, UsageError
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.sinks.frames import AudioFrame, ClearFrames, FrameEvent, FramesSink
from playhead.portals import AsyncioPortal

try:
    from livekit import rtc
    from livekit.agents import Agent, AgentSession, BackgroundAudioPlayer, PlayHandle
    from livekit.agents.llm import RawFunctionTool, Tool, ToolError, ToolResult, function_tool
    from livekit.agents.voice import UserStateChangedEvent
except ImportError as error:
    raise ImportError(
        "playhead.adapters.livekit needs LiveKit's agents: pip install 'livekit-agents>=1.8'"
    ) from error

if TYPE_CHECKING:
    from playhead.client.hub import Hub
    from playhead.playback import Player

RATE_HZ = 48_000
BLOCK_MS = 100
"""LiveKit mixes blocks of 100 ms, at 48 kHz in mono, and converts nothing."""
FRAME_MS = 50
LEAD_MS = 150
"""The sink delivers this much audio ahead of the playhead: the block that LiveKit mixes, and half a block in
reserve. A listener still hears it after a stop or a seek; with two blocks, that was up to 0.32 s."""
LAST_SECONDS = 1.0
"""Limits the wait until LiveKit has taken the last frame. LiveKit holds up to 0.4 s of audio."""
SILENCE_SECONDS = 0.15
"""LiveKit gets a block of silence if no frame is ready within this time, as in a pause or an underrun. It
logs a warning after 0.2 s."""


class LiveKitSink(FramesSink):
    """Plays through `background`, which must have been started. Make it in the asyncio task of `portal`.

    Each queue is one `BackgroundAudioPlayer.play`. Before its `start` an item fails with `UsageError`.
    """

    output_latency_seconds = LEAD_MS / 1000
    """The audio that LiveKit's mixer holds."""

    def __init__(self, background: BackgroundAudioPlayer, portal: AsyncioPortal) -> None:
        super().__init__(self._deliver_event, frame_ms=FRAME_MS, lead_ms=LEAD_MS, rate_hz=RATE_HZ, channels=1)
        self._background = background
        self._portal = portal
        self._loop = asyncio.get_running_loop()
        self._is_cleared = False

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        """See `FramesSink.play`. Returns once LiveKit has taken the last frame."""
        self._send, receive = trio.open_memory_channel[AudioFrame](0)
        self._ended, self._token = trio.Event(), trio.lowlevel.current_trio_token()
        handle: futures.Future[PlayHandle] = futures.Future()
        is_started = trio.Event()

        def start_playing() -> None:
            try:
                handle.set_result(self._background.play(self._iterate_frames(receive)))
            except RuntimeError as error:
                handle.set_exception(UsageError(f"expected a BackgroundAudioPlayer that plays: {error}"))
            self._set_under_trio(is_started)

        with self._send:
            self._loop.call_soon_threadsafe(start_playing)
            await is_started.wait()
            handle.result()  # raises the `UsageError`, if any
            try:
                await super().play(buffers)
            except trio.Cancelled:
                if self._is_cleared:
                    self._loop.call_soon_threadsafe(handle.result().stop)
                raise
        with trio.move_on_after(LAST_SECONDS):
            await self._ended.wait()

    def _set_under_trio(self, event: trio.Event) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(event.set)

    async def _deliver_event(self, event: FrameEvent) -> None:
        self._is_cleared = isinstance(event, ClearFrames)
        if isinstance(event, AudioFrame):
            await self._send.send(event)

    async def _iterate_frames(
        self, receive: trio.MemoryReceiveChannel[AudioFrame]
    ) -> AsyncIterator[rtc.AudioFrame]:
        """Yield the frames of one queue, under asyncio."""
        items = self._portal.iterate(receive)
        try:
            while True:
                data = bytes(2 * RATE_HZ * BLOCK_MS // 1000)
                with suppress(TimeoutError):
                    async with asyncio.timeout(SILENCE_SECONDS):
                        data = (await anext(items)).data
                yield rtc.AudioFrame(data, RATE_HZ, 1, len(data) // 2)
        except (StopAsyncIteration, ClosedError):
            return  # the queue is over, or the portal was left
        finally:
            self._set_under_trio(self._ended)
            await items.aclose()


async def register_tools(
    agent: Agent,
    hub: Hub,
    player: Player,
    *,
    session: AgentSession[Any],
    portal: AsyncioPortal,
    on_interruption: OnInterruption = "stop",
) -> None:
    """Give `agent` the tools of `hub`'s servers and those of `player`, in addition to its own.

    This connects to the hub's servers and lists their tools; call it again after their tools have changed.
    Raises `ConnectError` if no server is connected.

    A result's media replaces what plays. Its text goes to the model, which replies unless the listener hears
    the effect. When the user begins to speak in `session`, `on_interruption` decides: "stop" ends the music,
    "duck" lowers it until the user has finished. A note in the agent's context says how much was heard.
    """
    voice = VoiceTools(hub, player, on_interruption=on_interruption)
    offered = await portal.call(voice.connect)
    tools: dict[str, Tool] = {tool.name: _raw_tool(tool, voice, portal) for tool in offered}
    others = [tool for tool in agent.tools if tool.id not in tools]
    await agent.update_tools([*others, *tools.values()])
    observer = _SpeechObserver(agent, voice, portal)
    session.on("user_state_changed", observer.on_state_change)


def _raw_tool(tool: VoiceTool, voice: VoiceTools, portal: AsyncioPortal) -> RawFunctionTool[Any, Any]:
    async def call(raw_arguments: dict[str, Any]) -> ToolResult:
        answer = await portal.call(voice.call, tool.name, raw_arguments)
        if answer.is_error:
            raise ToolError(answer.text)
        return ToolResult(answer.text, reply_required=answer.needs_reply)

    schema = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return function_tool(call, raw_schema=schema)


class _SpeechObserver:
    """Interrupts the music when the user of a session begins to speak."""

    def __init__(self, agent: Agent, voice: VoiceTools, portal: AsyncioPortal) -> None:
        self._agent = agent
        self._voice = voice
        self._portal = portal
        self._tasks = set[asyncio.Task[None]]()

    def on_state_change(self, event: UserStateChangedEvent) -> None:
        if event.new_state == "speaking":
            self._start_task(self._interrupt())
        elif event.old_state == "speaking":
            self._start_task(self._end_interruption())

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)  # asyncio itself has only a weak reference
        task.add_done_callback(self._tasks.discard)

    async def _interrupt(self) -> None:
        with suppress(ClosedError):  # the portal was left
            note = await self._portal.call(self._voice.interrupt)
            if note is not None:
                context = self._agent.chat_ctx.copy()
                context.add_message(role="user", content=note)
                await self._agent.update_chat_ctx(context)

    async def _end_interruption(self) -> None:
        with suppress(ClosedError):
            await self._portal.call(self._voice.listened)
