"""Sound devices through miniaudio: its thread calls, and the PCM buffer fills.

The callback is a generator that miniaudio resumes once per period, on a foreign thread that must take the
GIL: one `fill` and nothing else. It neither raises nor returns, because either would leave the device running
silently forever; an event signals the end. A lost device (unplugged, or its sound server killed) just stops
calling, and not every backend notices (PulseAudio's does not), so its calls are watched.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import miniaudio
import trio

from playhead.concurrency import run_thread
from playhead.errors import ClosedError, NoDeviceError, UsageError
from playhead.playback.formats import PcmFormat
from playhead.playback.pcm_buffer import PcmBuffer

BUFFER_MS = 40
_STDERR = 2
_STDERR_LOCK = threading.Lock()
"""File descriptor 2 belongs to the process, so its borrowers take turns: otherwise one would restore what the
other had put there."""
_PERIODS = 3
"""Periods that a device buffers: miniaudio's default."""
LOST_SECONDS = 5.0
"""A device that has not called for this long is lost; detection takes one to two of these. Starting a device,
or switching to another one, takes a second or two."""
_REMEDY = "check its connection and play again, or use another sink"


class Device(miniaudio.PlaybackDevice):  # type: ignore[misc]  # miniaudio has no types
    """A playback device that also frees its context, which miniaudio's own never does.

    Under PulseAudio each context is a connection of its own: left open, the 65th device of a program finds
    the server full.
    """

    def __init__(self, format: PcmFormat, *, buffer_ms: int, backends: list[miniaudio.Backend]) -> None:
        """Open the device at 16 bits in `format`, with periods of `buffer_ms`.

        Raises `MiniaudioError` if there is none.
        """
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
        """Stop, and wait for the running callback. Idempotent."""
        if self._device is not None:
            # The wrapper skips this if the device stopped by itself. Freed before its thread has stopped, the
            # two would wait for each other.
            miniaudio.lib.ma_device_stop(self._device)
        super().close()
        context, self._context = self._context, None
        if context is not None:
            miniaudio.lib.ma_context_uninit(context)


OpenDevice = Callable[[PcmFormat], Device]


async def play_through_device(
    buffer: PcmBuffer, open_device: OpenDevice, *, on_audio: Callable[[memoryview], None] | None = None
) -> None:
    """Play `buffer` on the device that `open_device` returns (in a thread, while the start gate still waits).

    `on_audio` sees the audio of each period, in the device's thread. Raises `NoDeviceError` if the device
    does not start or stops by itself, and what `open_device` raises. Cancelled: the device is closed.
    """

    def open_unless_closed() -> Device:
        device = open_device(buffer.format)
        if buffer.closed:
            device.close()
            raise ClosedError("the player stopped while the device was opening")
        return device

    device = await run_thread(open_unless_closed, wake=buffer.close)
    in_thread = partial(trio.to_thread.run_sync, limiter=trio.CapacityLimiter(1))  # never queued
    try:
        await buffer.wait_ready()
        over = trio.Event()
        signal_over = partial(trio.lowlevel.current_trio_token().run_sync_soon, over.set)
        calls = _Calls()
        callback = _callback(buffer, calls, signal_over, on_audio)
        next(callback)
        device.stop_callback = signal_over
        try:
            await in_thread(device.start, callback)
        except miniaudio.MiniaudioError as error:
            raise NoDeviceError(f"the sound device did not start ({error}): {_REMEDY}") from error
        seen = -1
        while not over.is_set() and seen != calls.count:
            seen = calls.count
            with trio.move_on_after(LOST_SECONDS):
                await over.wait()
        if not buffer.ended:
            raise NoDeviceError(
                f"the sound device stopped by itself after {buffer.frames} frames (unplugged, or stopped by "
                f"its sound server): {_REMEDY}"
            )
    finally:
        # Stopping waits for the running callback, which needs the GIL: never in this thread.
        with trio.CancelScope(shield=True):
            await in_thread(device.close)


@dataclass(slots=True)
class _Calls:
    """The number of calls of a device: written by its thread, read by trio's."""

    count: int = 0


def _callback(
    buffer: PcmBuffer,
    calls: _Calls,
    played_out: Callable[[], None],
    on_audio: Callable[[memoryview], None] | None,
) -> Generator[memoryview, int, None]:
    frame_bytes = buffer.format.frame_bytes
    block = memoryview(bytearray(buffer.format.bytes_per_second // 10 // frame_bytes * frame_bytes))
    silent_periods = 0
    frames = yield block[:0]
    while True:
        calls.count += 1
        if frames * frame_bytes > len(block):
            block = memoryview(bytearray(frames * frame_bytes))
        out = block[: frames * frame_bytes]
        audio_bytes = buffer.fill(out)
        if on_audio is not None and audio_bytes:
            on_audio(out[:audio_bytes])
        if buffer.ended:
            silent_periods += 1
            if silent_periods == _PERIODS + 1:
                played_out()
        frames = yield out


class DeviceSink:
    """The machine's default sound device.

    `buffer_ms` is one period, 20 to 60 (default 40). The device buffers three: a pause or a volume change
    takes that long to be heard, and the machine may be busy that long without a click. A thread that holds
    the GIL delays callbacks by up to 43 ms, so less than 20 is refused; more than 60 feels slow.
    """

    def __init__(self, *, buffer_ms: int = BUFFER_MS) -> None:
        if not 20 <= buffer_ms <= 60:
            raise UsageError(f"buffer_ms: expected 20 to 60, got {buffer_ms}")
        self._buffer_ms = buffer_ms

    @property
    def name(self) -> str:
        return "device"

    async def play(self, buffer: PcmBuffer) -> None:
        """See `Sink.play`. Raises `NoDeviceError` if no sound device can be opened."""
        await play_through_device(buffer, partial(open_device, buffer_ms=self._buffer_ms))


def open_device(format: PcmFormat, *, buffer_ms: int = BUFFER_MS) -> Device:
    """Open the default device at `format` (it resamples if it must). Blocks: for a thread.

    Raises `NoDeviceError` if there is none, and keeps standard error clean: ALSA writes some 25 lines for
    each missing card.
    """
    real = [
        backend
        for backend in miniaudio.Backend
        if backend not in (miniaudio.Backend.NULL, miniaudio.Backend.CUSTOM)
    ]
    try:
        with _silent_stderr():
            return Device(format, buffer_ms=buffer_ms, backends=real)
    except miniaudio.MiniaudioError as error:
        raise NoDeviceError(
            f"no audio device could be opened (miniaudio: {error.args[0]}); connect one, or use another sink"
        ) from error


@contextmanager
def _silent_stderr() -> Iterator[None]:
    with _STDERR_LOCK:
        try:
            kept = os.dup(_STDERR)
        except OSError:  # closed, as in some services: nothing to silence
            yield
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, _STDERR)
            yield
        finally:
            os.dup2(kept, _STDERR)
            os.close(nowhere)
            os.close(kept)
