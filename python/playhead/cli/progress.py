"""The live line on stderr: buffered, position, throughput, reads in flight. Only on a terminal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio
from rich.live import Live
from rich.text import Text

from playhead.cli.terminal import Terminal, escape_line

_REDRAW_SECONDS: Final = 0.1
"""Ten a second: smooth to the eye, and under 1 % of a core."""


@asynccontextmanager
async def live_line(terminal: Terminal, line: Callable[[], str]) -> AsyncIterator[None]:
    """Draw `line()` again and again while the body runs; draw nothing where nobody could see it."""
    if not terminal.is_live:
        yield
        return
    with Live(console=terminal.err, auto_refresh=False, transient=True) as live:
        async with trio.open_nursery() as nursery:

            async def draw() -> None:
                while True:
                    live.update(Text(escape_line(line()), no_wrap=True, overflow="ellipsis"), refresh=True)
                    await trio.sleep(_REDRAW_SECONDS)

            nursery.start_soon(draw)
            yield
            nursery.cancel_scope.cancel()


def human_bytes(count: float) -> str:
    """`1536` as `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def clock(seconds: float) -> str:
    """`75.2` as `1:15`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
