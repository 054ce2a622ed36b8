"""The events of `ToolUseParser`, and `ToolUseBlock`, which checks the inside of one `<tool_use>` block."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from playhead.content.findings import kind_of
from playhead.limits import DEFAULT_LIMITS
from playhead.strict_json import parse_json


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRun:
    """Text for the user, free of tags."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNamed:
    """The name of a block is known; the next event is its `CallWritten` or `CallBroken`."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWritten:
    """A call that can run, if the tool exists."""

    name: str
    arguments: Mapping[str, Any]
    arguments_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBroken:
    """A block that began as a call but can't run."""

    name: str
    """The name of the tool; empty if unknown."""
    source: str
    """The arguments as the model wrote them or, unless they appear exactly once, the whole inside of the
    block. A too long block is cut."""
    reason: str
    """The mistake, as text for the model."""


ToolUseEvent = TextRun | CallNamed | CallWritten | CallBroken

_SHOWN_CHARS = 200
"""Limits the quoted beginning of a block that is too long."""


@dataclass(slots=True)
class ToolUseBlock:
    """The inside of a block so far, with its elements: names and arguments. It stores at most
    `limit_chars`."""

    limit_chars: int
    size: int = 0
    """The number of characters so far."""
    is_too_long: bool = False
    """True once the block exceeded the limit, which was then reported."""
    names: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    problem: str = ""
    """The first mistake in the block."""
    _source: StringIO = field(default_factory=StringIO)
    _marked: int = 0

    def take(self, text: str) -> CallBroken | None:
        """Add `text`; return the error if that makes the block too long."""
        if self.is_too_long:
            return None
        self._source.write(text[: self.limit_chars - self.size])
        self.size += len(text)
        if self.size <= self.limit_chars:
            return None
        self.is_too_long = True
        source = self._source.getvalue()[:_SHOWN_CHARS] + "…"
        self._source = StringIO()
        return CallBroken(
            name=self.names[0] if self.names else "",
            source=source,
            reason=f"expected at most {self.limit_chars:,} characters inside <tool_use> (limit "
            "tool_use_chars), got more; write less in one call",
        )

    def mark(self) -> None:
        """Mark the current end of the text: an element begins or ends here."""
        self._marked = self.size

    def since_mark(self, end: int) -> str:
        """Return the text from the mark to `end`."""
        if self.is_too_long:
            return ""
        self._source.seek(self._marked)
        text = self._source.read(end - self._marked)
        self._source.seek(0, 2)
        return text

    def note_problem(self, problem: str) -> None:
        self.problem = self.problem or problem

    def verdict(self) -> CallWritten | CallBroken:
        """Return the call of a complete block, or the mistake in it."""
        name = self.names[0] if self.names else ""
        problem = self.problem or self._missing_element()
        if problem:
            source = self.arguments[0] if len(self.arguments) == 1 else self._source.getvalue()
            return CallBroken(name=name, source=source, reason=problem)
        arguments = arguments_of(self.arguments[0])
        if isinstance(arguments, str):
            return CallBroken(name=name, source=self.arguments[0], reason=arguments)
        return CallWritten(name=name, arguments=arguments, arguments_text=self.arguments[0])

    def _missing_element(self) -> str:
        for tag, elements in (("name", self.names), ("arguments", self.arguments)):
            if len(elements) != 1:
                return f"expected <{tag}> once inside <tool_use>, got {len(elements) or 'none'}"
        name = self.names[0]
        if not name or "<" in name:
            return f"expected a tool's name inside <name>, got {'markup' if name else 'nothing'}"
        return ""


def arguments_of(text: str) -> dict[str, Any] | str:
    """Return the JSON object in `text`, or the mistake in it, for the model to read.

    Blank text means `{}`. A code fence around the object is removed, and control characters in strings are
    allowed: models write code with its line breaks.
    """
    text = _without_fence(text.strip())
    if not text:
        return {}
    try:
        value = parse_json(text, control_characters=True)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "expected valid text in the JSON of <arguments>, got a lone surrogate (\\ud800 to \\udfff)"
    except ValueError as error:
        return f"expected a JSON object inside <arguments>, got invalid JSON: {error}"
    except RecursionError:
        return _too_deep()
    if not isinstance(value, dict):
        return f"expected a JSON object inside <arguments>, got {kind_of(value)}"
    if text.count("{") + text.count("[") > DEFAULT_LIMITS.json_depth and _is_too_deep(value):
        return _too_deep()
    return value


def _without_fence(text: str) -> str:
    if len(text) < 6 or not (text.startswith("```") and text.endswith("```")):
        return text
    begin = text.find("{")
    label = text[3:begin].strip()
    return text[begin:-3].strip() if begin > 0 and (not label or label.isalnum()) else text


def _too_deep() -> str:
    depth = DEFAULT_LIMITS.json_depth
    return f"expected <arguments> nested at most {depth} deep (limit json_depth), got deeper nesting"


def _is_too_deep(value: object) -> bool:
    """Return True if `value` is nested deeper than allowed, level by level: recursion could overflow."""
    level = [value]
    for _ in range(DEFAULT_LIMITS.json_depth + 1):
        next_level: list[object] = []
        for each in level:
            if isinstance(each, dict):
                next_level += each.values()
            elif isinstance(each, list):
                next_level += each
        if not next_level:
            return False
        level = next_level
    return True
