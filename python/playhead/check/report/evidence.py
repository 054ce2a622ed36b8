"""What was sent and what came, made fit for a report: bounded, without credentials, nothing hidden in it.

A server may answer with megabytes, with a million keys, with control characters, or with the token it was
sent. Each format gives a value so many characters, and a report as a whole so many: what is beyond is cut,
with a word that says so.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from playhead.check.results import Json
from playhead.escaping import escape, is_hidden

DEPTH: Final = 64
"""Levels shown. Deeper than a person follows, and far from the interpreter's own limit."""
_ITEM_CHARS: Final = 8
"""What an item costs at least: a million empty lists have no text, and are no small report."""

_CREDENTIAL_CHARS: Final = 600
"""More than the patterns below look ahead."""

_CREDENTIALS: Final = (
    (re.compile(r"(?<=://)[^/?#\s@\"']{1,500}@"), "…@"),
    (re.compile(r"\b(Bearer|Basic)\s+(?=[^\s\"',]{0,500}\d)[\w.~+/-]{12,}=*", re.IGNORECASE), r"\1 …"),
    (
        re.compile(
            r"(?<=[?&])((?:access_|refresh_|id_)?token|api_?key|key|secret|client_secret|password|sig|signature)"
            r"=[^&#\s\"']+",
            re.IGNORECASE,
        ),
        r"\1=…",
    ),
)
"""A user and password in an address, an Authorization header, a key in a query. The checker sends none of its
own into a report; a server that repeats what it was sent would."""


@dataclass(slots=True)
class Allowance:
    """How many characters of evidence a report may still hold."""

    left: int

    def take(self, chars: int) -> int:
        """At most `chars`, and at most what is left."""
        return max(0, min(chars, self.left))

    def spend(self, chars: int) -> None:
        self.left -= chars


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A value fit for a report."""

    value: Json
    is_whole: bool
    """Whether it is all of it, so that it can be sent again as it stands."""


def without_credentials(text: str) -> str:
    for pattern, instead in _CREDENTIALS:
        text = pattern.sub(instead, text)
    return text


def cut(text: str, chars: int) -> str:
    """`text` in at most about `chars` characters, without credentials."""
    # What lies over the cut is looked for too: of a password whose `@` was cut off, nothing tells what it is.
    kept = without_credentials(text[: chars + _CREDENTIAL_CHARS])[:chars]
    return kept if len(text) <= chars else f"{kept}… ({len(text) - chars:,} more characters)"


def plain(text: str, chars: int = 4_000) -> str:
    """A text for a report: bounded, without credentials, and hidden characters shown as `\\x1b`."""
    return escape(cut(text, chars))


def bounded(value: Json, allowance: Allowance, *, chars: int) -> Shown:
    """`value` in about `chars` characters, fewer where the report is nearly full."""
    most = allowance.take(chars)
    if most == 0 and value is not None:
        return Shown(value="(left out: the report is full)", is_whole=False)
    walk = _Walk(left=most)
    found = walk.value(value, 0)
    allowance.spend(most - max(0, walk.left))
    return Shown(value=found, is_whole=walk.is_whole)


def json_text(value: Json, *, indent: int | None = 2) -> str:
    """`value` as JSON that is fit to be read and means the same: hidden characters are written `\\u202e`."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    hidden = {char for char in set(text) if is_hidden(char) and char != "\n"}  # `json` wrote the newlines
    return text.translate({ord(char): _json_escape(char) for char in hidden}) if hidden else text


def _json_escape(char: str) -> str:
    return json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f"  # the one control that `json` leaves


@dataclass(slots=True)
class _Walk:
    left: int
    is_whole: bool = True

    def value(self, value: Json, depth: int) -> Json:
        self.left -= _ITEM_CHARS
        match value:
            case None | bool():
                return value
            case int():
                return self.integer(value)
            case float():
                return self.number(value)
            case str():
                return self.text(value)
            case _ if depth >= DEPTH:
                self.is_whole = False
                return "… (nested deeper)"
            case Mapping():
                return self.mapping(value, depth)
            case _:
                return self.items(value, depth)

    def integer(self, value: int) -> Json:
        if value.bit_length() <= 1_024:  # as far as a double goes; Python refuses to print a very long one
            return value
        self.is_whole = False
        return f"(an integer of {value.bit_length():,} bits)"

    def number(self, value: float) -> Json:
        if math.isfinite(value):
            return value
        self.is_whole = False
        return f"({value}, which JSON has no number for)"

    def text(self, value: str) -> str:
        shown = cut(value, max(0, self.left))
        self.left -= len(shown)
        if shown != value:
            self.is_whole = False
        return shown

    def mapping(self, value: Mapping[str, Json], depth: int) -> Json:
        found: dict[str, Json] = {}
        for number, (key, item) in enumerate(value.items()):
            if self.left <= 0:
                self.is_whole = False
                found["…"] = f"({len(value) - number:,} more keys)"
                break
            found[self.text(str(key))] = self.value(item, depth + 1)
        return found

    def items(self, value: Sequence[Json], depth: int) -> Json:
        found: list[Json] = []
        for number, item in enumerate(value):
            if self.left <= 0:
                self.is_whole = False
                found.append(f"… ({len(value) - number:,} more items)")
                break
            found.append(self.value(item, depth + 1))
        return found
