"""Runs a client against a hostile server in a process of its own, and measures it."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HANG_SECONDS = 90.0
"""No run may take longer. A page's deadline is 30 s, and two follow each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The run of a client. `lines` maps its labels (it, beside, after, connect) to their outcomes."""

    name: str
    seconds: float
    peak_bytes: int
    exit_code: int
    lines: dict[str, str]
    output: str
    left_behind: tuple[int, ...]


def run_against(name: str, folder: Path) -> Run:
    """Run `hostile_client` against `hostile_servers.NAME`.

    Raises:
        subprocess.TimeoutExpired: it hung.
    """
    pids = folder / f"{name}.pids"
    pids.write_text("", encoding="ascii")
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.hostile_client", name, str(pids)],
        cwd=ROOT,
        capture_output=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    seconds = time.perf_counter() - started
    output = (done.stdout + done.stderr).decode("utf-8", "surrogateescape")
    lines = dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)
    return Run(
        name=name,
        seconds=seconds,
        peak_bytes=int(lines.get("peak", "0")),
        exit_code=done.returncode,
        lines=lines,
        output=output,
        left_behind=tuple(
            left for pid in pids.read_text(encoding="ascii").split() for left in left_of(int(pid))
        ),
    )


def left_of(pid: int) -> tuple[int, ...]:
    """Return the processes of a server that still run: itself, its group, its watcher. (A zombie does not
    run.)"""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            words = status.with_name("cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while it was looked at
        own, state, group = int(status.parent.name), fields[0], int(fields[2])
        is_watcher = b"playhead-watcher" in words and str(pid).encode() in words
        if state != "Z" and (pid in (own, group) or is_watcher):
            found.append(own)
    return tuple(found)
