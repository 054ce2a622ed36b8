"""What is wrong with a piece of JSON, and where."""

from __future__ import annotations

from dataclasses import dataclass


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
