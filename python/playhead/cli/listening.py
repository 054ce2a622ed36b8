"""Plays one item to its end with the live line: what `demo`, `call` and `play` share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from playhead.cli.progress import clock, human_bytes, live_line
from playhead.cli.reports import player_report, stream_report
from playhead.cli.runner import Report
from playhead.cli.terminal import Terminal
from playhead.stream.source import BlockingReader, Media

if TYPE_CHECKING:
    from playhead.playback import Player, Sink
    from playhead.stream.options import StreamOptions
    from playhead.stream.reader import RangeStream


class WatchedMedia:
    """A media item that keeps the stream it was opened as, so that its statistics can be shown."""

    def __init__(self, inner: Media, *, options: StreamOptions | None) -> None:
        self.inner = inner
        self._options = options
        self.stream: RangeStream | None = None

    @property
    def title(self) -> str:
        return self.inner.title

    @property
    def mime_type(self) -> str | None:
        return self.inner.mime_type

    @property
    def uri(self) -> str | None:
        return self.inner.uri

    @property
    def size_bytes(self) -> int | None:
        return self.inner.size_bytes

    @asynccontextmanager
    async def open(self) -> AsyncIterator[BlockingReader]:
        from playhead.client import BytesMedia, ResourceMedia

        if isinstance(self.inner, ResourceMedia | BytesMedia):
            async with self.inner.open(self._options) as stream:
                self.stream = stream
                yield stream
        else:
            async with self.inner.open() as reader:
                yield reader


async def listen(
    media: Media, sink: Sink, terminal: Terminal, report: Report, *, options: StreamOptions | None = None
) -> None:
    """Play `media` into `sink` to its end; the report is filled even when it fails or is interrupted."""
    from playhead.playback import Player

    watched = WatchedMedia(media, options=options)
    async with Player(sink) as player:
        try:
            async with live_line(terminal, lambda: _line(player, watched)):
                await player.play(watched)
                await player.wait_finished()
        finally:
            if watched.stream is not None:
                report |= stream_report(watched.stream)
            report |= player_report(player.snapshot())


def _line(player: Player, watched: WatchedMedia) -> str:
    now = player.snapshot()
    line = "" if now.status == "playing" else f"{now.status}: "
    line += clock(now.position_seconds)
    if now.duration_seconds is not None:
        line += f"/{clock(now.duration_seconds)}"
    if watched.stream is not None:
        seen = watched.stream.statistics()
        rate = seen.bandwidth_bytes_per_second
        line += f" · {now.buffered_seconds:.1f} s buffered"
        line += (f" · {human_bytes(rate)}/s" if rate else "") + f" · {seen.in_flight} in flight"
        line += f" · {human_bytes(seen.bytes)}"
    # What a narrow terminal cuts off is known already: the title comes last.
    return f"{line} · {now.title}" if now.title else line
