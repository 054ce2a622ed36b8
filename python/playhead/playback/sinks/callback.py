"""Playing through a miniaudio device: its thread calls, and the feed fills.

The callback is a generator that miniaudio resumes once a period, on a foreign thread that must take the
GIL: one `fill` and nothing else. It neither raises nor returns, for either would leave the device running
silently for ever; the end is told by an event.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

import miniaudio
import trio

from playhead.errors import ClosedError
from playhead.playback.feed import PcmFeed
from playhead.playback.formats import PcmFormat
from playhead.playback.threads import run_thread

OpenDevice = Callable[[PcmFormat], "miniaudio.PlaybackDevice"]
_PERIODS = 3
"""What a device holds ahead of the sound: miniaudio's default number of periods."""


async def play_through_device(
    feed: PcmFeed, open_device: OpenDevice, *, on_sound: Callable[[memoryview], None] | None = None
) -> None:
    """Play `feed` on the device that `open_device` makes (in a thread, while the start gate still waits)."""

    def open_unless_closed() -> miniaudio.PlaybackDevice:
        device = open_device(feed.format)
        if feed.closed:
            device.close()
            raise ClosedError("the player stopped while the device was opening")
        return device

    device = await run_thread(open_unless_closed, wake=feed.close)
    try:
        await feed.wait_ready()
        played_out = trio.Event()
        callback = _callback(
            feed, partial(trio.lowlevel.current_trio_token().run_sync_soon, played_out.set), on_sound
        )
        next(callback)
        device.start(callback)
        await played_out.wait()
    finally:
        # Stopping waits for the callback that is running, and that one needs the GIL: never from here.
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(device.close)


def _callback(
    feed: PcmFeed, played_out: Callable[[], None], on_sound: Callable[[memoryview], None] | None
) -> Generator[memoryview, int, None]:
    frame_bytes = feed.format.frame_bytes
    buffer = memoryview(bytearray(feed.format.bytes_per_second // 10 // frame_bytes * frame_bytes))
    silent_periods = 0
    frames = yield buffer[:0]
    while True:
        if frames * frame_bytes > len(buffer):
            buffer = memoryview(bytearray(frames * frame_bytes))
        out = buffer[: frames * frame_bytes]
        sound = feed.fill(out)
        if on_sound is not None and sound:
            on_sound(out[:sound])
        if feed.ended:
            silent_periods += 1
            if silent_periods == _PERIODS + 1:
                played_out()
        frames = yield out
