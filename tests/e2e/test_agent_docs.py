"""docs/agent.md: its tables are the code's own values, and its first program is as long as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import get_args

from playhead.agent.budgets import Budgets
from playhead.agent.events import Event
from tests.e2e.command import environment

PAGE = (Path(__file__).parents[2] / "docs" / "agent.md").read_text("utf-8")


def test_the_table_of_events_is_the_union() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", PAGE, re.M))
    assert table == {kind.type: kind.__name__ for kind in get_args(Event)}


def test_the_table_of_budgets_is_the_class() -> None:
    budgets = Budgets()
    table = dict(re.findall(r"^\| `(max_\w+)` \| (\d+) \|", PAGE, re.M))
    assert {name: int(value) for name, value in table.items()} == {
        field.name: getattr(budgets, field.name) for field in fields(Budgets)
    }


def test_the_table_of_models_names_what_is_there() -> None:
    rows = re.findall(r"\| `(\w+)(?:\(model\))?` \| `(playhead\.agent\.[\w.]+)` \|", PAGE)
    assert len(rows) == 6
    for name, module in rows:
        assert hasattr(import_module(module), name)


def test_the_voice_assistants_turn_has_30_lines_and_prints_what_the_page_says(tmp_path: Path) -> None:
    program, printed = re.findall(r"^```(?:python)?\n(.*?)^```", PAGE, re.M | re.S)[:2]
    assert len([line for line in program.splitlines() if line]) <= 30
    path = f"{Path(sys.executable).parent}:{environment()['PATH']}"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env=environment() | {"PATH": path, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed
