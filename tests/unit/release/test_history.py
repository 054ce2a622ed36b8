"""The history of the benchmarks reports a ratio that got worse, and nothing else."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benches.board import Board, Comparison
from benches.history import newest, record


def result(directory: Path, name: str, ratio: float, *, at_least: float | None = None) -> Path:
    """A result file of one comparison with this ratio."""
    comparison = Comparison(
        name="save 32 MiB",
        unit="s",
        baseline_name="the SDK",
        ours=[ratio] * 3,
        baseline=[1.0] * 3,
        at_least=at_least,
    )
    path = directory / name
    path.write_text(json.dumps({"machine": {}, "results": [asdict(comparison)]}))
    return path


def alerts_of(directory: Path, *ratios: float, at_least: float | None = None) -> list[list[str]]:
    return [
        record(
            result(directory, f"2026-{number}.json", ratio, at_least=at_least), directory / "history.jsonl"
        )
        for number, ratio in enumerate(ratios)
    ]


def test_the_first_run_and_runs_as_before_are_quiet(tmp_path: Path) -> None:
    assert alerts_of(tmp_path, 0.50, 0.50, 0.57, 0.30) == [[], [], [], []]


def test_a_ratio_that_grows_by_more_than_15_percent_is_reported(tmp_path: Path) -> None:
    *_, last = alerts_of(tmp_path, 0.50, 0.52, 0.50, 0.58)
    assert last == ["save 32 MiB / the SDK: 0.580, 16% more than 0.500, the median of 3 earlier runs"]


def test_where_more_is_better_a_ratio_that_falls_is_reported(tmp_path: Path) -> None:
    assert alerts_of(tmp_path, 2.0, 3.0, at_least=0.9) == [[], []]
    *_, last = alerts_of(tmp_path, 1.0, at_least=0.9)
    assert len(last) == 1


def test_one_slow_run_and_old_runs_do_not_move_what_is_usual(tmp_path: Path) -> None:
    *_, last = alerts_of(tmp_path, 0.1, 0.1, 0.1, 0.5, 0.5, 5.0, 0.5, 0.5, 0.55)
    assert last == []


def test_a_new_comparison_is_quiet(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text(json.dumps({"result": "2026.json", "ratios": {"another / one": 1.0}}) + "\n")
    assert record(result(tmp_path, "2026-1.json", 9.0), history) == []


def test_the_newest_full_result_is_taken(tmp_path: Path) -> None:
    board = Board(smoke=True)
    board.write(tmp_path)
    with pytest.raises(SystemExit, match="no result of a full run"):
        newest(tmp_path)
    for name in ("20261101-000000.json", "20261102-000000.json"):
        result(tmp_path, name, 1.0)
    assert newest(tmp_path).name == "20261102-000000.json"
