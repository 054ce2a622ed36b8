"""The sound card, through miniaudio."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import miniaudio

from playhead.errors import NoDeviceError, UsageError
from playhead.playback.feed import PcmFeed
from playhead.playback.formats import PcmFormat
from playhead.playback.sinks.callback import Device, play_through_device

BUFFER_MS = 40
_STDERR = 2
_STDERR_LOCK = threading.Lock()
"""File descriptor 2 belongs to the process, so its borrowers take turns: or one restores what the other
had put there."""


class DeviceSink:
    """The machine's default sound device.

    `buffer_ms` is one period, 20 to 60 (default 40). The device holds three of them: so long takes a pause or
    a volume change to be heard, and so long may the machine be busy without a click. A thread that holds the
    GIL delays callbacks by up to 43 ms, so less than 20 is refused; more than 60 is felt.
    """

    def __init__(self, *, buffer_ms: int = BUFFER_MS) -> None:
        if not 20 <= buffer_ms <= 60:
            raise UsageError(f"a device buffer is 20 to 60 ms, not {buffer_ms}")
        self._buffer_ms = buffer_ms

    @property
    def name(self) -> str:
        return "device"

    async def play(self, feed: PcmFeed) -> None:
        """See `Sink.play`. Raises `NoDeviceError` where no sound device can be opened."""
        await play_through_device(feed, partial(open_device, buffer_ms=self._buffer_ms))


def open_device(format: PcmFormat, *, buffer_ms: int = BUFFER_MS) -> Device:
    """The default device at `format` (the device resamples where it must). Blocks, for a thread.

    Raises `NoDeviceError` where there is none: quietly, though ALSA writes some 25 lines to standard error
    for each card that is not there.
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
            f"no sound device could be opened (miniaudio: {error.args[0]}): plug one in, or play"
            " without sound with `--sink null`, or into a file with `--sink wave:FILE`"
        ) from error


@contextmanager
def _silent_stderr() -> Iterator[None]:
    with _STDERR_LOCK:
        try:
            kept = os.dup(_STDERR)
        except OSError:  # closed, as in some services: there is nothing to silence
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
