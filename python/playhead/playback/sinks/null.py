"""A sink without output: counts and hashes frames."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import trio

from playhead._core import DeviceCallback
from playhead.concurrency import run_thread, unwrap_exception_group
from playhead.playback.formats import PcmFormat
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.queue import QUEUE_ITEMS
from playhead.playback.sinks.device import follow

TAKE_FRAMES = 8192
PERIOD_MS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class PcmReport:
    """The frames that a sink took of one buffer. `sha256` covers the samples in the machine's byte order, as
    decoded: before the volume and the fades."""

    format: PcmFormat
    frames: int
    sha256: str


class TakenAudio:
    """The hash of the audio that a sink has taken of a buffer.

    The bytes are hashed before each write into the buffer, outside the device's callback. None is missed. The
    pipe keeps as many bytes behind the sink as fit ahead of it, and between two writes the sink can take no
    more than that.
    """

    def __init__(self, buffer: PcmBuffer) -> None:
        self._format = buffer.format
        self._buffer: PcmBuffer | None = buffer
        self._hash = hashlib.sha256()
        self._offset = 0
        self._taken_bytes = 0
        self._block = memoryview(bytearray(TAKE_FRAMES * buffer.format.frame_bytes))
        self._lock = threading.Lock()  # the decoder's thread and the sink hash in turns
        buffer.before_write = self._update

    def conclude(self) -> None:
        """Hash the rest, and free the buffer: the sink takes no more."""
        self._update()
        with self._lock:
            if self._buffer is not None:
                self._buffer.before_write = lambda: None
            self._buffer = None

    def report(self) -> PcmReport:
        self._update()
        with self._lock:
            return PcmReport(
                format=self._format,
                frames=self._taken_bytes // self._format.frame_bytes,
                sha256=self._hash.hexdigest(),
            )

    def _update(self) -> None:
        with self._lock:
            while self._buffer is not None:
                taken_bytes, self._offset = self._buffer.playout.copy_taken(self._offset, self._block)
                if not taken_bytes:
                    break
                self._hash.update(self._block[:taken_bytes])
                self._taken_bytes += taken_bytes


class NullSink:
    """Takes PCM and drops it.

    `real_time=True` (default) takes it in periods of 40 ms, at the pace of a sound card; `False` takes audio
    as fast as it is decoded. Either way `report` has the result.
    """

    def __init__(self, *, real_time: bool = True) -> None:
        self._real_time = real_time
        self._taken: TakenAudio | None = None
        self._before: deque[PcmReport] = deque(maxlen=QUEUE_ITEMS - 1)

    @property
    def name(self) -> str:
        return "null"

    @property
    def report(self) -> PcmReport | None:
        """Report of the newest buffer; None before the first."""
        return None if self._taken is None else self._taken.report()

    @property
    def reports(self) -> tuple[PcmReport, ...]:
        """Reports of all buffers in order, each in its own format: the newest 10,000, as many as a queue
        holds."""
        newest = self.report
        return tuple(self._before) if newest is None else (*self._before, newest)

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        """See `Sink.play`. Raises only the error that broke the stream."""
        async with aclosing(self._reported(buffers)) as reported:
            if self._real_time:
                await _take_in_real_time(reported)
            else:
                async for buffer in reported:
                    await run_thread(partial(_drain, buffer), wake=buffer.close)

    async def _reported(self, buffers: AsyncIterator[PcmBuffer]) -> AsyncGenerator[PcmBuffer]:
        async for buffer in buffers:
            if self._taken is not None:
                self._before.append(self._taken.report())
            self._taken = TakenAudio(buffer)
            try:
                yield buffer
            finally:
                self._taken.conclude()


async def _take_in_real_time(buffers: AsyncIterator[PcmBuffer]) -> None:
    """Play `buffers` as a device would. miniaudio's null device is not used: it has two threads, one of which
    looks at its clock every 10 ms, and 256 of them took three times the CPU."""
    buffer = await anext(buffers, None)
    while buffer is not None:
        await buffer.wait_ready()
        format = buffer.format
        callback = DeviceCallback(frame_bytes=format.frame_bytes)
        callback.play(buffer.playout)
        period_frames = format.rate_hz * PERIOD_MS // 1000
        run = partial(callback.run, period_frames=period_frames, rate_hz=format.rate_hz)
        with unwrap_exception_group():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(run_thread, run, wake=callback.stop))
                # `follow` returns the next buffer in another format, which needs a device of its own, or
                # None.
                buffer = await follow(buffer, buffers, callback, held_seconds=0.0)
                callback.stop()


def _drain(buffer: PcmBuffer) -> None:
    block = memoryview(bytearray(TAKE_FRAMES * buffer.format.frame_bytes))
    while buffer.take(block):
        pass
