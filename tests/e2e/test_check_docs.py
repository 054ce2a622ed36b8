"""docs/check.md and its reference are what the checker does."""

from __future__ import annotations

import re
import subprocess
import tomllib
from dataclasses import fields
from pathlib import Path

import yaml

from playhead.check.catalogue import CATALOGUE
from playhead.check.expectations import ExpectedCall, read_expectations

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "check-reference.md"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_sources_of_checks_of_ours_are_sections_of_pages() -> None:
    for kind in CATALOGUE.values():
        page, _, anchor = kind.source.partition("#")
        if not kind.source.startswith("https://"):
            assert page.startswith("docs/")
            assert not anchor or anchor in anchors(DOCS.parent / page), kind.source


def test_the_keys_of_an_expected_call_are_on_the_page() -> None:
    section = REFERENCE.read_text("utf-8").split("## Expectations")[1].split("## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.M) == [field.name for field in fields(ExpectedCall)]


def test_the_expectations_file_of_the_page_is_one() -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", (DOCS / "check.md").read_text("utf-8"), re.M | re.S)
    calls = read_expectations(tomllib.loads(example), where="docs/check.md").calls
    assert [call.is_error for call in calls] == [False, True]
    assert re.search(calls[0].patterns[0], "= 14.")


def test_the_workflow_of_the_docs_is_one_whose_commands_a_shell_reads() -> None:
    """The steps that GitHub requires, in commands and options that exist."""
    workflow = yaml.safe_load((DOCS / "examples" / "github-actions.yml").read_text("utf-8"))
    assert set(workflow[True]) == {"push", "pull_request"}, "YAML 1.1 reads `on` as true"
    (job,) = workflow["jobs"].values()
    assert isinstance(job["runs-on"], str)
    for step in job["steps"]:
        assert len(step.keys() & {"run", "uses"}) == 1, step
        assert set(step) <= {"name", "if", "run", "uses", "with"}, step
        assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step.get("uses", f"actions/checkout@{'0' * 40}"))
        subprocess.run(["bash", "-n"], input=step.get("run", ""), text=True, check=True)
    (command,) = [step["run"] for step in job["steps"] if step.get("run", "").startswith("playhead check")]
    known = (DOCS.parent / "tests" / "golden" / "help-check.txt").read_text("utf-8")
    options = set(re.findall(r"--[\w-]+", command))
    assert {"--baseline", "--report"} <= options
    assert {option for option in options if f"  {option} " not in known} == set()
