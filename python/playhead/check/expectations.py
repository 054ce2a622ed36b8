"""What the author of a server says its tools answer: calls to make, and what has to come back.

A file of it, as TOML (or the same keys as JSON):

    [[calls]]
    tool = "calculator"
    arguments = { expression = "2 + 3 * 4" }
    content_types = ["text"]
    patterns = ["^14$"]
    max_latency_ms = 500
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import regex

from playhead.config.fields import Fields
from playhead.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCall:
    """One call whose arguments somebody vouches for."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    is_error: bool = False
    """Whether the result has to be an error (`isError`)."""
    error_code: int | None = None
    """A JSON-RPC error of this code is expected in place of a result."""
    content_types: tuple[str, ...] | None = None
    """The types of the content blocks, in order: `text`, `image`, …; None accepts any."""
    patterns: tuple[str, ...] = ()
    """Regular expressions; each has to be found in the texts of the result."""
    max_latency_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """An expectations file."""

    calls: tuple[ExpectedCall, ...] = ()

    def of_tool(self, name: str) -> tuple[ExpectedCall, ...]:
        """The calls of one tool, in the file's order."""
        return tuple(call for call in self.calls if call.tool == name)


def load_expectations(path: Path) -> Expectations:
    """The expectations in the file at `path`: JSON where its name ends in `.json`, else TOML.

    Raises `ConfigError`, naming the file and the key path, for a file that can't be read, a key that is none,
    and a value that isn't understood.
    """
    return read_expectations(_parsed(path), where=str(path))


def read_expectations(raw: object, *, where: str) -> Expectations:
    """The same from a parsed file; `where` is its name in messages. Raises `ConfigError`."""
    top = Fields(raw, where=where, environment=None)
    top.only("calls")
    return Expectations(calls=tuple(_call(fields) for fields in top.tables("calls")))


def _call(fields: Fields) -> ExpectedCall:
    fields.only("tool", "arguments", "is_error", "error_code", "content_types", "patterns", "max_latency_ms")
    tool = fields.text("tool")
    if not tool:
        raise ConfigError(f"{fields.where}: the key 'tool' is missing; name the tool to call")
    is_error = fields.flag("is_error")
    error_code = fields.integer("error_code")
    content_types = fields.items("content_types")
    patterns = fields.items("patterns") or ()
    if error_code is not None:
        for name, given in (("is_error", is_error), ("content_types", content_types), ("patterns", patterns)):
            if given:
                raise ConfigError(
                    f"{fields.where}.{name}: can't be expected beside error_code: an error has no result"
                )
    for index, pattern in enumerate(patterns):
        try:
            regex.compile(pattern)
        except regex.error as error:
            raise ConfigError(
                f"{fields.where}.patterns[{index}]: expected a regular expression, came {pattern!r} ({error})"
            ) from None
    arguments = fields.values("arguments")
    try:
        json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{fields.where}.arguments: expected values that JSON has, came one that it has not ({error});"
            " write a date as a text"
        ) from None
    return ExpectedCall(
        tool=tool,
        arguments=arguments,
        is_error=is_error or False,
        error_code=error_code,
        content_types=content_types,
        patterns=patterns,
        max_latency_ms=fields.number("max_latency_ms"),
    )


def _parsed(path: Path) -> object:
    is_json = path.suffix.lower() == ".json"
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if is_json else tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; give one with [[calls]], or none") from None
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror})") from error
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deep") from None
    except ValueError as error:
        kind = "JSON" if is_json else "TOML (a JSON file's name ends in .json)"
        raise ConfigError(f"{path}: is not {kind}: {error}") from error
