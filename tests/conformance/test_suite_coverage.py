"""The coverage of the official suite in the docs: for each scenario of servers a check, or a reason."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from playhead.check.catalogue import CATALOGUE
from tests.conformance.run_suite import REVISIONS, SuiteMissingError, demanded, environment

PAGE = Path(__file__).parents[2] / "docs" / "check-reference.md"
SECTION = re.search(
    r"^## The official conformance suite$(.+?)^## ", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
)
ROWS = re.findall(r"^\| (`.+?) \| (.+) \|$", SECTION[1] if SECTION else "", re.MULTILINE)
QUOTED = re.compile(r"`([^`]+)`")


def test_the_checks_named_exist_and_every_gap_has_a_reason() -> None:
    assert len(ROWS) > 20
    for scenarios, words in ROWS:
        names = [name for name in QUOTED.findall(words) if re.fullmatch(r"[a-z]+\.[a-z-]+", name)]
        assert set(names) <= CATALOGUE.keys(), scenarios
        assert names or len(words) > 30, scenarios


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_scenario_that_the_suite_demands_of_servers_is_listed_once(revision: str) -> None:
    try:
        env = environment()
    except SuiteMissingError as missing:
        pytest.skip(f"{missing}")
    patterns = [pattern for scenarios, _ in ROWS for pattern in QUOTED.findall(scenarios)]
    names = {name for role, name, is_scored in demanded(revision, env) if role == "server" and is_scored}
    assert len(names) > 20
    for name in names:
        assert len([pattern for pattern in patterns if fnmatch(name, pattern)]) == 1, name
