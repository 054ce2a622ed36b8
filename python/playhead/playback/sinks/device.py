"""Sound devices through miniaudio: its thread calls Rust, and the PCM buffer fills.

miniaudio's own wrapper resumes a Python generator once per period, on a foreign thread that must take the
GIL; one process could play 64 of them. `Device` gives it the functions of `DeviceCallback` instead, which run
without Python and report by a file descriptor that trio waits for. A lost device (unplugged, or its sound
server killed) just stops calling, and not every backend notices (PulseAudio's does not), so its calls are
watched.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import miniaudio
import trio

from playhead._core import DeviceCallback
from playhead.concurrency import run_thread
from playhead.errors import ClosedError, NoDeviceError, UsageError
from playhead.playback.decoder import MINIAUDIO_SAMPLES
from playhead.playback.formats import PcmFormat
from playhead.playback.pcm_buffer import PcmBuffer

BUFFER_MS = 40
HELD_PERIODS = 0.85
"""Periods that leave the device before the one that a callback fills. Measured at a PulseAudio null sink: 0.7
to 0.9 for periods of 20, 40 and 60 ms, so that what was taken and not yet heard is 1.25 to 1.5 periods on
average. `tests/e2e/test_sound_server.py` holds it to 20 ms."""
_STDERR = 2
_STDERR_LOCK = threading.Lock()
"""File descriptor 2 belongs to the process, so its borrowers take turns: otherwise one would restore what the
other had put there."""
LOST_SECONDS = 5.0
"""A device that has not called for this long is lost; detection takes one to two of these. Starting a device,
or switching to another one, takes a second or two."""
_REMEDY = "check its connection and play again, or use another sink"


class Device:
    """A playback device whose callbacks run in Rust.

    It frees its context, which miniaudio's own class never does. Under PulseAudio each context is a
    connection of its own: left open, the 65th device of a program finds the server full.
    """

    def __init__(self, format: PcmFormat, *, buffer_ms: int, backends: Sequence[miniaudio.Backend]) -> None:
        """Open the device in `format`, with periods of `buffer_ms`, on the first working backend.

        Raises `MiniaudioError` if there is none, and `NoDeviceError` if this miniaudio cannot be used.
        """
        ffi, lib = miniaudio.ffi, miniaudio.lib
        offset = user_data_offset(ffi)
        self._context = _make_context(backends)
        self._device = ffi.new("ma_device *")
        self._delay_seconds = HELD_PERIODS * buffer_ms / 1000
        self.held_seconds = (HELD_PERIODS + 1) * buffer_ms / 1000
        """The most audio that it holds after a callback."""
        self.callback = DeviceCallback(frame_bytes=format.frame_bytes, user_data_offset=offset)
        config = lib.ma_device_config_init(lib.ma_device_type_playback)
        config.sampleRate = format.rate_hz
        config.playback.channels = format.channels
        config.playback.format = MINIAUDIO_SAMPLES[format.sample].value
        config.periodSizeInMilliseconds = buffer_ms
        # miniaudio's own stop callback would read `pUserData` as a Python object.
        config.dataCallback = ffi.cast(_DATA_CALLBACK, self.callback.data_callback)
        config.stopCallback = ffi.cast(_STOP_CALLBACK, self.callback.stop_callback)
        config.pUserData = ffi.cast("void *", self.callback.user_data)
        result = lib.ma_device_init(self._context, ffi.addressof(config), self._device)
        if result != lib.MA_SUCCESS:
            self._device = None  # nothing to uninitialise
            self.close()
            raise miniaudio.MiniaudioError("failed to init device", result)

    def start(self, buffer: PcmBuffer) -> None:
        """Start to play `buffer`, once. Raises `MiniaudioError` if the device does not start."""
        buffer.set_delay(self._delay_seconds)
        self.callback.play(buffer.playout)
        result = miniaudio.lib.ma_device_start(self._device)
        if result != miniaudio.lib.MA_SUCCESS:
            raise miniaudio.MiniaudioError("failed to start audio device", result)

    def close(self) -> None:
        """Stop, and wait for the running callback. Idempotent."""
        device, self._device = self._device, None
        if device is not None:
            # Freed before its thread has stopped, the two would wait for each other.
            miniaudio.lib.ma_device_stop(device)
            miniaudio.lib.ma_device_uninit(device)
        self.callback.free()
        context, self._context = self._context, None
        if context is not None:
            miniaudio.lib.ma_context_uninit(context)


def _make_context(backends: Sequence[miniaudio.Backend]) -> Any:
    """Return a context for the first of `backends` that works. Raises `MiniaudioError` if there is none."""
    ffi, lib = miniaudio.ffi, miniaudio.lib
    config = lib.ma_context_config_init()
    config.threadPriority = miniaudio.ThreadPriority.HIGHEST.value
    config.pulse.pApplicationName = config.jack.pClientName = _APP_NAME
    context = ffi.new("ma_context *")
    names = ffi.new("ma_backend[]", [backend.value for backend in backends])
    result = lib.ma_context_init(names, len(backends), ffi.addressof(config), context)
    if result != lib.MA_SUCCESS:
        raise miniaudio.MiniaudioError("cannot init context", result)
    return context


_APP_NAME = miniaudio.ffi.new("char[]", b"playhead")
"""A context points to it for as long as it lives."""
_DATA_CALLBACK = "void(*)(struct ma_device *, void *, void *, unsigned int)"
_STOP_CALLBACK = "void(*)(struct ma_device *)"


def user_data_offset(ffi: Any) -> int:
    """Return the offset of `ma_device.pUserData`, if `DeviceCallback` has the functions that this miniaudio
    calls.

    Raises `NoDeviceError` if not: called with other arguments, they would write to wrong addresses.
    """
    config = dict(ffi.typeof("ma_device_config").fields)
    device = dict(ffi.typeof("ma_device").fields)
    found = [
        fields[name].type.cname if name in fields else "nothing"
        for fields, name in (
            (config, "dataCallback"),
            (config, "stopCallback"),
            (config, "pUserData"),
            (device, "pUserData"),
        )
    ]
    expected = [_DATA_CALLBACK, _STOP_CALLBACK, "void *", "void *"]
    if found != expected:
        raise NoDeviceError(
            f"miniaudio {miniaudio.__version__}: expected callbacks of the types {expected}, got {found}; "
            "install miniaudio 1.71"
        )
    return int(device["pUserData"].offset)


OpenDevice = Callable[[PcmFormat], Device]


async def play_through_device(buffers: AsyncIterator[PcmBuffer], open_device: OpenDevice) -> None:
    """Play `buffers` on the devices that `open_device` returns (in a thread, while the start gate still
    waits): one for all consecutive buffers of one format.

    Raises `NoDeviceError` if a device does not start or stops by itself, and what `open_device` raises.
    Cancelled: the device is closed.
    """
    buffer = await anext(buffers, None)
    while buffer is not None:
        buffer = await _play_one_format(buffer, buffers, open_device)


async def _play_one_format(
    buffer: PcmBuffer, buffers: AsyncIterator[PcmBuffer], open_device: OpenDevice
) -> PcmBuffer | None:
    """Play `buffer` and those that follow in its format. Returns the first one in another format, if any."""

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
        try:
            await in_thread(device.start, buffer)
        except miniaudio.MiniaudioError as error:
            raise NoDeviceError(f"the sound device did not start ({error}): {_REMEDY}") from error
        while True:
            await _wait_over(buffer, device.callback)
            following = await anext(buffers, None)
            if following is None or following.format != buffer.format:
                return following
            buffer.link(following)  # unless the player did, in time for no gap
            following.settle()
            buffer = following
    except trio.Cancelled:
        if buffer.fades_out and buffer.closed:
            with trio.CancelScope(shield=True):
                await trio.sleep(device.held_seconds)  # a device that is closed drops what it holds
        raise
    finally:
        # Stopping waits for the device's thread, up to a period: never in this thread.
        with trio.CancelScope(shield=True):
            await in_thread(device.close)


async def _wait_over(buffer: PcmBuffer, callback: DeviceCallback) -> None:
    """Wait until the device has played the last frame or goes on with the next buffer, and pass on what its
    callback reports. Raises `NoDeviceError` if it stopped."""

    def is_over() -> bool:
        return buffer.playout.followed or (callback.over and (buffer.ended or buffer.closed))

    calls = -1
    while not (is_over() or callback.stopped or calls == callback.calls):
        calls = callback.calls
        with trio.move_on_after(LOST_SECONDS):
            while not (is_over() or callback.stopped):
                await trio.lowlevel.wait_readable(callback.fileno())
                callback.clear_wake()
                buffer.settle()
    if not (is_over() or buffer.ended):
        raise NoDeviceError(
            f"the sound device stopped by itself after {buffer.frames} frames (unplugged, or stopped by "
            f"its sound server): {_REMEDY}"
        )


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

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        """See `Sink.play`. Raises `NoDeviceError` if no sound device can be opened."""
        await play_through_device(buffers, partial(open_device, buffer_ms=self._buffer_ms))


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
