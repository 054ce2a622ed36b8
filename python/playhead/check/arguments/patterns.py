"""Generate strings that match a regular expression."""

from __future__ import annotations

import random
import re
import warnings
from typing import Any, Final

from playhead.content.schema_shapes import NoValueError

MAX_STRING: Final = 10_000
"""Limits generated strings. The check `server.big-request` sends longer ones."""

_MAX_REPEATS: Final = 1000
_PRINTABLE: Final = [chr(code) for code in range(0x20, 0x7F)]
_CATEGORIES: Final = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_WORD": "abcXYZ019_",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_DIGIT": "abcXYZ_-",
    "CATEGORY_NOT_WORD": " -.,",
    "CATEGORY_NOT_SPACE": "abcXYZ019",
}


def of_pattern(pattern: str, *, draw: random.Random | None = None, least: int = 0) -> str:
    """Generate a string that `pattern` probably matches: the shortest, or a random one.

    The caller validates the string, because look-arounds and back-references are ignored. `least` is the
    wanted length, which the string has if repeats can reach it. `NoValueError` is raised for a pattern that
    Python can't parse, or that needs too long a string. The pattern is only parsed, with `re._parser` (no
    public module parses patterns). The validator alone runs patterns, with a timeout.
    """
    if len(pattern) > 2000:
        raise NoValueError("a pattern of more than 2,000 characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns about patterns that other languages accept
            parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
        written = _Writer(draw, repeats=0).text(parsed)
        if len(written) < least:
            written = _Writer(draw, repeats=least - len(written)).text(parsed)
    except (re.error, RecursionError, OverflowError) as error:
        raise NoValueError(f"the pattern {pattern[:60]!r} can't be parsed by Python: {error}") from None
    return written


class _Writer:
    """Writes one string for a parsed pattern, with at most `repeats` repeats beyond the required ones."""

    def __init__(self, draw: random.Random | None, *, repeats: int) -> None:
        self._draw = draw
        self._extra = repeats
        self._written = 0

    def text(self, parsed: Any) -> str:
        return "".join(self._one(str(code), value) for code, value in parsed)

    def _one(self, code: str, value: Any) -> str:
        self._written += 1
        if self._written > MAX_STRING:
            raise NoValueError("a pattern that needs too long a string")
        match code:
            case "LITERAL":
                return chr(value)
            case "NOT_LITERAL":
                return "b" if value == ord("a") else "a"
            case "ANY":
                return str(self._choose(["a", "b", "1"]))
            case "IN":
                return str(self._choose(_members(value)))
            case "BRANCH":
                return self.text(self._choose(value[1]))
            case "SUBPATTERN":
                return self.text(value[-1])
            case "ATOMIC_GROUP":
                return self.text(value)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                return self._repeated(*value)
        return ""  # anchors match nothing; assertions and references are left to the validator

    def _repeated(self, low: Any, high: Any, inner: Any) -> str:
        low, high = int(low), int(high)
        if low > _MAX_REPEATS:
            raise NoValueError(f"a pattern that repeats something {low:,} times")
        times = min(high, low + self._extra)
        self._extra -= times - low
        if self._draw is not None:
            times = self._draw.randint(low, max(times, min(high, low + 5)))
        return "".join(self.text(inner) for _ in range(times))

    def _choose(self, choices: Any) -> Any:
        return choices[0] if self._draw is None else self._draw.choice(choices)


def _members(items: Any) -> list[str]:
    """Return characters of a class. A range contributes its ends and a few in between."""
    members: list[str] = []
    negated = False
    for code, value in items:
        match str(code):
            case "NEGATE":
                negated = True
            case "LITERAL":
                members.append(chr(value))
            case "RANGE":
                low, high = value
                members += [chr(it) for it in sorted({low, high, *range(low, min(high, low + 25))})]
            case "CATEGORY":
                members += _CATEGORIES.get(str(value), "a")
    if negated:
        members = [it for it in ["a", "b", *_PRINTABLE] if it not in members]
    if not members:
        raise NoValueError("a pattern with a class of no characters")
    return members
