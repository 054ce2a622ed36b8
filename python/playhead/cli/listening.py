"""Plays media to their end with the live line: what `demo`, `call` and `play` share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, assert_never

import trio

from playhead.cli.progress import clock, human_bytes, live_line, player_report, stream_report, warn_of_size
from playhead.cli.runner import Report
from playhead.cli.terminal import Terminal, escape_line
from playhead.stream.source import Playable, PlayableWrapper, Reader

if TYPE_CHECKING:
    from playhead.playback import PlayerEvent, PlayerState, Sink
    from playhead.stream.options import StreamOptions, StreamStatistics


class WatchedMedia(PlayableWrapper):
    """A playable that keeps the reader it was opened as, so that its statistics can be shown."""

    def __init__(self, inner: Playable, *, options: StreamOptions | None) -> None:
        super().__init__(inner)
        self._options = options
        self._reader: Reader | None = None

    def statistics(self) -> StreamStatistics | None:
        """Of the stream, if it is read as one and was opened."""
        return None if self._reader is None else self._reader.statistics()

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[Reader]:
        async with self.inner.open(options or self._options) as self._reader:
            yield self._reader


async def listen(
    media: Playable, sink: Sink, terminal: Terminal, report: Report, *, options: StreamOptions | None = None
) -> None:
    """Play `media` into `sink` to its end; the report is filled even when it fails or is interrupted."""
    from playhead.playback import Player

    watched = WatchedMedia(media, options=options)
    async with Player(sink) as player:
        try:
            async with live_line(terminal, lambda: _line(player.snapshot(), watched)):
                await player.play(watched)
                await player.wait_finished()
        finally:
            if (seen := watched.statistics()) is not None:
                report |= stream_report(seen)
                warn_of_size(seen, terminal)
            report |= player_report(player.snapshot())


async def listen_to_all(
    media: Sequence[Playable], sink: Sink, terminal: Terminal, report: Report, *, options: StreamOptions
) -> None:
    """Play several one after another; each is told before its first sound, and what failed when it did.

    `report["player"]` says what became of each, and the files of a `WaveSink`: from the second on it chooses
    their names. Raises the first failure once all are over.
    """
    from playhead.playback import Player, PlayerState, WaveSink

    watched = [WatchedMedia(each, options=options) for each in media]
    heard: list[Report] = [_about(each) | player_report(PlayerState()) for each in media]
    files: list[str] = []
    report["player"] = {"items": heard, "files": files}
    async with trio.open_nursery() as nursery, Player(sink) as player:
        nursery.start_soon(_tell, player.events(), heard, terminal)

        def line() -> str:
            now = player.snapshot()
            index = now.index or 0
            of_all = f" ({index + 1} of {len(watched)})" if len(watched) > 1 else ""
            return _line(now, watched[index]) + of_all

        try:
            async with live_line(terminal, line):
                await player.play(watched)
                await player.wait_finished()
        finally:
            for each, about in zip(watched, heard, strict=True):
                if (seen := each.statistics()) is not None:
                    about |= stream_report(seen)
                    warn_of_size(seen, terminal)
            if isinstance(sink, WaveSink):
                files += map(str, sink.paths)
            if len(files) > 1:
                terminal.say(f"written to {', '.join(files)}", whole=True)


def _about(media: Playable) -> Report:
    return {
        "title": media.title,
        "mime_type": media.mime_type,
        "uri": media.uri,
        "stopped": False,
        "error": None,
    }


async def _tell(
    events: trio.MemoryReceiveChannel[PlayerEvent], heard: list[Report], terminal: Terminal
) -> None:
    """Keep `heard` up to date until the player closes, and say what a person wants to know."""
    from playhead.playback import ItemEnd, ItemError, ItemResumed, ItemStart, ItemWaiting, StateChange

    said = ""
    rate_hz = 1
    async for event in events:
        match event:
            case ItemStart():
                rate_hz = event.format.rate_hz
                which = f" ({event.index + 1} of {len(heard)})" if len(heard) > 1 else ""
                terminal.say(f"playing {escape_line(event.title)}{which}")
            case StateChange(state=state):
                if state.index is not None and state.format is not None:
                    heard[state.index] |= player_report(state)
            case ItemEnd():
                played = round(event.frames / rate_hz, 3)
                heard[event.index] |= {"stopped": event.stopped, "position_seconds": played}
            case ItemError(error=error):
                heard[event.index]["error"] = {"type": type(error).__name__, "message": str(error)}
                # Without a sound device each item fails for the same reason.
                if len(heard) > 1 and str(error) != said:
                    terminal.say(f"{escape_line(event.title)}: {error}", style="yellow")
                    said = str(error)
            case ItemWaiting() | ItemResumed():
                pass  # `waiting_lines` says so, with the server's name
            case _:
                assert_never(event)


def _line(now: PlayerState, watched: WatchedMedia) -> str:
    line = "" if now.status == "playing" else f"{now.status}: "
    line += clock(now.position_seconds)
    if now.duration_seconds is not None:
        line += f"/{clock(now.duration_seconds)}"
    if (seen := watched.statistics()) is not None:
        rate = seen.bandwidth_bytes_per_second
        line += f" · {now.buffered_seconds:.1f} s buffered"
        line += (f" · {human_bytes(rate)}/s" if rate else "") + f" · {seen.in_flight} in flight"
        line += f" · {human_bytes(seen.bytes)}"
    # What a narrow terminal cuts off is known already: the title comes last.
    return f"{line} · {now.title}" if now.title else line
