"""Compare a run with earlier runs: `python -m benches.history [RESULT.json]`.

Takes the newest full result in bench-results/ by default, and appends a line with its ratios to
bench-results/history.jsonl. The exit status is 1 if a ratio is 15 % worse than the median of the last five
runs. One slow run hardly moves that median, and ratios of interleaved runs vary by less.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benches.board import RESULTS, Comparison

WORSE_BY = 0.15
RUNS_COMPARED = 5

Ratios = dict[str, float]
"""Medians by the name of the comparison. Lower is better, whichever way its bound points."""


def ratios_of(results: Sequence[dict[str, Any]]) -> Ratios:
    """Return the ratio of each comparison, turned over if more is better."""
    ratios: Ratios = {}
    for result in results:
        comparison = Comparison(**result)
        more_is_better = comparison.at_least is not None and comparison.at_most is None
        ratios[f"{comparison.name} / {comparison.baseline_name}"] = (
            1 / comparison.ratio if more_is_better else comparison.ratio
        )
    return ratios


def worse(now: Ratios, before: Sequence[Ratios]) -> list[str]:
    """Describe each ratio that is worse than the median of the last runs by more than `WORSE_BY`."""
    alerts = []
    for name, ratio in now.items():
        known = [run[name] for run in before[-RUNS_COMPARED:] if name in run]
        if known and ratio > (usual := statistics.median(known)) * (1 + WORSE_BY):
            alerts.append(
                f"{name}: {ratio:.3f}, {ratio / usual - 1:.0%} more than {usual:.3f},"
                f" the median of {len(known)} earlier runs"
            )
    return alerts


def newest(directory: Path) -> Path:
    """Return the newest result of a full run, by its name, which is its time."""
    full = sorted(path for path in directory.glob("2*.json") if not path.stem.endswith("-smoke"))
    if not full:
        raise SystemExit(f"no result of a full run in {directory}: run python -m benches.run first")
    return full[-1]


def record(result: Path, history: Path) -> list[str]:
    """Append a result to the history, and return what is worse than before."""
    now = ratios_of(json.loads(result.read_text("utf-8"))["results"])
    lines = history.read_text("utf-8").splitlines() if history.exists() else []
    alerts = worse(now, [json.loads(line)["ratios"] for line in lines])
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"result": result.name, "ratios": now}) + "\n")
    return alerts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benches.history", description=__doc__)
    parser.add_argument("result", nargs="?", type=Path, help="a file that benches.run wrote")
    parser.add_argument("--history", type=Path, default=RESULTS / "history.jsonl")
    options = parser.parse_args()
    alerts = record(options.result or newest(RESULTS), options.history)
    for alert in alerts:
        print(alert)
    return 1 if alerts else 0


if __name__ == "__main__":
    raise SystemExit(main())
