"""Everything that a person reads is plain English: phrases that read as translated stay out.

The list is a floor and not a style guide. Each entry has the words to use in place of what it finds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PLACES = (
    *("python", "rust", "tests", "benches", "docs", "examples"),
    *("README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile"),
)
SUFFIXES = {".py", ".pyi", ".rs", ".md"}
FEWEST_FILES = 300

ANYWHERE = {
    r", came ": "got …, arrived",
    r" a text\b(?! (?:frame|file|block|content|message|stream))": "a string, text",
    r" that is none\b": "is not a valid …",
    r"nobody here wrote": "third-party, independent",
    r"where it is there|where there is one\b": "if present, if any",
    r"\btold of\b|\bword of\b": "reported, notified",
    r"the way of the\b": "data flow, path",
    r"an end in good order": "graceful shutdown",
    r"\b(?:has|have|had) come\b": "got, arrived, was received",
    r"what is plain of it": "the characters that are safe",
    r"left in a hurry": "cancelled, aborted",
}
IN_MESSAGES = {
    r" is no (?!longer|more|other|better|need|way|room)": "is not a …",
}
OPENING = re.compile(r"(?:What|How|Whether|Which|Who|Where)\b")
"""A docstring names the thing or the action."""


def files() -> list[Path]:
    found = [
        path
        for place in PLACES
        for path in sorted(
            (REPOSITORY / place).rglob("*") if (REPOSITORY / place).is_dir() else [REPOSITORY / place]
        )
        if (path.suffix in SUFFIXES or path.name == "Makefile") and path != Path(__file__)
    ]
    assert len(found) > FEWEST_FILES, "these are not all files"
    return found


def strings(tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """Each string and its line, and whether it stands alone: as a docstring, of an attribute too."""
    alone: set[ast.expr] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            alone.add(node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value, node in alone


def rust_docstrings(source: str) -> Iterator[tuple[int, str]]:
    before = ""
    for number, line in enumerate(source.splitlines(), 1):
        text = re.match(r"\s*//[/!] ?(.*)", line)
        if text is not None and not before:
            yield number, text[1]
        before = line.strip() if text is not None else ""


def findings(name: str, source: str) -> Iterator[str]:
    """Each phrase to replace in one file: the place, the phrase, and the words to use."""
    patterns = {pattern: use for pattern, use in ANYWHERE.items() if re.search(pattern, source)}
    for number, line in enumerate(source.splitlines() if patterns else (), 1):
        for pattern, use in patterns.items():
            if found := re.search(pattern, line):
                yield f"{name}:{number}: {found[0].strip()!r}: use {use!r}"
    opened: list[tuple[int, str]] = []
    if name.endswith((".py", ".pyi")):
        for number, text, stands_alone in strings(ast.parse(source)):
            if stands_alone:
                opened.append((number, text))
            for pattern, use in IN_MESSAGES.items():
                if found := re.search(pattern, text):
                    yield f"{name}:{number}: {found[0].strip()!r}: use {use!r}"
    elif name.endswith(".rs"):
        opened = list(rust_docstrings(source))
    for number, text in opened:
        if found := OPENING.match(text.strip()):
            yield f"{name}:{number}: a docstring that opens with {found[0]!r}: name the thing or the action"


def test_no_phrase_reads_as_translated() -> None:
    found = [
        finding
        for path in files()
        for finding in findings(str(path.relative_to(REPOSITORY)), path.read_text("utf-8"))
    ]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    ("name", "source", "phrase"),
    [
        ("a.py", '"""Whether it is open."""\n', "'Whether'"),
        ("a.py", 'raise E("expected a string, came a list")\n', "', came'"),
        ("a.py", 'raise E("this port is no number")\n', "'is no'"),
        ("a.rs", "/// How far it is.\nfn far() {}\n", "'How'"),
        ("a.md", "It is a text of 3 lines.\n", "'a text'"),
    ],
)
def test_a_phrase_is_named_with_its_place(name: str, source: str, phrase: str) -> None:
    (finding,) = findings(name, source)
    assert finding.startswith(f"{name}:1: ")
    assert phrase in finding


@pytest.mark.parametrize("line", ["Send a text frame.", "This is no longer true.", "It has a text stream."])
def test_ordinary_english_passes(line: str) -> None:
    assert list(findings("a.py", f'"""{line}"""\n')) == []
