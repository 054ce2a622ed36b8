"""Prints one row a hostile server: `python -m tests.faults.hostile_table [NAME …]`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.faults import hostile_servers
from tests.faults.hostile_runs import run_against


def main(names: list[str]) -> None:
    print(f"{'server':42} {'s':>6} {'peak MB':>8} {'exit':>4} {'left':>4}  message")
    with tempfile.TemporaryDirectory() as folder:
        for run in run_against(names or hostile_servers.names(), Path(folder)):
            shown = {label: text for label, text in run.lines.items() if label != "peak"}
            message = " | ".join(f"{label}: {text[:160]}" for label, text in shown.items())
            if not shown:
                message = run.output[-300:].encode("unicode_escape").decode()
            row = f"{run.name:42} {run.seconds:6.1f} {run.peak_bytes / 1e6:8.0f} {run.exit_code:4}"
            print(f"{row} {len(run.left_behind):4}  {message}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
