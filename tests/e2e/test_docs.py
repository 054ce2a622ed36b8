"""What the README and the docs say is true: their programs run, their tables are the code's own values."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from playhead.limits import GIB, KIB, MIB, Limits

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def programs() -> list[tuple[str, str]]:
    fenced = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
    return [
        (f"{page.name}-{number}", code)
        for page in PAGES
        for number, code in enumerate(fenced.findall(page.read_text("utf-8")))
    ]


@pytest.mark.parametrize("code", [code for _, code in programs()], ids=[name for name, _ in programs()])
def test_a_program_of_the_documentation_runs(code: str, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_documentation_has_programs_to_run() -> None:
    assert programs()


def shown(name: str, value: float) -> str:
    """A limit the way the table writes it."""
    if name.endswith("_seconds"):
        return f"{value:g} s"
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if name.endswith("_bytes") and value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:,}"


def test_the_table_of_limits_is_the_class() -> None:
    page = (REPOSITORY / "docs" / "safety.md").read_text("utf-8")
    table = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", page, re.M))
    limits = Limits()
    assert table == {field.name: shown(field.name, getattr(limits, field.name)) for field in fields(Limits)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
