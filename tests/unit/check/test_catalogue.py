"""The catalogue of checks: each row has a name, a requirement and a source, and each is judged somewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from playhead.check.catalogue import CATALOGUE

PLANTED = ("unit/check", "servers/planted", "conformance")
"""The directories of the tests that plant defects."""
LISTINGS = re.compile(r"(?P<listing>[a-z]+\.(?:list|templates))(?P<check>-[a-z-]+)")


def literals() -> Iterator[str]:
    """Yield every string in the code of the checker, apart from the catalogue itself."""
    for path in Path(str(resources.files("playhead.check"))).rglob("*.py"):
        if path.name != "catalogue.py":
            yield from strings(path)


def strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_row_has_a_name_a_requirement_and_a_source() -> None:
    for name, kind in CATALOGUE.items():
        assert re.fullmatch(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*", name), "subject.what"
        assert kind.title
        assert kind.source.startswith(("https://", "docs/"))


def test_every_row_is_found_in_a_planted_server() -> None:
    """The tests of reports name rows for their texts alone, so they don't count."""
    tests = Path(__file__).parents[2]
    paths = [path for place in PLANTED for path in sorted((tests / place).rglob("*.py"))]
    named = {
        text
        for path in paths
        if not re.match(r"report_kit|test_(?:report|check_lines|catalogue)", path.name)
        for text in strings(path)
    }
    assert CATALOGUE.keys() - named == set()


def test_every_row_is_judged_somewhere_and_every_judgement_has_a_row() -> None:
    found = set(literals())
    subjects = "|".join({name.partition(".")[0] for name in CATALOGUE})
    named = {text for text in found if re.fullmatch(rf"(?:{subjects})\.[a-z-]+", text)}
    whole = {name for name in CATALOGUE if LISTINGS.fullmatch(name) is None}
    listings = {(match["listing"], match["check"]) for match in map(LISTINGS.fullmatch, CATALOGUE) if match}
    assert whole - found == set()
    assert {text for pair in listings for text in pair} - found == set()
    assert named - CATALOGUE.keys() - {listing for listing, _ in listings} == set()
