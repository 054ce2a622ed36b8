"""Views: the lines that a command draws at a terminal while it plays, reads or calls.

Each view takes a few lines at any width. A line begins with its most important part, because a narrow
terminal cuts off the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from playhead.cli.terminal import clock, escape_line, human_bytes

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

    from playhead.playback import PlayerState
    from playhead.stream.options import StreamStatistics
    from playhead.stream.reader import RangeStream

RATE_SECONDS: Final = 5.0
"""The period over which a transfer's rate is averaged, so that the rate and the time left stay readable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerView:
    """The current item: its title; the stream's own title, if any; position, progress bar and duration;
    buffers, rates and volume."""

    now: PlayerState
    stream: StreamStatistics | None = None
    buffered_bytes: int = 0
    """Bytes that were read and are not decoded yet."""
    of_all: str = ""
    """The item's number among several items, such as ` (1 of 2)`; empty for one."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        now = self.now
        yield _one_line(f"{now.title or 'audio'}{self.of_all}", "bold")
        if now.stream_title is not None:
            yield _one_line(now.stream_title, "")
        position = ("" if now.position_is_exact else "~") + clock(now.position_seconds)
        if now.duration_seconds is None:
            yield _one_line(f"{position} · live" if now.is_live else position, "")
        else:
            yield _bar(position, now.position_seconds, now.duration_seconds, clock(now.duration_seconds))
        yield _joined_parts(list(self._details()), options.max_width)

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


@dataclass(slots=True, kw_only=True)
class TransferView:
    """A stream being saved: bytes, progress bar, size, the rate of the last seconds and the time left."""

    title: str
    stream: RangeStream
    _progress_samples: deque[tuple[float, int]] = field(default_factory=deque)
    """The number of bytes delivered until a time, with that time; the oldest sample first."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        now = self.stream.statistics()
        rate = self._measure_rate(now.bytes)
        size = now.size_bytes if now.end_bytes is None else now.end_bytes
        details = [f"{human_bytes(rate)}/s"] if rate else ["reading"]
        yield _one_line(self.title, "bold")
        if size:
            yield _bar(human_bytes(now.bytes), now.bytes, size, human_bytes(size))
            if rate:
                details.append(f"{clock(max(0, size - now.bytes) / rate)} left")
        else:
            details.insert(0, human_bytes(now.bytes))
        details.append(f"{now.in_flight} in flight")
        if now.reads.cache_bytes:
            details.append(f"{human_bytes(now.reads.cache_bytes)} from the cache")
        yield _joined_parts(details, options.max_width)

    def _measure_rate(self, n_bytes: int) -> float:
        """Return the bytes per second over the last `RATE_SECONDS`; 0 at the first call."""
        now = trio.current_time()
        self._progress_samples.append((now, n_bytes))
        while len(self._progress_samples) > 2 and self._progress_samples[1][0] <= now - RATE_SECONDS:
            self._progress_samples.popleft()
        then, bytes_then = self._progress_samples[0]
        return (n_bytes - bytes_then) / (now - then) if now > then else 0.0


@dataclass(slots=True, kw_only=True)
class CallView:
    """A tool call in progress: the time it has taken, and the progress that the server reports."""

    tool: str
    progress: float | None = None
    total: float | None = None
    message: str = ""
    _began: float = field(default_factory=trio.current_time)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _one_line(f"calling {self.tool} · {trio.current_time() - self._began:.0f} s", "bold")
        if self.progress is not None and self.total:
            yield _bar(f"{self.progress:g}", self.progress, self.total, f"{self.total:g}")
        elif self.progress is not None:
            yield _one_line(f"{self.progress:g}", "")
        if self.message:
            yield _one_line(self.message, "dim")


def _bar(left: str, completed: float, total: float, right: str) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    row = Table.grid(expand=True, padding=(0, 1, 0, 0), pad_edge=False)
    row.add_column(no_wrap=True)
    row.add_column(ratio=1)
    row.add_column(no_wrap=True)
    row.add_row(left, ProgressBar(total=total or 1.0, completed=completed), right)
    return row


def _joined_parts(parts: list[str], columns: int) -> Text:
    """Join the first parts that fit, each of them whole: a number cut short would be wrong."""
    while len(parts) > 1 and len(" · ".join(parts)) > columns:
        parts.pop()
    return _one_line(" · ".join(parts), "dim")


def _one_line(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(escape_line(text), style=style, no_wrap=True, overflow="ellipsis")
