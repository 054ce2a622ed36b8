"""Findings: defects in JSON data, with their paths."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One defect: its path, the expected value and the actual one."""

    path: str
    """A JSON path: `$.content[2].name`."""
    expected: str
    got: str
    """A description of the actual value, which does not quote long or binary values."""

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, got {self.got}"


def kind_of(value: object) -> str:
    """Name the JSON type of a value, with its article, for messages."""
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
"""Limits the findings of one result: nobody reads more, and a hostile result has millions."""


class Notes:
    """Collects up to `MAX_FINDINGS` findings. One more reports that others were omitted."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []

    @property
    def full(self) -> bool:
        """True once `add` discards findings. A check can then stop early."""
        return len(self._findings) > MAX_FINDINGS

    def add(self, path: str, *, expected: str, got: str) -> None:
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(Finding(path=path, expected=expected, got=got))
        elif not self.full:
            self._findings.append(
                Finding(
                    path="$", expected=f"at most {MAX_FINDINGS} findings", got="more, which are not listed"
                )
            )

    def all(self) -> list[Finding]:
        return list(self._findings)


def step(path: str, key: object) -> str:
    """Return `path` with a key or index appended. It quotes a key with special characters, and truncates a
    long one."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    word = str(key)
    if len(word) <= 60 and _PLAIN_KEY.fullmatch(word):
        return f"{path}.{word}"
    return f"{path}[{word[:60]!a}{'…' if len(word) > 60 else ''}]"


class Absent(enum.Enum):
    """Sentinel for a missing value, distinct from null: `structuredContent` may be null since 2026-07-28."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
