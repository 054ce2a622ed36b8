"""LiveKit: play through an agent's `BackgroundAudioPlayer`.

background = BackgroundAudioPlayer()
await background.start(room=ctx.room, agent_session=session)
async with playhead.asyncio_portal() as portal:
    player = await portal.enter(Player(LiveKitSink(background, portal)))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent import futures
from contextlib import suppress

import trio

from playhead.errors import ClosedError, UsageError
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.sinks.frames import AudioFrame, ClearFrames, FrameEvent, FramesSink
from playhead.portals import AsyncioPortal

try:
    from livekit import rtc
    from livekit.agents import BackgroundAudioPlayer, PlayHandle
except ImportError as error:
    raise ImportError(
        "playhead.adapters.livekit needs LiveKit's agents: pip install 'livekit-agents>=1.8'"
    ) from error

RATE_HZ = 48_000
FRAME_MS = 100
"""The length of a frame. LiveKit mixes blocks of 100 ms at 48 kHz in mono, and converts nothing. Two blocks
ahead are a cushion for its mixer, and half of what it can hold; that much is still heard after a stop or a
seek."""
LAST_SECONDS = 1.0
"""Limits the time for LiveKit to take the last frame. It holds 0.4 s."""
SILENCE_SECONDS = 0.15
"""The wait before silence takes the place of a frame, in a pause or an underrun. LiveKit warns after 0.2
s."""


class LiveKitSink(FramesSink):
    """Plays through `background`, which must have been started. Make it in the asyncio task of `portal`.

    Each queue is one `BackgroundAudioPlayer.play`. Before its `start` an item fails with `UsageError`.
    """

    output_latency_seconds = 0.2
    """The audio that LiveKit's mixer holds."""

    def __init__(self, background: BackgroundAudioPlayer, portal: AsyncioPortal) -> None:
        super().__init__(self._deliver_event, frame_ms=FRAME_MS, rate_hz=RATE_HZ, channels=1)
        self._background = background
        self._portal = portal
        self._loop = asyncio.get_running_loop()
        self._is_cleared = False

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        """See `FramesSink.play`. Returns once LiveKit has taken the last frame."""
        self._send, receive = trio.open_memory_channel[AudioFrame](0)
        self._ended, self._token = trio.Event(), trio.lowlevel.current_trio_token()
        handle: futures.Future[PlayHandle] = futures.Future()
        begun = trio.Event()

        def begin() -> None:
            try:
                handle.set_result(self._background.play(self._frames(receive)))
            except RuntimeError as error:
                handle.set_exception(UsageError(f"expected a BackgroundAudioPlayer that plays: {error}"))
            self._soon(begun)

        with self._send:
            self._loop.call_soon_threadsafe(begin)
            await begun.wait()
            handle.result()
            try:
                await super().play(buffers)
            except trio.Cancelled:
                if self._is_cleared:
                    self._loop.call_soon_threadsafe(handle.result().stop)
                raise
        with trio.move_on_after(LAST_SECONDS):
            await self._ended.wait()

    def _soon(self, event: trio.Event) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(event.set)

    async def _deliver_event(self, event: FrameEvent) -> None:
        self._is_cleared = isinstance(event, ClearFrames)
        if isinstance(event, AudioFrame):
            await self._send.send(event)

    async def _frames(self, receive: trio.MemoryReceiveChannel[AudioFrame]) -> AsyncIterator[rtc.AudioFrame]:
        """Yield the frames of one queue, under asyncio."""
        items = self._portal.iterate(receive)
        samples = RATE_HZ * FRAME_MS // 1000
        try:
            while True:
                data = bytes(2 * samples)
                with suppress(TimeoutError):
                    async with asyncio.timeout(SILENCE_SECONDS):
                        data = (await anext(items)).data
                yield rtc.AudioFrame(data, RATE_HZ, 1, samples)
        except (StopAsyncIteration, ClosedError):
            return  # the queue is over, or the portal was left
        finally:
            self._soon(self._ended)
            await items.aclose()
