"""One set of arguments, and in words what is particular about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["valid", "boundary", "random", "invalid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Arguments to call a tool with, held against its inputSchema."""

    title: str
    """What is particular: "the least", "without `query`", "`max_results` 0, below its minimum 1"."""
    arguments: Any
    """An object, but in an invalid case."""
    kind: Kind
    certain: bool = False
    """Of an invalid case: whether accepting it is a defect beyond dispute. A required property is missing, or
    one is of the wrong JSON type; a length or range is often a recommendation that nobody enforces."""


def named(path: tuple[str | int, ...]) -> str:
    """A place in the arguments as titles say it: `` `filter.limit` ``."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return f"`{text[:80]}`"


def counted(number: int, what: str) -> str:
    """`1 item`, `2,000 characters`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def brief(value: Any) -> str:
    """A value in a title: short, whatever it is."""
    match value:
        case str() if len(value) > 30:
            return f"a string of {len(value):,} characters"
        case str():
            return ascii(value) if any(ord(it) < 32 for it in value) else f'"{value}"'
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case int() | float():
            return str(value) if abs(value) < 10**20 else "a very large number"
        case list():
            return f"an array of {len(value)}"
        case dict():
            return "an object"
    return type(value).__name__
