"""Run the programs, commands and examples of the documentation from the wheel.

    python -m tests.wheels.try_wheel [PAGE ...]        (make try-wheel)

Each runs in an empty directory, in an environment with what its page tells to install and nothing else.
Prints a row per page and environment, why something is not run, and what failed. Status 1 if anything did.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path

import trio

from tests.snippets import EXAMPLES, PAGES, blocks
from tests.wheels.environments import Environment, Environments
from tests.wheels.example_peers import PEERS

SERVES = re.compile(r"^playhead serve (audio|template)\b(?!.*--transport stdio)(?!.*--dial)(?: &$)?")
DEFAULT_PORTS = {"audio": 3001, "template": 8030}


@dataclass(slots=True)
class Row:
    """The counts of a page in one environment."""

    page: str
    installs: str
    programs: int = 0
    commands: int = 0
    not_run: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def cells(self) -> tuple[str, ...]:
        result = f"{len(self.failures)} failed" if self.failures else "ok"
        counts = (self.programs, self.commands, len(self.not_run))
        return (self.page, self.installs, *map(str, counts), result if any(counts[:2]) else "not run")


def try_page(path: Path, environments: Environments, directory: Path) -> list[Row]:
    """Run what a page has, block by block; `directory` gets an empty directory for each."""
    rows = []
    found = sorted(blocks(path), key=lambda block: sorted(block.installs))
    for installs, same in groupby(found, key=lambda block: block.installs):
        row = Row(path.name, " ".join(sorted(installs)))
        rows.append(row)
        for block in same:
            if block.not_run is not None:
                row.not_run.append(f"{block}: {block.not_run}")
                continue
            environment = environments.environment(installs).at(directory / f"{path.stem}-{block.line}")
            row.programs += bool(block.code)
            row.commands += len(block.commands)
            try:
                if block.page in PEERS:
                    PEERS[block.page](environment, path)
                elif block.code:
                    environment.finish(environment.python, "-I", "-W", "error", "-c", block.code)
                else:
                    run_commands(block.commands, environment)
            except (AssertionError, subprocess.TimeoutExpired, trio.TooSlowError) as error:
                row.failures.append(f"{block}: {error}")
    return rows


def run_commands(commands: Sequence[str], environment: Environment) -> None:
    """Run the lines of a block. A server runs until the block ends, on a free port in place of its own."""
    ports: dict[str, str] = {}
    with ExitStack() as servers:
        for line in commands:
            command = line.removesuffix(" &")
            if serves := SERVES.match(command):
                if "--port" not in command:
                    command += f" --port {DEFAULT_PORTS[serves[1]]}"
                port = command.split()[command.split().index("--port") + 1]
                ports[port] = free_port()
            for port, free in ports.items():
                command = re.sub(rf"\b{port}\b", free, command)
            if command.startswith("playhead play ") and "--sink" not in command:
                command += " --sink null"  # as the README says, for machines without an audio device
            if serves:
                servers.enter_context(environment.serving(command))
            else:
                environment.finish("sh", "-c", command)


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown, then what is not run, then what failed."""
    head = ("page", "pip install", "programs", "commands", "not run", "result")
    lines = [head, tuple("-" * len(name) for name in head), *(row.cells for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["| " + " | ".join(map(str.ljust, cells, widths)) + " |" for cells in lines]
    not_run = [f"not run: {reason}" for row in rows for reason in row.not_run]
    return "\n".join([*text, "", *not_run, *(failure for row in rows for failure in row.failures)])


def main(names: Sequence[str]) -> int:
    pages = [path for path in (*PAGES, *EXAMPLES) if not names or path.name in names]
    with tempfile.TemporaryDirectory(prefix="playhead-wheel-") as name, ThreadPoolExecutor(2) as threads:
        directory = Path(name)
        one: Callable[[Path], list[Row]] = partial(
            try_page, environments=Environments(directory), directory=directory
        )
        rows = [row for rows in threads.map(one, pages) for row in rows]
    print(table(rows))
    return 1 if any(row.failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
