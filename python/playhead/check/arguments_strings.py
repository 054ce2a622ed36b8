"""Strings for schemas: of a length, of a format, and such as a regular expression asks for."""

from __future__ import annotations

import random
import re
import warnings
from typing import Any, Final

from playhead.check.arguments_shapes import NoValueError

MAX_STRING: Final = 10_000
"""Characters of the longest string made: a longer one tests the wire, and `server.big-request` does that."""
WORD: Final = "example"
UNICODE: Final = "Grüße, 世界! 🎵 \u0301\u202e'\"\\\n\t<&>"
"""Two scripts, an astral character, a combining and a right-to-left mark, quotes and controls."""

_FORMATS: Final = {
    "date-time": "2026-01-12T10:00:00Z",
    "date": "2026-01-12",
    "time": "10:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "idn-email": "someone@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uri-reference": "https://example.com/",
    "iri": "https://example.com/",
    "iri-reference": "https://example.com/",
    "uri-template": "https://example.com/{name}",
    "uuid": "2f1e4b7a-9c3d-4e8f-8a6b-0d5c7e9f1a23",
    "regex": "a+",
    "json-pointer": "/a",
    "relative-json-pointer": "0",
    "byte": "QUFB",
}
"""Addresses and names that are set aside for documentation (RFC 2606, 5737, 3849)."""

_QUOTED: Final = re.compile(
    r"""(?:e\.g\.|for example|such as|like)[\s,:(]{0,3}(?P<quote>['"`])(?P<text>.{1,60}?)(?P=quote)""", re.I
)


def of_format(name: object) -> str | None:
    """A string of a format, or None where it is an unknown one."""
    return _FORMATS.get(name) if isinstance(name, str) else None


def described(description: object) -> str | None:
    """What a description gives as an example (`e.g. 'Europe/Paris'`): more apt than anything made up."""
    if not isinstance(description, str):
        return None
    found = _QUOTED.search(description[:2000])
    return found["text"] if found else None


def of_length(length: int, text: str = WORD) -> str:
    """`text` cut or repeated to `length` characters."""
    return (text * (length // len(text) + 1))[:length]


# --- regular expressions --------------------------------------------------------------------------------

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
    """A string that `pattern` is probably found in: the shortest, or a random one. The caller has it
    verified: look-arounds and back-references are passed over.

    `least` is the length wanted where repeats can give it. Raises `NoValueError` for a pattern that can't be
    read here, or asks for too much. Made from Python's reading of the pattern (`re._parser`, which no public
    module offers); running it is left to the validator, which can give up.
    """
    if len(pattern) > 2000:
        raise NoValueError("a pattern of more than 2,000 characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python finds odd in a foreign pattern concerns nobody here
            parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
        written = _Writer(draw, repeats=0).text(parsed)
        if len(written) < least:
            written = _Writer(draw, repeats=least - len(written)).text(parsed)
    except (re.error, RecursionError, OverflowError) as error:
        raise NoValueError(f"the pattern {pattern[:60]!r} can't be read as Python's: {error}") from None
    return written


class _Writer:
    def __init__(self, draw: random.Random | None, *, repeats: int) -> None:
        self._draw = draw
        self._extra = repeats
        self._written = 0

    def text(self, parsed: Any) -> str:
        return "".join(self._one(str(code), value) for code, value in parsed)

    def _one(self, code: str, value: Any) -> str:
        self._written += 1
        if self._written > MAX_STRING:
            raise NoValueError("a pattern that asks for too long a string")
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
        return ""  # anchors take no room; assertions and references are the validator's

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
    """The characters of a class. Ranges are named by their ends, and a few between."""
    found: list[str] = []
    negated = False
    for code, value in items:
        match str(code):
            case "NEGATE":
                negated = True
            case "LITERAL":
                found.append(chr(value))
            case "RANGE":
                low, high = value
                found += [chr(it) for it in sorted({low, high, *range(low, min(high, low + 25))})]
            case "CATEGORY":
                found += _CATEGORIES.get(str(value), "a")
    if negated:
        found = [it for it in ["a", "b", *_PRINTABLE] if it not in found]
    if not found:
        raise NoValueError("a pattern with a class of no characters")
    return found
