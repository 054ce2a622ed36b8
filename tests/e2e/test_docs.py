"""The README and the docs are true: programs and commands run, tables match the code."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer
from typer.core import TyperGroup

from playhead.cli.app import app
from playhead.limits import GIB, KIB, MIB, Limits
from tests.e2e.command import program
from tests.snippets import DOCS, PAGES, REPOSITORY, blocks, programs


@pytest.mark.parametrize("code", [code for name, code in programs() if name.startswith("tutorial")])
def test_a_program_of_the_first_steps_runs_in_the_checkout(code: str, tmp_path: Path) -> None:
    """All the others run from the wheel: tests/wheels."""
    program(code, tmp_path)


def commands(page: Path) -> list[str]:
    """The `playhead` commands of a page, without what they are piped from."""
    found = (re.search(r"(?:^|\| )(playhead .*)", line) for block in blocks(page) for line in block.commands)
    return [each[1].removesuffix(" &") for each in found if each]


README, TUTORIAL = REPOSITORY / "README.md", DOCS / "tutorial.md"


def test_the_readme_and_the_tutorial_have_commands() -> None:
    in_a_clone, installed = ["play", "check"], ["demo", "play", "check"]
    assert [command.split()[1] for command in commands(README)] == in_a_clone + installed
    assert [command.split()[1] for command in commands(TUTORIAL)] == ["demo", "tools", "call"]


@pytest.mark.parametrize("command", [*dict.fromkeys(command for page in PAGES for command in commands(page))])
def test_a_command_of_any_page_has_existing_options(command: str) -> None:
    """Also of those that are not run, as they need servers, models or devices of the reader."""
    words = shlex.split(command)[1:]
    words = words[: next((at for at, word in enumerate(words) if word in ("|", ">")), len(words))]
    parse(typer.main.get_command(app), words)


def parse(command: Any, words: list[str]) -> None:
    """Raise an error of click's if `command` does not take `words`."""
    context = command.make_context("playhead", words)
    if isinstance(command, TyperGroup):
        _, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        parse(found, rest)


def test_an_option_that_does_not_exist_is_found() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(typer.main.get_command(app), ["serve", "audio", "--transpot", "ws"])


@pytest.mark.slow("mypy reads the whole package")
def test_the_programs_of_the_documentation_pass_mypy_strict(tmp_path: Path) -> None:
    for number, (name, code) in enumerate(programs()):
        module = re.sub(r"\W", "_", name.lower())
        (tmp_path / f"program_{number}_{module}.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_the_recording_is_a_small_picture_that_loads_and_runs_nothing() -> None:
    path = DOCS / "recording.svg"
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(path).iter()}
    assert tags == {"svg", "title", "style", "defs", "rect", "circle", "g", "use", "text"}
    assert path.stat().st_size < 200_000
    text = path.read_text("utf-8")
    assert "playhead demo" in text
    assert "underruns" in text
    assert set(re.findall(r'(?:href="|url\(|@import)\W*(\w*)', text)) <= set(re.findall(r'id="(r\d+)"', text))


def test_the_index_lists_every_page() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    pages = {page.name for page in PAGES if page.parent.name == "docs"} - {"README.md"}
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", index)) == pages


def test_the_documentation_has_pages_and_programs_to_run() -> None:
    assert len(PAGES) > 10
    assert len(programs()) > 20


def test_the_own_sink_has_20_lines() -> None:
    """That it passes the sinks' laws is its program."""
    (code,) = (code for name, code in programs() if name.startswith("own-sink"))
    sink, _, _ = code.partition("\n\n\nasync def main")
    lines = sink[sink.index("class ") :].splitlines()
    assert len([line for line in lines if line]) <= 20


def test_the_script_for_a_plain_thread_has_eight_lines() -> None:
    (code,) = (code for name, code in programs() if name.startswith("asyncio") and "blocking_portal" in code)
    assert len([line for line in code.splitlines() if line]) == 8


def shown(name: str, value: float) -> str:
    """A limit the way the table writes it."""
    if name.endswith("_seconds"):
        return f"{value:g} s"
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if name.endswith("_bytes") and value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:,}"


def test_the_table_of_limits_is_the_class() -> None:
    page = (DOCS / "safety.md").read_text("utf-8")
    table = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", page, re.M))
    limits = Limits()
    assert table == {field.name: shown(field.name, getattr(limits, field.name)) for field in fields(Limits)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
