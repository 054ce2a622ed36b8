"""No sound, and the truth about it: how many frames, and their hash."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from functools import partial

import miniaudio

from playhead.playback.feed import PcmFeed
from playhead.playback.formats import PcmFormat
from playhead.playback.queue import QUEUE_ITEMS
from playhead.playback.sinks.callback import Device, play_through_device
from playhead.playback.threads import run_thread

BUFFER_MS = 40
TAKE_FRAMES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class PcmReport:
    """What a sink took of one feed so far. `sha256` is of the 16-bit frames in the machine's byte order."""

    format: PcmFormat
    frames: int
    sha256: str


class NullSink:
    """Takes PCM and drops it.

    `real_time=True` (default) runs miniaudio's null device, so the same callbacks at the same pace as a
    sound card; `False` takes as fast as the decoder gives. Either way `report` tells what came.
    """

    def __init__(self, *, real_time: bool = True) -> None:
        self._real_time = real_time
        self._feed: PcmFeed | None = None
        self._before: deque[PcmReport] = deque(maxlen=QUEUE_ITEMS - 1)
        self._hash = hashlib.sha256()

    @property
    def name(self) -> str:
        return "null"

    @property
    def report(self) -> PcmReport | None:
        """Of the newest feed; None before the first. At full volume the hash is that of the decoded PCM."""
        newest = self._newest()
        return newest[0] if newest else None

    @property
    def reports(self) -> tuple[PcmReport, ...]:
        """Of each feed in order, each in its own format: the newest 10,000, as many as a queue holds."""
        return (*self._before, *self._newest())

    def _newest(self) -> tuple[PcmReport, ...]:
        if self._feed is None:
            return ()
        newest = PcmReport(
            format=self._feed.format, frames=self._feed.frames, sha256=self._hash.copy().hexdigest()
        )
        return (newest,)

    async def play(self, feed: PcmFeed) -> None:
        """See `Sink.play`. Raises nothing but what broke the stream."""
        self._before.extend(self._newest())
        self._feed, self._hash = feed, hashlib.sha256()
        if self._real_time:
            await play_through_device(feed, _open_null_device, on_sound=self._hash.update)
        else:
            await run_thread(partial(self._drain, feed), wake=feed.close)

    def _drain(self, feed: PcmFeed) -> None:
        buffer = memoryview(bytearray(TAKE_FRAMES * feed.format.frame_bytes))
        digest = self._hash
        while sound := feed.take(buffer):
            digest.update(buffer[:sound])


def _open_null_device(format: PcmFormat) -> Device:
    return Device(format, buffer_ms=BUFFER_MS, backends=[miniaudio.Backend.NULL])
