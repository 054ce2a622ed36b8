"""From `--sink` to a sink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from playhead.errors import NoDeviceError, UsageError
from playhead.stream.saving import is_device

if TYPE_CHECKING:
    from playhead.playback import Sink


def make_sink(text: str | None, *, real_time: bool) -> Sink:
    """Make the sink that `--sink` names; without one, the sound device.

    Raises `UsageError` for a name that is no sink; whether there is a device turns out when it is opened
    (`NoDeviceError`).
    """
    from playhead.playback import DeviceSink, NullSink, WaveSink

    match (text or "device").partition(":"):
        case ("device", "", _):
            return DeviceSink()
        case ("null", "", _):
            return NullSink(real_time=real_time)
        case ("wave", ":", path) if path:
            return WaveSink(file_to_write(Path(path), option="--sink wave"))
        case _:
            raise UsageError(f"--sink: expected device, null or wave:FILE, got {text!r}")


def file_to_write(path: Path, *, option: str) -> Path:
    """Check early, before a server is asked for anything, that `path` can be a file."""
    if path.is_dir():
        raise UsageError(f"{option}: expected a file, got the folder {path}; add a file name")
    is_device(path)  # raises for what a file must not replace
    if not path.parent.is_dir():
        raise UsageError(f"{option}: cannot write {path}: there is no folder {path.parent}")
    return path


async def has_device() -> bool:
    """Whether a sound device can be opened. Quiet, and in a thread: a probe can take a second."""
    from playhead.playback.formats import PcmFormat
    from playhead.playback.sinks.device import open_device

    try:
        device = await trio.to_thread.run_sync(open_device, PcmFormat(rate_hz=44_100, channels=2))
    except NoDeviceError:
        return False
    await trio.to_thread.run_sync(device.close)
    return True
