"""The protocol of the sinks, the outputs of the player."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from playhead.playback.pcm_buffer import PcmBuffer


class Sink(Protocol):
    """Plays PCM: a sequence of buffers, one per item, each in its own rate and channels.

    async def play(self, buffers):
        async for buffer in buffers:
            await run_thread(partial(self._write, buffer), wake=buffer.close)
    """

    @property
    def name(self) -> str:
        """The name in messages and summaries: `device`, `null`, `wave:FILE`."""
        ...

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        """Play the buffers in order; returns when the last frame of the last one has been heard.

        A sink asks for the next buffer once the last frame of the previous one has been heard, which ends
        that item. The iterator waits while the next item is opened, and ends when none follows. Between two
        buffers of the same rate and channel count nothing is inserted.

        Cancelled: silent within one device period, and nothing is left behind (no thread, no callback, no
        partial file under its final name). The caller closes the buffer before it cancels, so that a thread
        in `buffer.take` wakes. Raises `NoDeviceError` without a sound device, or if it stops by itself, and
        `OSError` if a file cannot be written; further buffers are then passed to a new call.
        """
        ...
