"""The command tree knows each command's summary before it is imported."""

from __future__ import annotations

import inspect

import pytest
import typer

from playhead.cli.app import app, load_command


def summaries(group: typer.Typer) -> dict[str, str | None]:
    found = {command.name or "": command.help for command in group.registered_commands}
    for subgroup in group.registered_groups:
        assert subgroup.typer_instance is not None
        found |= summaries(subgroup.typer_instance)
    return found


@pytest.mark.parametrize(("name", "summary"), summaries(app).items())
def test_the_summary_of_a_command_is_the_first_paragraph_of_its_help(name: str, summary: str) -> None:
    paragraph, _, _ = inspect.cleandoc(load_command(name).help).partition("\n\n")
    assert " ".join(paragraph.split()) == summary


def test_every_command_is_in_the_tree() -> None:
    assert len(summaries(app)) == 15
