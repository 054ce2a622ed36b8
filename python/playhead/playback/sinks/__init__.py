"""Where sound goes. Every sink passes the suite in `playhead.testing.sinks`."""

from __future__ import annotations

from typing import Protocol

from playhead.playback.feed import PcmFeed
from playhead.playback.sinks.device import DeviceSink
from playhead.playback.sinks.null import NullSink
from playhead.playback.sinks.wave import WaveSink

__all__ = ["DeviceSink", "NullSink", "Sink", "WaveSink"]


class Sink(Protocol):
    """Something that plays PCM, one feed at a time, in the feed's own rate and channels."""

    @property
    def name(self) -> str:
        """For messages and summaries: `device`, `null`, `wave:FILE`."""
        ...

    async def play(self, feed: PcmFeed) -> None:
        """Play the feed to its end; returns when its last frame has sounded.

        Cancelled: silent within one device period, and nothing of it goes on (no thread, no callback, no
        partial file under its final name). The caller closes the feed before it cancels, so that a thread
        in `feed.take` wakes. Raises `NoDeviceError` without a sound device or where it stops by itself, and
        `OSError` where a file cannot be written.
        """
        ...
