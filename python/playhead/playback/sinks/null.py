"""No sound, and the truth about it: how many frames, and their hash."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial

import miniaudio

from playhead.playback.feed import PcmFeed
from playhead.playback.formats import PcmFormat
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
        self._hash = hashlib.sha256()

    @property
    def name(self) -> str:
        return "null"

    @property
    def report(self) -> PcmReport | None:
        """Of the newest feed; None before the first. At full volume the hash is that of the decoded PCM."""
        if self._feed is None:
            return None
        return PcmReport(
            format=self._feed.format, frames=self._feed.frames, sha256=self._hash.copy().hexdigest()
        )

    async def play(self, feed: PcmFeed) -> None:
        """See `Sink.play`. Raises nothing but what broke the stream."""
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
