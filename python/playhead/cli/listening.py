"""Listening: playing media to their end, with keys and a progress bar at a terminal, for `demo`, `call` and
`play`.

This file also has the report on a stream, which `read` uses too: the lines on stderr while the stream waits,
and the keys of `--json`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, assert_never

import trio

from playhead.cli.player_keys import player_keys
from playhead.cli.runner import Report, message_of
from playhead.cli.terminal import Terminal, escape_line, first_line, human_bytes
from playhead.cli.views import PlayerView
from playhead.concurrency import unwrap_exception_group
from playhead.errors import PlaybackError, SeekError, UsageError
from playhead.stream.source import Playable, PlayableWrapper, Reader

if TYPE_CHECKING:
    from playhead.client.session.requests import OnMedia
    from playhead.playback import Player, PlayerEvent, PlayerState, Sink
    from playhead.playback.pcm_buffer import Latency
    from playhead.stream.options import StreamEvent, StreamOptions, StreamStatistics


T = TypeVar("T")


class WatchedMedia(PlayableWrapper):
    """A playable that remembers its open reader, so that the command can show the reader's statistics."""

    def __init__(self, inner: Playable, *, options: StreamOptions | None) -> None:
        super().__init__(inner)
        self._options = options
        self._reader: Reader | None = None

    def statistics(self) -> StreamStatistics | None:
        """Return the statistics of the stream; None before it is opened, and for media that are not a
        stream."""
        return None if self._reader is None else self._reader.statistics()

    @property
    def buffered_bytes(self) -> int:
        """The bytes that were read and are not yet decoded."""
        return 0 if self._reader is None else self._reader.buffered_bytes

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[Reader]:
        async with self.inner.open(options or self._options) as self._reader:
            yield self._reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The settings of a player that are options of `playhead play`."""

    start_seconds: float = 0.0
    rate_hz: int | None = None
    channels: int | None = None
    latency: Latency = "deep"
    is_muted: bool = False
    repeats: bool = False
    announces: bool = True
    """True to print the title of each item before its audio starts."""


@dataclass(slots=True, kw_only=True)
class Heard:
    """The report on the media. `listen` fills it, even if it fails or is interrupted."""

    items: list[Report]
    """The report on each item, with the keys of `--json`."""
    files: list[str] = field(default_factory=list)
    """The files of a `WaveSink` or `PcmSink`, which chooses their names from the second on."""
    is_whole: bool = True
    """False if a key moved or ended the audio."""

    @classmethod
    def of(cls, media: Sequence[Playable]) -> Heard:
        """Return the report on `media` before anything was played."""
        from playhead.playback import PlayerState

        return cls(items=[_media_report(each) | player_report(PlayerState()) for each in media])

    def flat(self) -> Report:
        """Return the sums over all items. For a single item, add everything about its stream."""
        report = dict(self.items[0]) if len(self.items) == 1 else {}
        for name in ("title", "mime_type", "uri", "stopped", "error"):
            report.pop(name, None)
        for name in ("position_seconds", "underruns", "device_underruns", "bytes"):
            numbers = [number for item in self.items if isinstance(number := item.get(name), int | float)]
            if numbers:
                report[name] = sum(numbers)
        report["truncated"] = any(item["truncated"] for item in self.items)
        return report


More: TypeAlias = "Callable[[], Awaitable[Sequence[Playable]]]"
"""Waits for the media that follow the first ones."""


async def during_call(
    call: Callable[[OnMedia], Awaitable[Sequence[Playable]]],
    play: Callable[[Sequence[Playable], More], Awaitable[T]],
) -> T:
    """Play the media of `call`, while it goes on if its progress names them. Its result is the rest.

    Returns what `play` returns, which gets no media if there are none.
    """
    media: list[Playable] = []
    begun, over = trio.Event(), trio.Event()

    async def on_media(early: Playable) -> None:
        media.append(early)
        begun.set()

    async def run() -> None:
        media.extend(await call(on_media))
        begun.set()
        over.set()

    with unwrap_exception_group():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await begun.wait()
            first = [*media]

            async def more() -> Sequence[Playable]:
                await over.wait()
                return media[len(first) :]

            return await play(first, more)
    raise AssertionError("unreachable")


async def listen(
    media: Sequence[Playable],
    sink: Sink,
    terminal: Terminal,
    heard: Heard,
    *,
    options: StreamOptions | None = None,
    settings: Listening = Listening(),
    more: More | None = None,
) -> None:
    """Play `media` one after another into `sink`, then the media that `more` returns, and fill `heard`.

    At a terminal, keys control the player. For several items it prints the title of each before its audio
    starts, and each failure at once. Raises the first failure after the last item, and `SeekError` if the
    first item can't start at `start_seconds`.
    """
    from playhead.playback import PcmSink, Player, Repeat, WaveSink

    watched = [WatchedMedia(each, options=options) for each in media]
    volume = 0 if settings.is_muted else 100
    player = Player(
        sink,
        volume=volume,
        rate_hz=settings.rate_hz,
        channels=settings.channels,
        latency=settings.latency,
    )
    async with trio.open_nursery() as nursery, player, player_keys(player, terminal) as keys:
        if settings.repeats:
            player.set_repeat(Repeat.ALL)
        nursery.start_soon(_follow_events, player.events(), heard.items, terminal, settings.announces)
        try:
            with terminal.showing(partial(_view, player, watched)):
                await _play_from(player, watched, settings.start_seconds)
                if more is not None and (later := await more()):
                    watched += [WatchedMedia(each, options=options) for each in later]
                    heard.items += Heard.of(later).items
                    await player.enqueue(watched[-len(later) :])
                await player.wait_finished()
        except UsageError as error:
            if len(media) == 1:
                raise
            raise PlaybackError(str(error)) from error  # the playlist is wrong, not the use of the command
        finally:
            state = player.snapshot()
            if state.index is not None:
                heard.items[state.index] |= player_report(state)
            for each, report in zip(watched, heard.items, strict=True):
                if (statistics := each.statistics()) is not None:
                    report |= stream_report(statistics)
                    warn_of_server(statistics, terminal)
            if isinstance(sink, WaveSink | PcmSink):
                heard.files += map(str, sink.paths)
            if len(heard.files) > 1:
                terminal.say(f"written to {', '.join(heard.files)}", whole=True)
            heard.is_whole = keys.is_untouched


async def _play_from(player: Player, media: Sequence[Playable], start_seconds: float) -> None:
    """Play `media`, the first item from `start_seconds` on, without any audio before that time."""
    if not start_seconds:
        await player.play(media)
        return
    player.hold("seek")
    await player.play(media)
    try:
        is_inside = await player.seek(start_seconds)
    except SeekError:
        if player.snapshot().format is not None:  # otherwise the item failed, and `wait_finished` raises why
            raise
    else:
        if not is_inside:
            now = player.snapshot()
            # If the decoder has reached the end, its position is exact, and is the length.
            end = now.position_seconds if now.position_is_exact else start_seconds
            at = f" at {end:.1f} s" if end < start_seconds else ""
            raise SeekError(
                f"--start: expected a time before the end of {media[0].title!r}{at}, got {start_seconds:g} s"
            )
    player.release("seek")


def _media_report(media: Playable) -> Report:
    return {
        "title": media.title,
        "mime_type": media.mime_type,
        "uri": media.uri,
        "stopped": False,
        "error": None,
    }


async def _follow_events(
    events: trio.MemoryReceiveChannel[PlayerEvent], heard: list[Report], terminal: Terminal, announces: bool
) -> None:
    """Update `heard` with the events until the player closes, and print those that matter to a person."""
    from playhead.playback import (
        ItemEnd,
        ItemError,
        ItemResumed,
        ItemSkipped,
        ItemStart,
        ItemTitle,
        ItemWaiting,
        StateChange,
    )

    rate_hz = 1
    async for event in events:
        match event:
            case ItemStart():
                rate_hz = event.format.rate_hz
                which = f" ({event.index + 1} of {len(heard)})" if len(heard) > 1 else ""
                if announces:
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
                if len(heard) > 1 and not terminal.json_output:
                    # A message that several items share is printed once.
                    terminal.fail(message, about=event.title)
            case ItemTitle(stream_title=stream_title):
                heard[event.index]["stream_title"] = stream_title
                terminal.say(f"now {escape_line(stream_title)}")
            case ItemWaiting() | ItemResumed() | ItemSkipped():
                pass  # `waiting_lines` prints these, with the server's name
            case _:
                assert_never(event)


def _view(player: Player, watched: Sequence[WatchedMedia]) -> PlayerView:
    now = player.snapshot()
    index = now.index or 0
    of_all = f" ({index + 1} of {len(watched)})" if len(watched) > 1 else ""
    media = watched[index]
    return PlayerView(now=now, stream=media.statistics(), buffered_bytes=media.buffered_bytes, of_all=of_all)


def waiting_lines(terminal: Terminal, server: str) -> Callable[[StreamEvent], None]:
    """Return an `on_event` that prints one line on stderr when a stream starts or stops waiting."""
    from playhead.stream.options import StreamResumed, StreamSkipped, StreamTitle, StreamWaiting

    def say(event: StreamEvent) -> None:
        match event:
            case StreamWaiting():
                error = event.last_error
                until = "connecting again"
                if event.patience_seconds < math.inf:
                    until = f"giving up after {round(event.patience_seconds, 1):g} s (--{event.ended_by})"
                why = "" if error is None else f": {first_line(message_of(error, options=()))}"
                terminal.say(
                    f"waiting for {escape_line(server)}, no data for {event.seconds:.0f} s{why}; {until}",
                    style="yellow",
                    whole=True,
                )
            case StreamResumed():
                terminal.say(
                    f"{escape_line(server)} is back after {event.seconds:.0f} s", style="green", whole=True
                )
            case StreamTitle():
                pass  # the player's event has it
            case StreamSkipped():
                missing = f"{human_bytes(event.skipped_bytes)} from byte {event.offset} on"
                if event.skipped_seconds is not None:
                    missing = f"the next {event.skipped_seconds:.0f} s"
                terminal.say(
                    f"{escape_line(server)} no longer has {missing}; going on at the earliest part that"
                    " exists",
                    style="yellow",
                    whole=True,
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
        "live": seen.is_live,
        "notifications": seen.notifications,
        "skipped_bytes": seen.skipped_bytes,
        "reconnects": seen.reconnects,
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
    if seen.ended_by == "no-growth":
        terminal.warn(
            f"the resource has not grown for long, and the server announces no end: taken as ended after"
            f" {seen.end_bytes} bytes"
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
