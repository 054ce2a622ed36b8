"""Servers that lie about the end, the size, or the range: every byte once, or a typed error, no wrong file.

The table is in `lies.py`. Each cell is read without a server, in simulated time, and through a session with a
real one over stdio and HTTP.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from playhead import errors
from playhead.client import connect
from tests.e2e.command import playhead
from tests.faults.lies import SIZINGS, Sizing, cells
from tests.faults.moody_reads import complaint_in_process, pieces, wrong_cells
from tests.faults.seeded_lies import draw, name_of
from tests.faults.verdicts import Cell, Reading, verdict
from tests.servers.launch import http_process
from tests.servers.moods import Whole
from tests.servers.moody_server import moody_command, read_log

TRANSPORTS = ("stdio", "http")
SHARES = {("stdio", "right"): 0, ("http", "none"): 4, ("stdio", "too small"): 7, ("http", "too large"): 10}
"""The sixteenth of the table that the quick run reads; the slow one reads all of it."""
QUICK_SEEDS = range(60)
SEEDS = range(60, 560)


def report(wrong: list[str], n_cells: int) -> str:
    return f"{len(wrong)} of {n_cells} are wrong:\n" + "\n".join(wrong)


@pytest.mark.parametrize("sizing", SIZINGS)
def test_the_table_in_simulated_time(sizing: Sizing) -> None:
    table = cells(sizing)
    found = [complaint_in_process(name, cell) for name, cell in table.items()]
    wrong = [line for line in found if line is not None]
    assert not wrong, report(wrong, len(table))


@pytest.mark.parametrize(
    "seeds",
    [QUICK_SEEDS, pytest.param(SEEDS, marks=pytest.mark.slow("reads 500 files"))],
    ids=["60 seeds", "500 seeds"],
)
def test_seeds_that_draw_the_lies(seeds: range) -> None:
    found = [complaint_in_process(name_of(seed), *draw(seed)) for seed in seeds]
    wrong = [line for line in found if line is not None]
    assert not wrong, report(wrong, len(seeds))


@pytest.mark.parametrize("content", ["zeros", "period-256", "period-4096"])
@pytest.mark.parametrize("sizing", SIZINGS)
def test_whole_files_now_and_then_are_told_from_pages_in_whatever_order_they_arrive(
    sizing: Sizing, content: str
) -> None:
    """Draws how often the whole file is sent, from which read on, and the time of every answer."""
    cell = cells(sizing)[f"whole file, one in three, {content}, many in flight"]
    found = []
    for seed in range(64):
        drawn = random.Random(seed)
        mood = replace(
            cell.mood,
            seed=seed,
            jitter_seconds=drawn.choice([0, 0.005, 0.02, 0.1, 0.5, 2]),
            delay_seconds=drawn.choice([0, 0.001, 0.01, 0.05, 0.3]),
            whole=Whole(every=drawn.choice([3, 4, 5, 7]), counted=drawn.randrange(7)),
        )
        found.append(complaint_in_process(f"seed {seed}", replace(cell, mood=mood, lies=False)))
    wrong = [line for line in found if line is not None]
    assert not wrong, report(wrong, len(found))


@pytest.mark.parametrize(("transport", "sizing"), SHARES)
async def test_a_share_of_the_table_through_a_session(transport: str, sizing: Sizing, tmp_path: Path) -> None:
    table = dict(list(cells(sizing).items())[SHARES[transport, sizing] :: 16])
    wrong = await wrong_through_a_session(transport, table, tmp_path / "log")
    assert not wrong, report(wrong, len(table))


@pytest.mark.slow("reads 125 files")
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("sizing", SIZINGS)
async def test_the_table_through_a_session(transport: str, sizing: Sizing, tmp_path: Path) -> None:
    """Every other cell over one transport, and those between over the other: no lie is about a transport."""
    first = (TRANSPORTS.index(transport) + SIZINGS.index(sizing)) % 2
    table = dict(list(cells(sizing).items())[first::2])
    wrong = await wrong_through_a_session(transport, table, tmp_path / "log")
    assert not wrong, report(wrong, len(table))


async def wrong_through_a_session(transport: str, table: Mapping[str, Cell], log: Path) -> list[str]:
    command = moody_command(transport, pieces(table), log)
    with trio.fail_after(600):
        if transport == "stdio":
            async with connect(command) as session:
                return await wrong_cells(session, table, log)
        async with http_process(command) as url, connect(url) as session:
            return await wrong_cells(session, table, log)


@pytest.mark.slow("over stdio, starts a server for each cell")
@pytest.mark.parametrize(("transport", "sizing"), [("stdio", "right"), *(("http", each) for each in SIZINGS)])
async def test_the_command_saves_the_file_or_says_why_not(
    transport: str, sizing: Sizing, tmp_path: Path
) -> None:
    """One cell in twenty, through `playhead read`."""
    table = {name: cell for name, cell in list(cells(sizing).items())[::20] if cell.in_flight is None}
    log = tmp_path / "log"
    command = moody_command(transport, pieces(table), log)
    if transport == "stdio":
        wrong = await trio.to_thread.run_sync(commands_wrong, shlex.join(command), table, log)
    else:
        async with http_process(command) as url:
            wrong = await trio.to_thread.run_sync(commands_wrong, url, table, log)
    assert not wrong, report(wrong, len(table))


def commands_wrong(server: str, table: Mapping[str, Cell], log: Path) -> list[str]:
    wrong: list[str] = []
    for number, (name, cell) in enumerate(table.items()):
        output = log.with_name(f"{number}.saved")
        outcome = playhead("read", server, "link", f'name="{number}"', "-o", output, "--json")
        said = outcome.json
        data = output.read_bytes() if output.exists() else b""
        entries = read_log(log).get(str(number), [])
        reading = Reading(
            data=data, error=None, size_was_wrong=said.get("size_was_wrong", False), log=entries
        )
        found = said["error"]["type"] if outcome.code else verdict(cell.mood, reading)
        typed = "typed error" in cell.right and hasattr(errors, found)
        if output.exists() == bool(outcome.code) or not (found in cell.right or typed):
            wrong.append(f"exit {outcome.code}, {found}: {name}")
    return wrong
