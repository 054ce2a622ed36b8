"""Sinks, the outputs of the player. Every sink passes the suite in `playhead.testing.sinks`."""

from __future__ import annotations

from typing import Protocol

from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.sinks.device import DeviceSink
from playhead.playback.sinks.null import NullSink
from playhead.playback.sinks.wave import WaveSink

__all__ = ["DeviceSink", "NullSink", "Sink", "WaveSink"]


class Sink(Protocol):
    """Plays PCM, one buffer at a time, in the buffer's own rate and channels."""

    @property
    def name(self) -> str:
        """For messages and summaries: `device`, `null`, `wave:FILE`."""
        ...

    async def play(self, buffer: PcmBuffer) -> None:
        """Play the buffer to its end; returns when its last frame has been heard.

        Cancelled: silent within one device period, and nothing is left behind (no thread, no callback, no
        partial file under its final name). The caller closes the buffer before it cancels, so that a thread
        in `buffer.take` wakes. Raises `NoDeviceError` without a sound device or if it stops by itself, and
        `OSError` if a file cannot be written.
        """
        ...
