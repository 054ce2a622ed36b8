"""The hosted workflows run pinned actions and targets of the Makefile. `make workflows` lints them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
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
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    for target in re.findall(r"\bmake ([\w-]+)", path.read_text("utf-8")):
        assert re.search(rf"^{target}:", makefile, re.M), f"make {target}"
