"""Arguments of a tool that HTTP headers repeat, as the tool's `inputSchema` marks them.

A client sends the value of a property with `x-mcp-header: NAME` also in the header `Mcp-Param-NAME`. It must
not list a tool that marks a property in an invalid way (MCP 2026-07-28, "Streamable HTTP", custom headers
from tool parameters).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

MARK: Final = "x-mcp-header"

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""The characters of a header's name (RFC 9110, 5.6.2)."""
_MARKABLE_TYPES: Final = ("string", "integer", "boolean")
"""Not `number`: its decimals differ between languages."""
_SCHEMA_KEYWORDS: Final = frozenset(
    (
        *("items", "contains", "unevaluatedItems", "additionalProperties", "unevaluatedProperties"),
        *("propertyNames", "not", "if", "then", "else", "contentSchema"),
    )
)
_LIST_KEYWORDS: Final = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
_OBJECT_KEYWORDS: Final = frozenset(["patternProperties", "dependentSchemas", "$defs", "definitions"])
"""The keywords of JSON Schema 2020-12 that hold one schema, a list of schemas, or schemas by name. Others
hold data, in which `x-mcp-header` marks nothing."""

_Path = tuple[str, ...]


def header_names(schema: object) -> dict[_Path, str] | None:
    """Return the end of the header's name for each marked property, by the path of the property.

    None if a mark is invalid: not a header's name, on a property other than a string, integer or boolean,
    used twice, or at a place that no chain of `properties` leads to.
    """
    names: dict[_Path, str] = {}
    lower_names: set[str] = set()
    remaining: list[tuple[_Path | None, object]] = [((), schema)]
    while remaining:
        path, current = remaining.pop()
        if not isinstance(current, dict):
            continue
        if MARK in current:
            name = current[MARK]
            if not path or not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
                return None
            if current.get("type") not in _MARKABLE_TYPES or name.lower() in lower_names:
                return None
            names[path] = name
            lower_names.add(name.lower())
        remaining += _schemas_in(current, path)
    return names


def _schemas_in(schema: dict[str, Any], path: _Path | None) -> Iterator[tuple[_Path | None, object]]:
    """Yield the schemas inside one at `path`, with their paths; None if not only `properties` lead there."""
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            for name, inner in value.items():
                yield None if path is None else (*path, name), inner
        elif key in _SCHEMA_KEYWORDS:
            yield None, value
        elif key in _LIST_KEYWORDS and isinstance(value, list):
            for inner in value:
                yield None, inner
        elif key in _OBJECT_KEYWORDS and isinstance(value, dict):
            for inner in value.values():
                yield None, inner


def usable_tools(
    tools: Iterable[dict[str, Any]],
) -> tuple[list[dict[str, Any]], dict[str, dict[_Path, str]]]:
    """Return the `tools` of a whole listing whose marks are valid, and the headers of each by its name."""
    usable: list[dict[str, Any]] = []
    headers: dict[str, dict[_Path, str]] = {}
    for tool in tools:
        names = header_names(tool.get("inputSchema"))
        if names is not None and isinstance(name := tool.get("name"), str):
            usable.append(tool)
            headers[name] = names
    return usable, headers
