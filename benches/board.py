"""Reports of the benchmarks: ratios of interleaved measurements, one table, and the raw numbers as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parents[1] / "bench-results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`ours` and `baseline` were measured in turns; element i of both belongs to round i.

    `at_most` or `at_least` bound the median of the rounds' ratios; without either it is only reported.
    """

    name: str
    unit: str
    baseline_name: str
    ours: Sequence[float]
    baseline: Sequence[float]
    at_most: float | None = None
    at_least: float | None = None
    notes: dict[str, object] = field(default_factory=dict)

    @property
    def ratios(self) -> list[float]:
        return [mine / theirs for mine, theirs in zip(self.ours, self.baseline, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def is_met(self) -> bool:
        """True if the median ratio is within its bound."""
        return (self.at_most is None or self.ratio <= self.at_most) and (
            self.at_least is None or self.ratio >= self.at_least
        )

    @property
    def bound(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:.3g}"
        return f">= {self.at_least:.3g}" if self.at_least is not None else ""


@dataclass(slots=True)
class Board:
    """Collects comparisons. In a smoke run the sizes are too small for the bounds to mean anything."""

    smoke: bool
    rounds_wanted: int | None = None
    comparisons: list[Comparison] = field(default_factory=list)

    def rounds(self, usual: int) -> int:
        """Return the number of rounds: one in a smoke run, else the requested number, else `usual`."""
        return 1 if self.smoke else self.rounds_wanted or usual

    def add(self, comparison: Comparison) -> None:
        """Write it down. A bound that is not kept stops nothing: the run fails once all is measured."""
        self.comparisons.append(comparison)
        print(f"{comparison.name}: {comparison.ratio:.3f} {comparison.bound}")

    @property
    def is_met(self) -> bool:
        return self.smoke or all(comparison.is_met for comparison in self.comparisons)

    def table(self) -> Table:
        table = Table(title="smoke run: bounds are shown, not held" if self.smoke else None)
        table.add_column("benchmark", no_wrap=True)
        table.add_column("unit")
        table.add_column("baseline", no_wrap=True)
        for heading in ("ours", "base", "ratio", "min..max", "bound"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("ok")
        for row in self.comparisons:
            table.add_row(
                row.name,
                row.unit,
                row.baseline_name,
                f"{statistics.median(row.ours):.4g}",
                f"{statistics.median(row.baseline):.4g}",
                f"{row.ratio:.3f}",
                f"{min(row.ratios):.3f}..{max(row.ratios):.3f}",
                row.bound,
                "" if not row.bound else "yes" if row.is_met else "NO",
            )
        return table

    def print(self) -> None:
        Console(width=150, file=sys.stdout).print(self.table())

    def write(self, folder: Path = RESULTS) -> Path:
        """Raw numbers and the machine, in a file named for the time."""
        folder.mkdir(exist_ok=True)
        path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}{'-smoke' if self.smoke else ''}.json"
        path.write_text(
            json.dumps({"machine": machine(), "results": [asdict(one) for one in self.comparisons]})
        )
        return path


def machine() -> dict[str, object]:
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name")),
        platform.machine(),
    )
    return {
        "cpu": cpu,
        "cpus": os.cpu_count(),
        "system": platform.platform(),
        "python": sys.version.split()[0],
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
