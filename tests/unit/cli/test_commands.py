"""The command tree knows each command's summary before it is imported."""

from __future__ import annotations

import inspect

import pytest

from playhead.cli.app import COMMANDS, load_command


@pytest.mark.parametrize(("typed", "summary"), [(typed, row[1]) for typed, row in COMMANDS.items()])
def test_the_summary_of_a_command_is_the_first_paragraph_of_its_help(typed: str, summary: str) -> None:
    paragraph, _, _ = inspect.cleandoc(load_command(typed).help).partition("\n\n")
    assert " ".join(paragraph.split()) == summary
