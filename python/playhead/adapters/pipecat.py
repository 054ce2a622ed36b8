"""pipecat: mix music into an output transport, and stop it when the user interrupts.

mixer = PlayheadMixer()  # TransportParams(audio_out_mixer=mixer)
async with playhead.asyncio_portal() as portal:
    player = await portal.enter(Player(mixer))
    pipeline = Pipeline([..., StopOnInterruption(portal, player), transport.output()])
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import suppress

import trio

from playhead.errors import UsageError
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.player import Player
from playhead.playback.sinks.frames import AudioFrame, FrameEvent, FramesSink
from playhead.portals import AsyncioPortal

try:
    import numpy as np
    from pipecat.audio.mixers.base_audio_mixer import BaseAudioMixer
    from pipecat.frames.frames import Frame, InterruptionFrame, MixerControlFrame, MixerEnableFrame
    from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
except ImportError as error:
    raise ImportError("playhead.adapters.pipecat needs pipecat: pip install 'pipecat-ai>=1.7'") from error

MOST_WAITING_FRAMES = 4
"""Limits the waiting frames: two that the sink has ahead, and as many again for a transport that takes audio
in bursts."""


class PlayheadMixer(BaseAudioMixer):  # type: ignore[misc]  # pipecat is not installed with playhead
    """A mixer for pipecat, and a sink for playhead: `Player(mixer)`.

    Music is added to the bot's voice, in the rate of the transport and with `channels` as the transport has
    them. `Player.duck` and `set_volume` lower it; a `MixerEnableFrame` silences it while it plays on. An item
    played before the transport has started fails with `UsageError`.
    """

    name = "pipecat"

    def __init__(self, *, channels: int = 1) -> None:
        self._channels = channels
        self._rate_hz: int | None = None
        self._is_enabled = True
        self._lock = threading.Lock()  # the sink runs in trio's thread, the rest in asyncio's
        self._waiting = bytearray()
        self._room: tuple[trio.lowlevel.TrioToken, trio.Event] | None = None

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
            with suppress(trio.RunFinishedError):
                room[0].run_sync_soon(room[1].set)
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
                room = trio.Event()
                self._room = trio.lowlevel.current_trio_token(), room
            await room.wait()


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
