"""Sound devices through miniaudio: its thread calls Rust, which takes the audio from the PCM buffer.

pyminiaudio resumes a Python generator once per period, on a foreign thread that must take the GIL; one
process could play 64 of them. `Device` passes the functions of `DeviceCallback` to miniaudio instead. They
run without Python, and wake trio through a file descriptor. A lost device (unplugged, or its sound server
killed) stops calling, and some backends (PulseAudio's) do not report that, so the calls are watched.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any

import miniaudio
import trio

from playhead._core import DeviceCallback
from playhead.concurrency import JOIN_SECONDS
from playhead.errors import ClosedError, NoDeviceError, UsageError
from playhead.playback.decoder import MINIAUDIO_SAMPLES
from playhead.playback.formats import PcmFormat
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.sinks.silent_stderr import SilentStderr

DEEP_MS = 120
"""The length of the device's own buffer: enough even while ten busy processes share two processors."""
LOW_MS = 60
"""The length of the device's own buffer with `latency="low"`."""
HELD_SHARE = 0.45
"""The share of the device's buffer that is still to be played when a callback adds audio. A null sink of
PulseAudio 16.1 held 15, 25 and 55 ms with buffers of 40, 60 and 120 ms. `tests/e2e/test_sound_server.py`
measures it, and allows 20 ms."""
LOST_SECONDS = 5.0
"""A device counts as lost if it does not call back, open, start or close for this long. Detecting that takes
up to twice as long. Starting a device, or switching to another one, takes a second or two."""
_REMEDY = "check its connection and play again, or use another sink"
REAL_BACKENDS = tuple(
    backend
    for backend in miniaudio.Backend
    if backend not in (miniaudio.Backend.NULL, miniaudio.Backend.CUSTOM)
)


class Device:
    """A playback device whose callbacks run in Rust.

    Its methods block, and never return if the sound server hangs, so call them in threads that may be
    abandoned (`opened`). One method runs at a time: `close` waits for the call before it. Each of them refers
    to the device, its context and its callback until it returns, so nothing that miniaudio may still use is
    freed.

    `close` frees the context, which pyminiaudio's own class never does. With PulseAudio each context is a
    connection, and the server refuses the 65th.
    """

    def __init__(
        self,
        format: PcmFormat,
        *,
        buffer_ms: int | None = None,
        backends: Sequence[miniaudio.Backend] = REAL_BACKENDS,
        name: str | None = None,
    ) -> None:
        """Make a device that plays `format` on the first of `backends` that works.

        `buffer_ms` is the length of its buffer; None leaves it to the `latency` of the first `PcmBuffer`.
        `name` is the device's name or a part of it; None is the default device.

        Raises `NoDeviceError` if this miniaudio cannot be used.
        """
        self.format = format
        self.buffer_ms = buffer_ms
        self.silence = SilentStderr() if backends is REAL_BACKENDS else None
        """Discards standard error while the device is opened: ALSA writes some 25 lines for each missing
        card."""
        self.callback = DeviceCallback(
            frame_bytes=format.frame_bytes, user_data_offset=user_data_offset(miniaudio.ffi)
        )
        self._backends = backends
        self._name = name
        self._context: Any = None
        self._device: Any = None
        self._is_closed = False
        self._turn = threading.Lock()

    @property
    def held_seconds(self) -> float:
        """The most audio that the device holds after a callback."""
        return (DEEP_MS if self.buffer_ms is None else self.buffer_ms) / 1000

    @property
    def is_busy(self) -> bool:
        """True while a call has not returned."""
        return self._turn.locked()

    def open(self) -> None:
        """Open it, once. Raises `MiniaudioError` if no backend works, and `ClosedError` after `close`."""
        with self._turn:
            if self._is_closed:
                raise ClosedError("expected a device to open, got one that was closed; make another one")
            with self.silence or nullcontext():
                self._open()

    def _open(self) -> None:
        ffi, lib = miniaudio.ffi, miniaudio.lib
        self._context = _make_context(self._backends)
        config = lib.ma_device_config_init(lib.ma_device_type_playback)
        config.sampleRate = self.format.rate_hz
        config.playback.channels = self.format.channels
        config.playback.format = MINIAUDIO_SAMPLES[self.format.sample].value
        config.periodSizeInMilliseconds = round(self.held_seconds * 1000)
        flag = fixed_size_flag(ffi, miniaudio.lib_version())
        if flag is not None:
            ffi.cast("char *", ffi.addressof(config))[flag] = b"\1"
        if self._name is not None:
            config.playback.pDeviceID = ffi.addressof(_named(self._context, self._name).id)
        # miniaudio's own stop callback would read `pUserData` as a Python object.
        config.dataCallback = ffi.cast(_DATA_CALLBACK, self.callback.data_callback)
        config.stopCallback = ffi.cast(_STOP_CALLBACK, self.callback.stop_callback)
        config.pUserData = ffi.cast("void *", self.callback.user_data)
        device = ffi.new("ma_device *")
        result = lib.ma_device_init(self._context, ffi.addressof(config), device)
        if result != lib.MA_SUCCESS:
            raise miniaudio.MiniaudioError("failed to init device", result)
        self._device = device

    def start(self, buffer: PcmBuffer) -> None:
        """Start to play `buffer`, once. Raises `MiniaudioError` if the device does not start."""
        with self._turn:
            buffer.set_delay(HELD_SHARE * self.held_seconds)
            self.callback.set_depth(self.held_seconds)
            self.callback.play(buffer.playout)
            result = miniaudio.lib.ma_device_start(self._device)
            if result != miniaudio.lib.MA_SUCCESS:
                raise miniaudio.MiniaudioError("failed to start audio device", result)

    def close(self) -> None:
        """Stop, and wait for the running callback. Idempotent."""
        with self._turn:
            self._is_closed = True
            lib = miniaudio.lib
            if self._device is not None:
                # Stop the device first: `uninit` and the device's thread would wait for each other.
                lib.ma_device_stop(self._device)
                lib.ma_device_uninit(self._device)
                self._device = None
            self.callback.free()
            if self._context is not None:
                lib.ma_context_uninit(self._context)
                self._context = None


def _make_context(backends: Sequence[miniaudio.Backend]) -> Any:
    """Return a context for the first of `backends` that works. Raises `MiniaudioError` if there is none."""
    ffi, lib = miniaudio.ffi, miniaudio.lib
    config = lib.ma_context_config_init()
    # Linux allows this priority to few users, such as root. The threads of others get the usual one.
    config.threadPriority = miniaudio.ThreadPriority.REALTIME.value
    config.pulse.pApplicationName = config.jack.pClientName = _APP_NAME
    context = ffi.new("ma_context *")
    names = ffi.new("ma_backend[]", [backend.value for backend in backends])
    result = lib.ma_context_init(names, len(backends), ffi.addressof(config), context)
    if result != lib.MA_SUCCESS:
        raise miniaudio.MiniaudioError("cannot init context", result)
    return context


def _devices(context: Any) -> dict[str, Any]:
    """Return the devices of `context` by their names; the values live as long as it does."""
    ffi, lib = miniaudio.ffi, miniaudio.lib
    infos, count = ffi.new("ma_device_info **"), ffi.new("ma_uint32 *")
    result = lib.ma_context_get_devices(context, infos, count, ffi.NULL, ffi.NULL)
    if result != lib.MA_SUCCESS:
        raise miniaudio.MiniaudioError("cannot list devices", result)
    found = [infos[0][index] for index in range(count[0])]
    return {ffi.string(info.name).decode("utf-8", "replace"): info for info in found}


def _named(context: Any, name: str) -> Any:
    devices = _devices(context)
    fitting = [it for it in devices if name.casefold() in it.casefold()]
    if name in devices:
        fitting = [name]
    if len(fitting) != 1:
        raise NoDeviceError(
            f"expected one audio device with {name!r} in its name, got"
            f" {', '.join(map(repr, fitting or devices)) or 'no devices'}; choose one of them"
        )
    return devices[fitting[0]]


async def device_names(backends: Sequence[miniaudio.Backend] = REAL_BACKENDS) -> list[str]:
    """Return the names of the playback devices. Raises `NoDeviceError` if no sound system works."""

    def find() -> list[str]:
        silence = SilentStderr()
        try:
            with silence:
                context = _make_context(backends)
                try:
                    return [*_devices(context)]
                finally:
                    miniaudio.lib.ma_context_uninit(context)
        except miniaudio.MiniaudioError as error:
            raise NoDeviceError(f"no sound system works (miniaudio: {error.args[0]}): {_REMEDY}") from error

    return await trio.to_thread.run_sync(find, abandon_on_cancel=True)


_APP_NAME = miniaudio.ffi.new("char[]", b"playhead")
"""A context points to it for as long as it lives."""


def fixed_size_flag(ffi: Any, version: str) -> int | None:
    """Return the offset of `ma_device_config.noFixedSizedCallback`, which pyminiaudio does not declare; None
    in another version of miniaudio, whose structure may differ.

    Without the flag miniaudio keeps one more period, which a device cannot play while its thread is late.
    """
    fields = dict(ffi.typeof("ma_device_config").fields)
    flag = int(fields["periods"].offset) + 11  # after the performance profile and three other flags
    is_known = version.startswith("0.11.") and fields["dataCallback"].offset == flag + 5
    return flag if is_known else None


_DATA_CALLBACK = "void(*)(struct ma_device *, void *, void *, unsigned int)"
_STOP_CALLBACK = "void(*)(struct ma_device *)"


def user_data_offset(ffi: Any) -> int:
    """Return the offset of `ma_device.pUserData`, if `DeviceCallback` has the functions that this miniaudio
    calls.

    Raises `NoDeviceError` if not: called with other arguments, they would write to wrong addresses.
    """
    config = dict(ffi.typeof("ma_device_config").fields)
    device = dict(ffi.typeof("ma_device").fields)
    actual = [
        fields[name].type.cname if name in fields else "nothing"
        for fields, name in (
            (config, "dataCallback"),
            (config, "stopCallback"),
            (config, "pUserData"),
            (device, "pUserData"),
        )
    ]
    expected = [_DATA_CALLBACK, _STOP_CALLBACK, "void *", "void *"]
    if actual != expected:
        raise NoDeviceError(
            f"miniaudio {miniaudio.__version__}: expected callbacks of the types {expected}, got {actual}; "
            "install miniaudio 1.71"
        )
    return int(device["pUserData"].offset)


MakeDevice = Callable[[PcmFormat], Device]


async def play_through_device(buffers: AsyncIterator[PcmBuffer], make_device: MakeDevice) -> None:
    """Play `buffers` on devices that `make_device` returns. Consecutive buffers of one format share a device,
    which is opened while the start gate still waits.

    Raises `NoDeviceError` if a device does not open, does not start or stops by itself. Cancelled: the device
    is closed.
    """
    buffer = await anext(buffers, None)
    while buffer is not None:
        buffer = await _play_one_format(buffer, buffers, make_device(buffer.format))


async def _play_one_format(
    buffer: PcmBuffer, buffers: AsyncIterator[PcmBuffer], device: Device
) -> PcmBuffer | None:
    """Play `buffer` and its successors in its format. Returns the first one in another format, if any."""
    if device.buffer_ms is None and buffer.latency == "low":
        device.buffer_ms = LOW_MS
    async with opened(device):
        await buffer.wait_ready()
        try:
            await _in_time(partial(device.start, buffer), "start")
        except miniaudio.MiniaudioError as error:
            raise NoDeviceError(f"the sound device did not start ({error}): {_REMEDY}") from error
        return await follow(buffer, buffers, device.callback, held_seconds=device.held_seconds)


async def follow(
    buffer: PcmBuffer, buffers: AsyncIterator[PcmBuffer], callback: DeviceCallback, *, held_seconds: float
) -> PcmBuffer | None:
    """Wait until the device of `callback` has played `buffer`, and its successors in its format. Returns
    the first one in another format, if any. Raises `NoDeviceError` if the device stops by itself.

    Cancelled: a fade-out that has begun is still played, which takes the device `held_seconds`.
    """
    try:
        while True:
            await _wait_over(buffer, callback)
            following = await anext(buffers, None)
            if following is None or following.format != buffer.format:
                return following
            buffer.link(following)  # does nothing if the player has linked them already, to avoid a gap
            following.settle()
            buffer = following
    except trio.Cancelled:
        if buffer.fades_out and buffer.closed:
            with trio.CancelScope(shield=True):
                await trio.sleep(held_seconds)  # a device that is closed drops its audio
        raise


@asynccontextmanager
async def opened(device: Device) -> AsyncIterator[None]:
    """Open `device`, and close it at the end. Each takes at most `LOST_SECONDS`. Then the thread is
    abandoned; it closes the device if its call ever returns.

    Raises `NoDeviceError` if it does not open. Warns with a `RuntimeWarning` if a device that played does not
    close: it costs a thread and memory, and later audio may play.
    """
    is_lost = False
    try:
        try:
            await _in_time(device.open, "open")
        except miniaudio.MiniaudioError as error:
            raise NoDeviceError(
                f"no audio device could be opened (miniaudio: {error.args[0]}); connect one, or use another "
                "sink"
            ) from error
        finally:
            if device.silence is not None:
                device.silence.end()
        yield
    except NoDeviceError:
        is_lost = True
        raise
    finally:
        # Closing waits for the device's thread, up to a period, and for the call before it.
        is_lost = is_lost or device.is_busy
        limit = JOIN_SECONDS if device.is_busy else LOST_SECONDS
        with trio.CancelScope(shield=True), trio.move_on_after(limit) as scope:
            await _in_thread(device.close)
        if scope.cancelled_caught and not is_lost:
            warnings.warn(
                f"the sound device did not close within {LOST_SECONDS:g} s (its sound server may hang): "
                "its thread is left behind",
                RuntimeWarning,
                stacklevel=1,
            )


async def _in_time(work: Callable[[], None], verb: str) -> None:
    """Run a call of a device in a thread. Raises `NoDeviceError` if it does not return."""
    with trio.move_on_after(LOST_SECONDS) as scope:
        await _in_thread(work)
    if scope.cancelled_caught:
        raise NoDeviceError(
            f"the sound device did not {verb} within {LOST_SECONDS:g} s (its sound server may hang): "
            f"{_REMEDY}"
        )


async def _in_thread(work: Callable[[], None]) -> None:
    """Run `work` in a thread that counts against no limit, and is abandoned by a cancellation."""
    await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1))


async def _wait_over(buffer: PcmBuffer, callback: DeviceCallback) -> None:
    """Wait until the device has played `buffer` or continues with the next one; settle it on each wake."""

    def is_over() -> bool:
        return buffer.playout.followed or (callback.over and (buffer.ended or buffer.closed))

    # Each pass lasts `LOST_SECONDS`. Without a callback in a whole pass, the device is lost.
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
    """A sound device: the machine's default, or the one with `device` in its name (`device_names`).

    `buffer_ms` is the device's own buffer, 20 to 120 (default 120, and 60 with `Player(latency="low")`): a
    pause or a volume change takes that long to be heard, and the machine may be busy that long without a
    drop-out.
    """

    def __init__(self, *, buffer_ms: int | None = None, device: str | None = None) -> None:
        if buffer_ms is not None and not 20 <= buffer_ms <= 120:
            raise UsageError(f"buffer_ms: expected 20 to 120, got {buffer_ms}")
        self._buffer_ms = buffer_ms
        self._device = device

    @property
    def name(self) -> str:
        return "device"

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        """See `Sink.play`. Raises `NoDeviceError` if no sound device can be opened."""
        await play_through_device(buffers, partial(Device, buffer_ms=self._buffer_ms, name=self._device))
