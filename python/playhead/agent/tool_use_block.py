"""One `<tool_use>` block: what is gathered of it, and what it is once it is over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, NoReturn

from playhead.limits import DEFAULT_LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRun:
    """Text for the user; no tag is in it."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNamed:
    """A block's name is known; the next event is its `CallWritten` or `CallBroken`."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWritten:
    """A call that can run, if there is such a tool."""

    name: str
    arguments: Mapping[str, Any]
    arguments_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBroken:
    """What began as a call, and can't run."""

    name: str
    """Empty where it has none."""
    source: str
    """Its arguments as written; the block's inside where they aren't there once; cut if too long."""
    reason: str
    """For the model to read."""


ToolUseEvent = TextRun | CallNamed | CallWritten | CallBroken

_SHOWN_CHARS = 200
"""What is told of a block that was too long."""


@dataclass(slots=True)
class Block:
    """A block's inside as far as it came, and its elements. Past `limit_chars` nothing more is kept."""

    limit_chars: int
    size: int = 0
    """Characters so far."""
    over: bool = False
    """It was too long, and has been told."""
    names: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    problem: str = ""
    """The first thing that was wrong with it."""
    _source: StringIO = field(default_factory=StringIO)
    _element: int = 0

    def take(self, text: str) -> CallBroken | None:
        """Add `text`; what to tell where that makes the block too long."""
        if self.over:
            return None
        self._source.write(text[: self.limit_chars - self.size])
        self.size += len(text)
        if self.size <= self.limit_chars:
            return None
        self.over = True
        source = self._source.getvalue()[:_SHOWN_CHARS] + "…"
        self._source = StringIO()
        return CallBroken(
            name=self.names[0] if self.names else "",
            source=source,
            reason=f"expected at most {self.limit_chars:,} characters inside <tool_use> (limit "
            "tool_use_chars), came more; write less in one call",
        )

    def mark(self) -> None:
        """An element begins or ended here."""
        self._element = self.size

    def since_mark(self, end: int) -> str:
        """What came from the mark up to `end`."""
        if self.over:
            return ""
        self._source.seek(self._element)
        text = self._source.read(end - self._element)
        self._source.seek(0, 2)
        return text

    def wrong(self, problem: str) -> None:
        self.problem = self.problem or problem

    def verdict(self) -> CallWritten | CallBroken:
        """What the block is, now that it is over."""
        name = self.names[0] if self.names else ""
        problem = self.problem or self._missing()
        once = len(self.arguments) == 1
        if problem:
            source = self.arguments[0] if once else self._source.getvalue()
            return CallBroken(name=name, source=source, reason=problem)
        found = arguments_of(self.arguments[0])
        if isinstance(found, str):
            return CallBroken(name=name, source=self.arguments[0], reason=found)
        return CallWritten(name=name, arguments=found, arguments_text=self.arguments[0])

    def _missing(self) -> str:
        for tag, found in (("name", self.names), ("arguments", self.arguments)):
            if len(found) != 1:
                return f"expected <{tag}> once inside <tool_use>, came {len(found) or 'none'}"
        name = self.names[0]
        if not name or "<" in name:
            return f"expected a tool's name inside <name>, came {'markup' if name else 'nothing'}"
        return ""


def arguments_of(text: str) -> dict[str, Any] | str:
    """The JSON object in `text`, or what is wrong with it, for the model to read.

    Blank text is `{}`. A code fence around the object is taken off, and control characters in strings are
    allowed: models write code with its line breaks.
    """
    text = _without_fence(text.strip())
    if not text:
        return {}
    try:
        found = json.loads(text, strict=False, parse_constant=_refuse)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "expected text in the JSON of <arguments>, came half of a surrogate pair (\\ud800 to \\udfff)"
    except ValueError as error:
        return f"expected a JSON object inside <arguments>, came something else: {error}"
    except RecursionError:
        return _too_deep()
    if not isinstance(found, dict):
        return (
            f"expected a JSON object inside <arguments>, came JSON of another kind ({type(found).__name__})"
        )
    if text.count("{") + text.count("[") > DEFAULT_LIMITS.json_depth and _deep(found):
        return _too_deep()
    return found


def _without_fence(text: str) -> str:
    if len(text) < 6 or not (text.startswith("```") and text.endswith("```")):
        return text
    begin = text.find("{")
    label = text[3:begin].strip()
    return text[begin:-3].strip() if begin > 0 and (not label or label.isalnum()) else text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _too_deep() -> str:
    depth = DEFAULT_LIMITS.json_depth
    return f"expected <arguments> nested at most {depth} deep (limit json_depth), came deeper ones"


def _deep(value: object) -> bool:
    """Whether it is nested deeper than allowed; level by level, since recursion is what it must not cost."""
    level = [value]
    for _ in range(DEFAULT_LIMITS.json_depth + 1):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True
