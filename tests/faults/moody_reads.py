"""Reading moody resources: in this process without a server, or through a session with a real one."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import trio
import trio.testing

from playhead.client import Session
from playhead.errors import PlayheadError
from playhead.stream.options import StreamOptions
from playhead.stream.reader import open_stream
from tests.faults.lies import CONTRADICTION
from tests.faults.verdicts import STREAM_MAX_BYTES, Cell, Reading, is_right, verdict
from tests.servers.moods import Mood, MoodyPages, MoodyResource
from tests.servers.moody_server import read_log

HANG_SECONDS = 600.0
"""Of the mock clock: longer than the patience of any stream here."""

AT_ONCE = 12
"""Cells that a session reads at the same time: many of them wait half a second to confirm an end."""


def options_for(cell: Cell) -> StreamOptions:
    options = StreamOptions(max_bytes=STREAM_MAX_BYTES)
    return options if cell.in_flight is None else replace(options, in_flight=cell.in_flight)


async def read_in_process(
    resource: MoodyResource, *, options: StreamOptions | None = None, size_bytes: int | None = None
) -> Reading:
    """Read the whole resource in trio's time, with the good bytes before an error."""
    got = bytearray()
    error: PlayheadError | None = None
    started = trio.current_time()
    with trio.fail_after(HANG_SECONDS):
        async with open_stream(
            MoodyPages(resource), options=options or StreamOptions(), size_bytes=size_bytes
        ) as stream:
            try:
                async for chunk in stream:
                    got += chunk
            except PlayheadError as caught:
                error = caught
            seconds = trio.current_time() - started
            statistics = stream.statistics()
    return Reading(
        data=bytes(got),
        error=error,
        size_was_wrong=statistics.size_was_wrong,
        log=resource.log,
        seconds=seconds,
    )


def complaint_in_process(name: str, cell: Cell, options: StreamOptions | None = None) -> str | None:
    """Read a cell under a clock of its own that jumps over every wait; a line if the outcome is wrong."""
    resource = MoodyResource(cell.mood)

    async def scene() -> Reading:
        return await read_in_process(
            resource, options=options or options_for(cell), size_bytes=cell.mood.announced_bytes
        )

    try:
        reading = trio.run(scene, clock=trio.testing.MockClock(autojump_threshold=0))
    except trio.TooSlowError:
        return f"hangs, {len(resource.log)} reads: {name}"
    except ExceptionGroup as error:
        return f"{error!r}, {len(resource.log)} reads: {name}"
    return complaint(name, cell, verdict(cell.mood, reading), reading, lied=resource.lies > 0)


def complaint(name: str, cell: Cell, outcome: str, reading: Reading, *, lied: bool) -> str | None:
    """A line for a cell that is wrong; None for one that is right."""
    if cell.lies and not lied:
        return f"{outcome}, but the server never lied, so this shows nothing: {name}"
    if is_right(cell, outcome, reading.error):
        return None
    said = f" ({reading.error})" if reading.error is not None else ""
    return f"{outcome}{said}, expected {' or '.join(sorted(cell.right))}, {len(reading.log)} reads: {name}"


async def wrong_cells(session: Session, table: Mapping[str, Cell], log: Path) -> list[str]:
    """Save every cell of `table` through `session`, whose server writes `log`; a line for each wrong one.

    The pieces of the server are named by the cells' numbers in the table.
    """
    limiter = trio.CapacityLimiter(AT_ONCE)
    readings: dict[str, Reading] = {}

    async def one(number: int, name: str, cell: Cell, folder: Path) -> None:
        async with limiter:
            readings[name] = await save(session, str(number), cell, folder / str(number))

    numbered = [(number, *item) for number, item in enumerate(table.items())]
    with tempfile.TemporaryDirectory() as folder:
        async with trio.open_nursery() as nursery:
            for number, name, cell in numbered:
                if not only_reads_ahead_contradict(cell):
                    nursery.start_soon(one, number, name, cell, Path(folder))
        for number, name, cell in numbered:
            if only_reads_ahead_contradict(cell):
                await one(number, name, cell, Path(folder))
    logs = read_log(log)
    wrong: list[str] = []
    for number, (name, cell) in enumerate(table.items()):
        reading = replace(readings[name], log=logs.get(str(number), []))
        lied = any(entry.kind in {"false end", "whole"} for entry in reading.log)
        line = complaint(name, cell, verdict(cell.mood, reading), reading, lied=lied)
        if line is not None:
            wrong.append(line)
    return wrong


def only_reads_ahead_contradict(cell: Cell) -> bool:
    """Return whether a stream sees that the cell's false end is one only by what it reads ahead.

    Behind a short page, or below a size that is too large, the rules of paged-reads.md accept an end for
    which no read between the false end and the true one was sent. A stream alone has several in flight there;
    one of a crowd waits for its turn (`stream.in_flight`), may have none, and then ends lawfully.
    """
    announced = cell.mood.announced_bytes
    return cell.right == CONTRADICTION and (announced is None or announced > cell.mood.size_bytes)


async def save(session: Session, piece: str, cell: Cell, path: Path) -> Reading:
    """Save one piece; after an error there must be no file."""
    error: PlayheadError | None = None
    size_was_wrong = False
    (link,) = (await session.call_tool("link", {"name": piece})).links
    try:
        async with session.open(link, options=options_for(cell)) as stream:
            size_was_wrong = (await stream.save(path)).size_was_wrong
    except PlayheadError as caught:
        error = caught
    data = _taken(path)
    assert error is None or data is None, f"{piece}: a file was left behind after {error}"
    return Reading(data=data or b"", error=error, size_was_wrong=size_was_wrong, log=())


def _taken(path: Path) -> bytes | None:
    if not path.exists():
        return None
    data = path.read_bytes()
    path.unlink()
    return data


def pieces(table: Mapping[str, Cell]) -> dict[str, Mood]:
    """The moods of a table under the names that `wrong_cells` asks for."""
    return {str(number): cell.mood for number, cell in enumerate(table.values())}
