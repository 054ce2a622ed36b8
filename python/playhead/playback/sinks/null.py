"""A sink without output: counts and hashes frames."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from functools import partial

import miniaudio

from playhead.concurrency import run_thread
from playhead.playback.formats import PcmFormat
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.queue import QUEUE_ITEMS
from playhead.playback.sinks.device import Device, play_through_device

BUFFER_MS = 40
TAKE_FRAMES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class PcmReport:
    """Frames that a sink took of one buffer. `sha256` is that of the 16-bit frames in the machine's byte
    order."""

    format: PcmFormat
    frames: int
    sha256: str


class NullSink:
    """Takes PCM and drops it.

    `real_time=True` (default) runs miniaudio's null device, with the callbacks and pace of a sound card;
    `False` takes audio as fast as it is decoded. Either way `report` has the result.
    """

    def __init__(self, *, real_time: bool = True) -> None:
        self._real_time = real_time
        self._buffer: PcmBuffer | None = None
        self._before: deque[PcmReport] = deque(maxlen=QUEUE_ITEMS - 1)
        self._hash = hashlib.sha256()

    @property
    def name(self) -> str:
        return "null"

    @property
    def report(self) -> PcmReport | None:
        """Report of the newest buffer; None before the first. At full volume the hash is that of the decoded
        PCM."""
        newest = self._newest()
        return newest[0] if newest else None

    @property
    def reports(self) -> tuple[PcmReport, ...]:
        """Reports of all buffers in order, each in its own format: the newest 10,000, as many as a queue
        holds."""
        return (*self._before, *self._newest())

    def _newest(self) -> tuple[PcmReport, ...]:
        if self._buffer is None:
            return ()
        newest = PcmReport(
            format=self._buffer.format, frames=self._buffer.frames, sha256=self._hash.copy().hexdigest()
        )
        return (newest,)

    async def play(self, buffer: PcmBuffer) -> None:
        """See `Sink.play`. Raises only the error that broke the stream."""
        self._before.extend(self._newest())
        self._buffer, self._hash = buffer, hashlib.sha256()
        if self._real_time:
            await play_through_device(buffer, _open_null_device, on_audio=self._hash.update)
        else:
            await run_thread(partial(self._drain, buffer), wake=buffer.close)

    def _drain(self, buffer: PcmBuffer) -> None:
        block = memoryview(bytearray(TAKE_FRAMES * buffer.format.frame_bytes))
        digest = self._hash
        while audio_bytes := buffer.take(block):
            digest.update(block[:audio_bytes])


def _open_null_device(format: PcmFormat) -> Device:
    return Device(format, buffer_ms=BUFFER_MS, backends=[miniaudio.Backend.NULL])
