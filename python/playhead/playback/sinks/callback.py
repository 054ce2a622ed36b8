"""Playing through a miniaudio device: its thread calls, and the feed fills.

The callback is a generator that miniaudio resumes once a period, on a foreign thread that must take the
GIL: one `fill` and nothing else. It neither raises nor returns, for either would leave the device running
silently for ever; the end is told by an event. A device that is lost (unplugged, or its sound server killed)
just ceases to call, and not every backend notices (PulseAudio's does not), so its calls are watched.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial

import miniaudio
import trio

from playhead.errors import ClosedError, NoDeviceError
from playhead.playback.feed import PcmFeed
from playhead.playback.formats import PcmFormat
from playhead.playback.threads import run_thread

_PERIODS = 3
"""What a device holds ahead of the sound: miniaudio's default number of periods."""
LOST_SECONDS = 5.0
"""A device that has not called for so long is lost; it is noticed in one to two of these. Devices that
start, or change over to another one, take a second or two."""
_REMEDY = "look at its connection and play again, or play with another sink"


class Device(miniaudio.PlaybackDevice):  # type: ignore[misc]  # miniaudio has no types
    """A playback device that also frees its context, which miniaudio's own never does.

    Under PulseAudio each context is a connection of its own: left open, the 65th device of a program finds
    the server full.
    """

    def __init__(self, format: PcmFormat, *, buffer_ms: int, backends: list[miniaudio.Backend]) -> None:
        """16-bit at `format`, with periods of `buffer_ms`. Raises `MiniaudioError` where there is none."""
        self._context = None
        try:
            super().__init__(
                nchannels=format.channels,
                sample_rate=format.rate_hz,
                buffersize_msec=buffer_ms,
                backends=backends,
                app_name="playhead",
            )
        except miniaudio.MiniaudioError:
            self.close()
            raise

    def close(self) -> None:
        """Stop, and wait for the callback that is running. Idempotent."""
        if self._device is not None:
            # The wrapper leaves this out where the device stopped by itself. Freed before its thread is done
            # with stopping, the two would wait for each other.
            miniaudio.lib.ma_device_stop(self._device)
        super().close()
        context, self._context = self._context, None
        if context is not None:
            miniaudio.lib.ma_context_uninit(context)


OpenDevice = Callable[[PcmFormat], Device]


async def play_through_device(
    feed: PcmFeed, open_device: OpenDevice, *, on_sound: Callable[[memoryview], None] | None = None
) -> None:
    """Play `feed` on the device that `open_device` makes (in a thread, while the start gate still waits).

    Raises `NoDeviceError` where the device does not start or stops by itself, and what `open_device` raises.
    Cancelled: the device is closed.
    """

    def open_unless_closed() -> Device:
        device = open_device(feed.format)
        if feed.closed:
            device.close()
            raise ClosedError("the player stopped while the device was opening")
        return device

    device = await run_thread(open_unless_closed, wake=feed.close)
    in_thread = partial(trio.to_thread.run_sync, limiter=trio.CapacityLimiter(1))  # never in a queue
    try:
        await feed.wait_ready()
        over = trio.Event()
        tell_over = partial(trio.lowlevel.current_trio_token().run_sync_soon, over.set)
        calls = _Calls()
        callback = _callback(feed, calls, tell_over, on_sound)
        next(callback)
        device.stop_callback = tell_over
        try:
            await in_thread(device.start, callback)
        except miniaudio.MiniaudioError as error:
            raise NoDeviceError(f"the sound device did not start ({error}): {_REMEDY}") from error
        seen = -1
        while not over.is_set() and seen != calls.count:
            seen = calls.count
            with trio.move_on_after(LOST_SECONDS):
                await over.wait()
        if not feed.ended:
            raise NoDeviceError(
                f"the sound device stopped by itself {feed.frames} frames into the sound, unplugged or taken "
                f"by its sound server: {_REMEDY}"
            )
    finally:
        # Stopping waits for the callback that is running, and that one needs the GIL: never from here.
        with trio.CancelScope(shield=True):
            await in_thread(device.close)


@dataclass(slots=True)
class _Calls:
    """How often a device has called: written by its thread, read by trio's."""

    count: int = 0


def _callback(
    feed: PcmFeed,
    calls: _Calls,
    played_out: Callable[[], None],
    on_sound: Callable[[memoryview], None] | None,
) -> Generator[memoryview, int, None]:
    frame_bytes = feed.format.frame_bytes
    buffer = memoryview(bytearray(feed.format.bytes_per_second // 10 // frame_bytes * frame_bytes))
    silent_periods = 0
    frames = yield buffer[:0]
    while True:
        calls.count += 1
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
