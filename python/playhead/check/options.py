"""The options of a check, and the expectations file: calls to make and their expected answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import regex

from playhead.errors import ConfigError

Depth = Literal["quick", "full"]
_STRICT: Final = {"extra": "forbid", "strict": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """The extent of a check, and its time limits."""

    depth: Depth = "quick"
    """`quick`: connection, handshake, discovery; no tool is called. `full`: all tools, resources, prompts."""
    seed: int = 0
    """Seed of the generated arguments; the report names it, so that a run can be repeated."""
    examples: int = 5
    """Random valid arguments per tool, in addition to the boundary cases."""
    timeout_seconds: float = 10.0
    """Longest silence of one request. People wait for a tool no longer than that."""
    total_seconds: float = 1800.0
    """Limit of the whole check; the rest is reported as skipped. Real servers take seconds to minutes."""
    calls_at_once: int = 8
    """Calls of the concurrency check: as many as a stream has reads in flight."""
    allow_destructive: bool = False
    """Also call tools with an explicit `destructiveHint: true`."""
    expectations: Expectations | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCall:
    """One call with arguments known to be valid."""

    __pydantic_config__: ClassVar = _STRICT

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    is_error: bool = False
    """True if the result must be an error (`isError`)."""
    error_code: int | None = None
    """A JSON-RPC error of this code is expected in place of a result."""
    content_types: tuple[str, ...] | None = None
    """The types of the content blocks, in order: `text`, `image`, …; None accepts any."""
    patterns: tuple[str, ...] = ()
    """Regular expressions; each must match somewhere in the text of the result."""
    max_latency_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """An expectations file."""

    __pydantic_config__: ClassVar = _STRICT

    calls: tuple[ExpectedCall, ...] = ()

    def of_tool(self, name: str) -> tuple[ExpectedCall, ...]:
        """Return the calls of one tool, in the order of the file."""
        return tuple(call for call in self.calls if call.tool == name)


def load_expectations(path: Path) -> Expectations:
    """The expectations in the file at `path`: JSON if its name ends in `.json`, else TOML.

    Raises `ConfigError`, with the file and the key path.
    """
    from playhead.config.document import read_document

    return read_expectations(read_document(path, advice="write one with [[calls]]"), where=str(path))


def read_expectations(raw: object, *, where: str) -> Expectations:
    """The same from a parsed file; `where` is its name in messages. Raises `ConfigError`."""
    from playhead.config.document import check_values, place, validate  # pydantic is slow to load

    check_values(raw, where)
    if isinstance(raw, dict) and isinstance(raw.get("calls"), list):
        calls = [_without_nulls(call) if isinstance(call, dict) else call for call in raw["calls"]]
        raw = {**raw, "calls": calls}
    found = validate(Expectations, raw, path=where)
    for index, call in enumerate(found.calls):
        at = ("calls", index)
        if not call.tool:
            raise ConfigError(f"{place(where, at)}: the key 'tool' is empty; name the tool to call")
        if call.max_latency_ms is not None and call.max_latency_ms <= 0:
            raise ConfigError(
                f"{place(where, (*at, 'max_latency_ms'))}: expected a number above 0,"
                f" got {call.max_latency_ms}"
            )
        for name in ("is_error", "content_types", "patterns"):
            if call.error_code is not None and getattr(call, name):
                raise ConfigError(
                    f"{place(where, (*at, name))}: cannot be combined with error_code: an error has no result"
                )
        for number, pattern in enumerate(call.patterns):
            try:
                regex.compile(pattern)
            except (regex.error, OverflowError, RecursionError, MemoryError) as error:
                raise ConfigError(
                    f"{place(where, (*at, 'patterns', number))}: expected a regular expression, got"
                    f" {pattern[:100]!r} ({error})"
                ) from None
    return found


def _without_nulls(call: dict[str, Any]) -> dict[str, Any]:
    """Treat null as an absent setting, except for `arguments`."""
    return {key: value for key, value in call.items() if value is not None or key == "arguments"}
