"""What is wrong with a piece of JSON, and where."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_WORD: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be."""

    path: str
    """A JSON path: `$.content[2].name`."""
    expected: str
    came: str
    """What came in its place, described; a long or binary value is not quoted."""

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, came {self.came}"


def kind_of(value: object) -> str:
    """The JSON name of a value's type, as messages say it."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return type(value).__name__


MAX_FINDINGS: Final = 100
"""Of one result: who has a hundred things to mend reads no further, and a hostile result has millions."""


class Notes:
    """Findings while they are collected; their number is bounded, and the last one says so."""

    def __init__(self) -> None:
        self._found: list[Finding] = []

    @property
    def full(self) -> bool:
        """Nothing more is taken: whoever walks through a result can stop."""
        return len(self._found) > MAX_FINDINGS

    def add(self, path: str, *, expected: str, came: str) -> None:
        if len(self._found) < MAX_FINDINGS:
            self._found.append(Finding(path=path, expected=expected, came=came))
        elif not self.full:
            self._found.append(
                Finding(
                    path="$", expected=f"at most {MAX_FINDINGS} findings", came="more, which are not listed"
                )
            )

    def all(self) -> list[Finding]:
        return list(self._found)


def step(path: str, key: object) -> str:
    """`path` and one more key or index. A key that is no plain word is quoted, and cut where it is long."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    word = str(key)
    if len(word) <= 60 and _WORD.fullmatch(word):
        return f"{path}.{word}"
    return f"{path}[{word[:60]!a}{'…' if len(word) > 60 else ''}]"
