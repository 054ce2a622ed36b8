"""docs/agent.md: its tables are the code's own values. Its first program, and the one of docs/assistant.md,
print what the page says."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from playhead.agent.budgets import Budgets
from playhead.agent.events import Event
from tests.e2e.command import program

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "agent.md").read_text("utf-8")


def first_program(page: str) -> list[str]:
    """The first program of a page and its output, which follows it."""
    text = (DOCS / page).read_text("utf-8")
    return re.findall(r"^```(?:python)?\n(.*?)^```", text, re.M | re.S)[:2]


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


def test_the_voice_assistants_turn_has_30_lines() -> None:
    code, _ = first_program("agent.md")
    assert len([line for line in code.splitlines() if line]) <= 30


@pytest.mark.parametrize("page", ["agent.md", "assistant.md"])
def test_an_assistant_prints_what_its_page_says(page: str, tmp_path: Path) -> None:
    code, printed = first_program(page)
    assert program(code, tmp_path) == printed
