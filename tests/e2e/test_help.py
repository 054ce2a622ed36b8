"""The help of every command, as a terminal of 80 columns shows it. `--update-golden` writes it anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.command import playhead

GOLDEN = Path(__file__).parents[1] / "golden"
COMMANDS = [
    "",
    "demo",
    "tools",
    "call",
    "chat",
    "ls",
    "discover",
    "play",
    "read",
    "fleet",
    "explain",
    "check",
    "outputs",
    "trust",
    "serve",
    "serve audio",
]
COMMANDS += ["serve template", "serve proxy", "schema", "schema validate", "schema show"]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command or "playhead")
def test_help_is_golden_and_80_columns_wide(command: str, request: pytest.FixtureRequest) -> None:
    done = playhead(*command.split(), "--help")
    assert done.code == 0
    text = "\n".join(line.rstrip() for line in done.stdout.decode().splitlines()).strip() + "\n"
    golden = GOLDEN / f"help{command and '-' + command.replace(' ', '-')}.txt"
    if request.config.getoption("--update-golden"):
        golden.write_text(text)
    assert text == golden.read_text(), "if this is meant: pytest --update-golden tests/e2e/test_help.py"
    assert max(len(line) for line in text.splitlines()) <= 80
    assert not any(line.endswith("...") for line in text.partition("Commands:")[2].splitlines()), (
        "cut summaries"
    )
