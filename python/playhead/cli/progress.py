"""Progress of a stream: the live line and remarks on stderr, and the keys of `--json`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, assert_never

import trio

from playhead.cli.terminal import Terminal, escape_line

if TYPE_CHECKING:
    from rich.console import ConsoleRenderable

    from playhead.playback import PlayerState
    from playhead.stream.options import StreamEvent, StreamStatistics

_SHOWN_CHARS: Final = 200
"""The part of an error that fits into a status line; all of it is shown if the stream fails."""
_REDRAW_SECONDS: Final = 0.1
"""Ten updates per second look smooth and take under 1 % of a core."""


@asynccontextmanager
async def live_line(terminal: Terminal, line: Callable[[], str | ConsoleRenderable]) -> AsyncIterator[None]:
    """Redraw `line()` while the body runs, if stderr is a terminal and the output is not `--json`.

    A string is escaped and cut to the terminal's width; anything else draws itself.
    """
    if not terminal.is_live:
        yield
        return
    from rich.live import Live
    from rich.text import Text

    with Live(console=terminal.err, auto_refresh=False, transient=True) as live:
        async with trio.open_nursery() as nursery:

            async def draw() -> None:
                while True:
                    now = line()
                    if isinstance(now, str):
                        now = Text(escape_line(now), no_wrap=True, overflow="ellipsis")
                    live.update(now, refresh=True)
                    await trio.sleep(_REDRAW_SECONDS)

            nursery.start_soon(draw)
            yield
            nursery.cancel_scope.cancel()


def waiting_lines(terminal: Terminal, server: str) -> Callable[[StreamEvent], None]:
    """Return an `on_event` that prints one line on stderr when a stream starts or stops waiting."""
    from playhead.stream.options import StreamResumed, StreamWaiting

    def say(event: StreamEvent) -> None:
        match event:
            case StreamWaiting():
                why = "" if event.last_error is None else f": {first_line(str(event.last_error))}"
                terminal.say(
                    f"waiting for {escape_line(server)}, no data for {event.seconds:.0f} s{why};"
                    f" giving up after {event.patience_seconds:g} s (--patience)",
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


def first_line(text: str) -> str:
    """The first line of a message, escaped and cut."""
    first, _, rest = text.partition("\n")
    cut = bool(rest) or len(first) > _SHOWN_CHARS
    return escape_line(first[:_SHOWN_CHARS]) + ("…" if cut else "")


def human_bytes(count: float) -> str:
    """Format `1536` as `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def clock(seconds: float) -> str:
    """Format `75.2` as `1:15`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


_CLOCK: Final = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d*)?)", re.ASCII)


def seconds_of(text: str) -> float | None:
    """Parse `90`, `1:30`, `1:02:03` or `7.5` as seconds; None for anything else."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    return sum(float(part) * unit for part, unit in zip(found.groups(), (3600, 60, 1), strict=True) if part)


def milliseconds(seconds: float | None) -> float | None:
    """Convert seconds to milliseconds with one decimal, for the report."""
    return None if seconds is None else round(seconds * 1000, 1)


def stream_report(seen: StreamStatistics) -> dict[str, object]:
    """Summarize a stream: bytes, requests, how it ended."""
    return {
        "bytes": seen.bytes,
        "requests": seen.requests,
        "pages": seen.pages,
        "reads": {"direct": seen.paths.direct, "session": seen.paths.session},
        "fallback": seen.paths.fallback,
        "retries": seen.retries,
        "hedges": seen.hedges,
        "in_flight_max": seen.in_flight_max,
        "first_byte_ms": milliseconds(seen.first_byte_seconds),
        "strategy": seen.strategy,
        "strategy_reason": seen.strategy_reason,
        "ended_by": seen.ended_by,
        "size_was_wrong": seen.size_was_wrong,
    }


def warn_of_size(seen: StreamStatistics, terminal: Terminal) -> None:
    """Warn if the announced size was wrong."""
    if seen.size_was_wrong:
        true = "" if seen.end_bytes is None else f", the resource has {seen.end_bytes}"
        terminal.warn(f"the announced size of {seen.size_bytes} bytes is wrong{true}")


def player_report(state: PlayerState) -> dict[str, object]:
    """Summarize the playback: time of the first audio, position, underruns."""
    return {
        "first_audio_ms": milliseconds(state.first_audio_seconds),
        "underruns": state.underruns,
        "position_seconds": round(state.position_seconds, 3),
    }
