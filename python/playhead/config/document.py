"""Configuration documents: conversion of bytes to JSON values, with uniform error messages.

Every error is a `ConfigError` that names the file, the key path, the expected value and the actual one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from playhead.errors import ConfigError

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""Limits a configuration file. A larger file is most likely the wrong one."""
MAX_DEPTH: Final = 128
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

Key = str | int


# --- values --------------------------------------------------------------------------------------------


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace `${NAME}` and a leading `~`. Raises `ValueError` for a variable that is not set."""

    def value_of(variable: re.Match[str]) -> str:
        if variable[1] not in environment:
            raise ValueError(f"the environment variable {variable[1]} is not set")
        return environment[variable[1]]

    expanded = VARIABLE.sub(value_of, text)
    # A `~` in the value of a variable stays as it is.
    if text == "~" or text.startswith("~/"):
        return str(Path("~").expanduser()) + expanded[1:]
    return expanded


# --- bytes ---------------------------------------------------------------------------------------------


def read_document(path: Path, *, advice: str) -> object:
    """Read the file at `path` as JSON if its name ends in `.json`, else as TOML.

    Raises `ConfigError`; `advice` says what to do about a file that does not exist.
    """
    return parse_document(read_file(path, advice=advice), path)


def read_file(path: Path, *, advice: str) -> bytes:
    """Read the file at `path`. Raises `ConfigError`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; {advice}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise ConfigError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(
            f"{path}: expected a configuration file of at most {MAX_FILE_BYTES // 1024**2} MiB, got more"
        )
    return data


def parse_document(data: bytes, path: Path) -> object:
    """Parse `data`, the content of the file at `path`. Raises `ConfigError`."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: not UTF-8 (line {line}, byte {error.start})") from None
    kind = "JSON" if path.suffix.lower() == ".json" else "TOML"
    try:
        if kind == "TOML":
            import tomllib  # a program without a file does not need it

            values: object = tomllib.loads(text)
        else:
            values = json.loads(
                text, object_pairs_hook=_unique_members, parse_constant=float, parse_int=_parse_int
            )
    except ValueError as error:
        raise ConfigError(f"{path}: not valid {kind} ({error})") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply; at most {MAX_DEPTH} levels are read") from None
    check_values(values, path)
    return values


@dataclass(frozen=True, slots=True)
class _Duplicate:
    """Marks an object with a duplicate key. `json` alone would silently use the last value."""

    key: str


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Duplicate:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            return _Duplicate(key)
        members[key] = value
    return members


def _parse_int(digits: str) -> int:
    # `int` takes quadratic time. A longer number is too large for `check_values`, and so is this one.
    return int(digits) if len(digits) < 30 else 1 << 65


def check_values(values: object, path: Path | str) -> None:
    """Raise `ConfigError` for values that JSON cannot represent, or that parsers disagree about."""
    pending: list[tuple[tuple[Key, ...], object]] = [((), values)]
    while pending:
        at, value = pending.pop()
        if isinstance(value, dict):
            pending.extend(((*at, key), inner) for key, inner in value.items())
        elif isinstance(value, list):
            pending.extend(((*at, index), inner) for index, inner in enumerate(value))
        problem = _problem_of(value)
        if problem is None and len(at) > MAX_DEPTH:
            raise ConfigError(f"{path}: nested too deeply; at most {MAX_DEPTH} levels are read")
        if problem is not None:
            raise ConfigError(f"{place(path, at)}: {problem}")


def _problem_of(value: object) -> str | None:
    """Return the problem of a value, apart from the values inside it."""
    match value:
        case dict() if any(_SURROGATE.search(key) for key in value):
            return "expected Unicode text, got a key with a lone surrogate"
        case str() if _SURROGATE.search(value):
            return "expected Unicode text, got a lone surrogate"
        case int() if value.bit_length() > 64:
            return "expected a number of at most 64 bits, got a larger one"
        case float() if not math.isfinite(value):
            return f"expected a finite number, got {value}"
        case _Duplicate(key):
            return f"the key {key!r} is given twice; keep one"
        case None | bool() | dict() | list() | str() | int() | float():
            return None
        case _:
            return f"expected a JSON value, got a {type(value).__name__}; write a date as a string"


def strings_in(values: object) -> Iterator[str]:
    """Iterate over every string in a document, including keys."""
    pending = [values]
    while pending:
        match pending.pop():
            case dict() as members:
                pending.extend(members.values())
                yield from members
            case list() as items:
                pending.extend(items)
            case str() as text:
                yield text


# --- messages -----------------------------------------------------------------------------------------


def place(path: Path | str, at: Iterable[Key]) -> str:
    """Format the location of a value in a file as `FILE: key.path[0]`."""
    keys = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in at)
    return f"{path}: {keys.removeprefix('.')}" if keys else str(path)
