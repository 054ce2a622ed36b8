"""Play media to their end, with keys and a progress bar at a terminal: for `demo`, `call` and `play`.

What they and `read` report of a stream is here too: on stderr while it waits, and under the keys of `--json`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, assert_never

import trio

from playhead.cli.player_keys import player_keys
from playhead.cli.runner import Report, message_of
from playhead.cli.terminal import Terminal, clock, escape_line, first_line, human_bytes, live_line
from playhead.errors import SeekError
from playhead.stream.source import Playable, PlayableWrapper, Reader

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

    from playhead.playback import Player, PlayerEvent, PlayerState, Sink
    from playhead.playback.pcm_buffer import Latency
    from playhead.stream.options import StreamEvent, StreamOptions, StreamStatistics


class WatchedMedia(PlayableWrapper):
    """A playable that keeps the reader it was opened as, so that its statistics can be shown."""

    def __init__(self, inner: Playable, *, options: StreamOptions | None) -> None:
        super().__init__(inner)
        self._options = options
        self._reader: Reader | None = None

    def statistics(self) -> StreamStatistics | None:
        """Of the stream, if it is read as one and was opened."""
        return None if self._reader is None else self._reader.statistics()

    @property
    def buffered_bytes(self) -> int:
        """Read and not yet decoded."""
        return 0 if self._reader is None else self._reader.buffered_bytes

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[Reader]:
        async with self.inner.open(options or self._options) as self._reader:
            yield self._reader


async def listen(
    media: Playable,
    sink: Sink,
    terminal: Terminal,
    report: Report,
    *,
    options: StreamOptions | None = None,
    start_seconds: float = 0.0,
    rate_hz: int | None = None,
    channels: int | None = None,
    latency: Latency = "deep",
) -> bool:
    """Play `media` into `sink` to its end; the report is filled even when it fails or is interrupted.

    At a terminal, keys control it. Returns False if one of them moved or ended it. Raises `SeekError` if it
    can't start at `start_seconds`.
    """
    from playhead.playback import Player

    watched = WatchedMedia(media, options=options)
    player = Player(sink, rate_hz=rate_hz, channels=channels, latency=latency)
    async with player, player_keys(player, terminal) as keys:
        try:
            view = partial(_view, player, [watched])
            async with live_line(terminal, view):
                await _play_from(player, watched, start_seconds)
                await player.wait_finished()
        finally:
            if (seen := watched.statistics()) is not None:
                report |= stream_report(seen)
                warn_of_server(seen, terminal)
            now = player.snapshot()
            report |= player_report(now)
            if now.finding is not None:
                terminal.warn(f"{escape_line(media.title)}: {now.finding}")
    return keys.is_untouched


async def _play_from(player: Player, media: Playable, start_seconds: float) -> None:
    """Play `media` from this time on, without a sound before it."""
    if not start_seconds:
        await player.play(media)
        return
    player.hold("seek")
    await player.play(media)
    try:
        is_inside = await player.seek(start_seconds)
    except SeekError:
        if player.snapshot().format is not None:  # else it failed, and `wait_finished` says why
            raise
    else:
        if not is_inside:
            now = player.snapshot()
            # A decoder that has met the end stays there.
            end = now.position_seconds if now.position_is_exact else start_seconds
            at = f" at {end:.1f} s" if end < start_seconds else ""
            raise SeekError(
                f"--start: expected a time before the end of {media.title!r}{at}, got {start_seconds:g} s"
            )
    player.release("seek")


async def listen_to_all(
    media: Sequence[Playable], sink: Sink, terminal: Terminal, report: Report, *, options: StreamOptions
) -> None:
    """Play several one after another; each is told before its first sound, and what failed when it did.

    `report["player"]` says what became of each, and the files of a `WaveSink` or `PcmSink`: from the second
    on it chooses their names. Raises the first failure once all are over.
    """
    from playhead.playback import PcmSink, Player, PlayerState, WaveSink

    watched = [WatchedMedia(each, options=options) for each in media]
    heard: list[Report] = [_about(each) | player_report(PlayerState()) for each in media]
    files: list[str] = []
    report["player"] = {"items": heard, "files": files}
    async with (
        trio.open_nursery() as nursery,
        Player(sink) as player,
        player_keys(player, terminal),
    ):
        nursery.start_soon(_tell, player.events(), heard, terminal)
        try:
            async with live_line(terminal, partial(_view, player, watched)):
                await player.play(watched)
                await player.wait_finished()
        finally:
            for each, about in zip(watched, heard, strict=True):
                if (seen := each.statistics()) is not None:
                    about |= stream_report(seen)
                    warn_of_server(seen, terminal)
            if isinstance(sink, WaveSink | PcmSink):
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
                if event.finding is not None:
                    heard[event.index]["truncated"] = True
                    terminal.warn(f"{escape_line(event.title)}: {event.finding}")
            case ItemError(error=error):
                message = message_of(error)
                heard[event.index]["error"] = {"type": type(error).__name__, "message": message}
                # Without a sound device each item fails for the same reason.
                if len(heard) > 1 and message != said:
                    terminal.say(f"{escape_line(event.title)}: {message}", style="yellow")
                    said = message
            case ItemWaiting() | ItemResumed():
                pass  # `waiting_lines` says so, with the server's name
            case _:
                assert_never(event)


def _view(player: Player, watched: Sequence[WatchedMedia]) -> PlayerView:
    now = player.snapshot()
    index = now.index or 0
    of_all = f" ({index + 1} of {len(watched)})" if len(watched) > 1 else ""
    media = watched[index]
    return PlayerView(now=now, stream=media.statistics(), buffered_bytes=media.buffered_bytes, of_all=of_all)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerView:
    """The current item in three lines: its title; position, progress bar and duration; buffers, rates and
    volume, the most important first, since a narrow terminal cuts off the rest."""

    now: PlayerState
    stream: StreamStatistics | None = None
    buffered_bytes: int = 0
    """Read and not yet decoded."""
    of_all: str = ""
    """Such as ` (1 of 2)`."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        now = self.now
        yield _cut(f"{now.title or 'audio'}{self.of_all}", "bold")
        position = ("" if now.position_is_exact else "~") + clock(now.position_seconds)
        if now.duration_seconds is None:
            yield _cut(position, "")
        else:
            row = Table.grid(expand=True, padding=(0, 1, 0, 0), pad_edge=False)
            row.add_column(no_wrap=True)
            row.add_column(ratio=1)
            row.add_column(no_wrap=True)
            bar = ProgressBar(total=now.duration_seconds or 1.0, completed=now.position_seconds)
            row.add_row(position, bar, clock(now.duration_seconds))
            yield row
        yield _cut(" · ".join(self._details()), "dim")

    def _details(self) -> Iterator[str]:
        now, stream, rate = self.now, self.stream, self.now.stream_bytes_per_second
        yield str(now.status)
        ahead_seconds = now.buffered_seconds + (self.buffered_bytes / rate if rate else 0.0)
        yield f"{ahead_seconds:.1f} s buffered"
        if rate is not None:
            yield f"{rate * 8 / 1000:.0f} kbit/s"
        yield f"volume {now.volume}"
        if stream is not None:
            if stream.bandwidth_bytes_per_second:
                yield f"link {human_bytes(stream.bandwidth_bytes_per_second)}/s"
            yield f"{human_bytes(stream.bytes)} read"
            if stream.reads.cache_bytes:
                yield f"{human_bytes(stream.reads.cache_bytes)} from the cache"


def _cut(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(escape_line(text), style=style, no_wrap=True, overflow="ellipsis")


def waiting_lines(terminal: Terminal, server: str) -> Callable[[StreamEvent], None]:
    """Return an `on_event` that prints one line on stderr when a stream starts or stops waiting."""
    from playhead.stream.options import StreamResumed, StreamWaiting

    def say(event: StreamEvent) -> None:
        match event:
            case StreamWaiting():
                error = event.last_error
                why = "" if error is None else f": {first_line(message_of(error, options=()))}"
                terminal.say(
                    f"waiting for {escape_line(server)}, no data for {event.seconds:.0f} s{why};"
                    f" giving up after {round(event.patience_seconds, 1):g} s (--{event.ended_by})",
                    style="yellow",
                    whole=True,
                )
            case StreamResumed():
                terminal.say(
                    f"{escape_line(server)} is back after {event.seconds:.0f} s", style="green", whole=True
                )
            case _:
                assert_never(event)

    return say


def _milliseconds(seconds: float | None) -> float | None:
    """Convert seconds to milliseconds with one decimal, for the report."""
    return None if seconds is None else round(seconds * 1000, 1)


def stream_report(seen: StreamStatistics) -> dict[str, object]:
    """Summarize a stream: bytes, requests, how it ended."""
    return {
        "bytes": seen.bytes,
        "requests": seen.requests,
        "pages": seen.pages,
        "reads": seen.reads.server_reads,
        "cache_hits": seen.reads.cache_hits,
        "cache_bytes": seen.reads.cache_bytes,
        "retries": seen.retries,
        "hedges": seen.hedges,
        "in_flight_max": seen.in_flight_max,
        "first_byte_ms": _milliseconds(seen.first_byte_seconds),
        "strategy": seen.strategy,
        "strategy_reason": seen.strategy_reason,
        "ended_by": seen.ended_by,
        "size_was_wrong": seen.size_was_wrong,
        "ranges_ignored_from": seen.ranges_ignored_from,
    }


def warn_of_server(seen: StreamStatistics, terminal: Terminal) -> None:
    """Warn if the announced size was wrong, or the server stopped honouring ranges."""
    if seen.size_was_wrong:
        true = "" if seen.end_bytes is None else f", the resource has {seen.end_bytes}"
        terminal.warn(f"the announced size of {seen.size_bytes} bytes is wrong{true}")
    if seen.ranges_ignored_from is not None:
        terminal.warn(
            "expected ranges to be honoured, got the whole resource in answer to the range from byte "
            f"{seen.ranges_ignored_from} on; no byte was lost, but tell the server's author"
        )


def player_report(state: PlayerState) -> dict[str, object]:
    """Summarize the playback: time of the first audio, position, underruns."""
    return {
        "first_audio_ms": _milliseconds(state.first_audio_seconds),
        "underruns": state.underruns,
        "device_underruns": state.device_underruns,
        "position_seconds": round(state.position_seconds, 3),
        "truncated": state.truncated,
    }
