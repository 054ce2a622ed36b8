"""Tables of a configuration file: conversion of JSON values to models, with error messages as in `document`.

Messages quote values as written in the file, so that they do not show the value of a `${NAME}`. This file
loads pydantic, so import it only where a file is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)

from playhead.config.document import Key, expand, place
from playhead.content.findings import kind_of
from playhead.errors import ConfigError
from playhead.escaping import did_you_mean, shortened

_QUOTED_CHARS: Final = 60

T = TypeVar("T")


class Table(BaseModel):
    """A table of a file: strict types, no unknown keys, and nothing in its `repr`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


def _expand_text(value: object, info: ValidationInfo) -> object:
    return expand(value, info.context) if isinstance(value, str) and info.context is not None else value


EXPANDED: Final = BeforeValidator(_expand_text)
"""Marks values in which `${NAME}` and `~` are expanded."""
Text = Annotated[str, EXPANDED]
PositiveInt = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]


def validate(
    kind: type[T],
    values: object,
    *,
    path: Path | str,
    at: tuple[Key, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> T:
    """Validate `values`, found in the file at `path` under the keys `at`, as a `Table` or a dataclass.

    `environment` expands `${NAME}`; with None, text stays as written. Raises `ConfigError`.
    """
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type] # mypy: a type is not Hashable
    try:
        # As JSON, where strict validation accepts an object as a dataclass and an array as a tuple.
        return adapter.validate_json(json.dumps(values), strict=True, context=environment)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
    # Raised outside the handler, so that its context is not the exception that holds the values.
    raise ConfigError(_message(problem, values, adapter, path, at))


@lru_cache(maxsize=32)
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


_EXPECTED: Final = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a string",
}


def _message(
    problem: Any, values: object, adapter: TypeAdapter[Any], path: Path | str, at: tuple[Key, ...]
) -> str:
    loc: tuple[Key, ...] = problem["loc"]
    inner, schema = values, adapter.json_schema()
    root, parent = schema, schema
    for key in loc:
        inner = _value_at(inner, key)
        parent, schema = schema, _schema_at(schema, key, root)
    where = place(path, (*at, *loc))
    match problem["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            known = _resolve(parent, root).get("properties", {})
            hint = did_you_mean(str(loc[-1]), known, f"known are {', '.join(known)}")
            return f"{where}: is not a setting; {hint}"
        case "missing" | "missing_argument" | "missing_keyword_only_argument":
            choices = _resolve(schema, root).get("enum")
            hint = f"; expected one of {', '.join(choices)}" if choices else ""
            return f"{place(path, (*at, *loc[:-1]))}: the key {str(loc[-1])!r} is missing{hint}"
        case "literal_error":
            choices = re.findall(r"'([^']*)'", problem["ctx"]["expected"])
            if not isinstance(inner, str):
                return f"{where}: expected one of {', '.join(choices)}, got {kind_of(inner)}"
            got = repr(shortened(inner, _QUOTED_CHARS)) + did_you_mean(inner, choices, lead="; ")
            return f"{where}: expected one of {', '.join(choices)}, got {got}"
        case "greater_than":
            return f"{where}: expected a number above {problem['ctx']['gt']}, got {inner}"
        case "value_error":
            text = str(problem["ctx"]["error"])
            return f"{where}{'' if text[:1] in ('.', '[', ':') else ': '}{text}"
        case kind:
            is_array = kind.startswith(("list", "tuple", "set", "frozen_set"))
            expected = _EXPECTED.get(kind, "an array" if is_array else "an object")
            return f"{where}: expected {expected}, got {kind_of(inner)}"


def _value_at(value: object, key: Key) -> object:
    if isinstance(value, dict):
        return value.get(key)
    return value[key] if isinstance(value, list) and isinstance(key, int) and key < len(value) else None


def _schema_at(schema: dict[str, Any], key: Key, root: dict[str, Any]) -> dict[str, Any]:
    node = _resolve(schema, root)
    inner = node.get("items") if isinstance(key, int) else node.get("properties", {}).get(key)
    inner = inner if inner is not None else node.get("additionalProperties")
    return inner if isinstance(inner, dict) else {}


def _resolve(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    for each in (schema, *schema.get("anyOf", ())):
        if "$ref" in each:
            return root["$defs"][each["$ref"].rpartition("/")[2]]  # type: ignore[no-any-return] # a schema
        if "properties" in each or "items" in each or "enum" in each or "additionalProperties" in each:
            return each  # type: ignore[no-any-return] # a schema
    return schema
