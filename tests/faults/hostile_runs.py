"""Runs clients against hostile servers, each in a process of its own, and measures them.

`python -m tests.faults.hostile_runs FOLDER NAME …` imports the client once and forks it for each row.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import trio

import playhead
from tests.faults.hostile_client import peak_bytes, until_interrupted

ROOT = Path(__file__).parents[2]
AT_ONCE = 6
"""Half of a row is waiting."""
HANG_SECONDS = 90
"""No row may take longer. A page's deadline is 30 s, and two follow each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The run of a client. `lines` maps its labels (it, beside, after, connect) to their outcomes."""

    name: str
    seconds: float
    peak_bytes: int
    exit_code: int
    """Negative: the signal that ended it; SIGALRM if it hung."""
    lines: dict[str, str]
    output: str
    left_behind: list[int]


def run_against(names: Sequence[str], folder: Path) -> Iterator[Run]:
    """Run `hostile_client` against each of `names`, and yield the runs in the order of their ends."""
    command = [sys.executable, "-m", "tests.faults.hostile_runs", str(folder), *names]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield Run(**json.loads(line))
    assert process.returncode == 0


def main(folder: Path, names: Sequence[str]) -> None:
    _ = playhead.connect  # imported before the first fork
    unstarted, running = list(names), dict[int, tuple[str, float]]()
    while unstarted or running:
        while unstarted and len(running) < AT_ONCE:
            name = unstarted.pop(0)
            running[_start(name, folder)] = (name, time.perf_counter())
        pid, status = os.wait()
        name, started = running.pop(pid)
        seconds = time.perf_counter() - started
        output = (folder / f"{name}.output").read_text("utf-8", "surrogateescape")
        lines = dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)
        pids = (folder / f"{name}.pids").read_text("ascii").split()
        run = Run(
            name=name,
            seconds=seconds,
            peak_bytes=int(lines.get("peak", "0")),
            exit_code=os.waitstatus_to_exitcode(status),
            lines=lines,
            output=output,
            left_behind=[left for server in pids for left in left_of(int(server))],
        )
        print(json.dumps(asdict(run)), flush=True)


def _start(name: str, folder: Path) -> int:
    """Fork a client of the server `name`, and return its pid."""
    pids = folder / f"{name}.pids"
    pids.write_text("", encoding="ascii")
    if pid := os.fork():
        return pid
    with (folder / f"{name}.output").open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    signal.alarm(HANG_SECONDS)
    try:
        exit_code = trio.run(until_interrupted, name, pids)
        gc.collect()
        print(f"peak: {peak_bytes()}", flush=True)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
        exit_code = 70
    os._exit(exit_code)


def left_of(pid: int) -> tuple[int, ...]:
    """Return the processes of a server that still run: itself, its group, its watcher. (Neither a zombie nor
    one that is just being reaped does.)"""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            words = status.with_name("cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while it was looked at
        own, state, group = int(status.parent.name), fields[0], int(fields[2])
        is_watcher = b"playhead-watcher" in words and str(pid).encode() in words
        if state not in "ZX" and (pid in (own, group) or is_watcher):
            found.append(own)
    return tuple(found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
