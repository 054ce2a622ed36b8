"""Hosted workflows run pinned actions and targets of the Makefile. `make extra NAME=workflows` lints them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
MAKEFILE = (REPOSITORY / "Makefile").read_text("utf-8")
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


def test_there_are_workflows() -> None:
    assert [path.stem for path in WORKFLOWS] == ["benchmarks", "ci", "release", "wheels"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_by_commit_and_names_its_version(path: Path) -> None:
    used = re.findall(r"uses: (.+)", path.read_text("utf-8"))
    assert used
    for action in used:
        assert re.fullmatch(r"\./\.github/workflows/\w+\.yml|[\w./-]+@[0-9a-f]{40} # v[\d.]+", action)


def test_one_commit_of_each_action_is_used() -> None:
    used = {line for path in WORKFLOWS for line in re.findall(r"uses: (\S+@.+)", path.read_text("utf-8"))}
    actions = [line.partition("@")[0] for line in used]
    assert len(actions) == len(set(actions)) > 5


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_target_that_a_workflow_makes_exists(path: Path) -> None:
    for extra, target in re.findall(r"\bmake (extra NAME=)?([\w-]+)", path.read_text("utf-8")):
        assert target in extras() if extra else re.search(rf"^{target}:", MAKEFILE, re.M), f"make {target}"


def extras() -> list[str]:
    line = next(line for line in MAKEFILE.splitlines() if line.startswith("EXTRAS := "))
    return line.split()[2:]


def test_contributing_lists_the_everyday_targets_and_every_extra() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    everyday, extra = re.findall(r"(?<=^\|---\|---\|\n)(?:\| `.+\n)+", text, re.M)[:2]
    listed = re.findall(r"^\| `make ([\w-]+)`", everyday, re.M)
    assert listed == re.findall(r"^([\w-]+):.* ## ", MAKEFILE, re.M)
    assert re.findall(r"^\| `([\w-]+)`", extra, re.M) == extras()
