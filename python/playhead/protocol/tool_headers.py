"""Arguments of a tool that HTTP headers repeat, as the tool's `inputSchema` marks them.

MCP 2026-07-28, "Streamable HTTP", custom headers from tool parameters: a property with `x-mcp-header` is also
sent as `Mcp-Param-` and its name. A client must leave out a tool that marks a property in an invalid way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

MARK: Final = "x-mcp-header"

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""The characters of a header's name (RFC 9110, 5.6.2)."""
_TYPES: Final = ("string", "integer", "boolean")
"""Not `number`: its decimals differ between languages."""
_SCHEMA: Final = frozenset(
    (
        *("items", "contains", "unevaluatedItems", "additionalProperties", "unevaluatedProperties"),
        *("propertyNames", "not", "if", "then", "else", "contentSchema"),
    )
)
_SCHEMAS: Final = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
_NAMED_SCHEMAS: Final = frozenset(["patternProperties", "dependentSchemas", "$defs", "definitions"])
"""The keywords of JSON Schema 2020-12 that hold schemas. Others hold data, in which the mark is only a
word."""


def header_names(schema: object) -> dict[tuple[str, ...], str] | None:
    """Return the end of the header's name for each marked property, by the path of the property.

    None if a mark is invalid: not a header's name, on a property other than a string, integer or boolean,
    used twice, or at a place that no chain of `properties` leads to.
    """
    names: dict[tuple[str, ...], str] = {}
    used: set[str] = set()
    waiting: list[tuple[tuple[str, ...] | None, object]] = [((), schema)]
    while waiting:
        path, here = waiting.pop()
        if not isinstance(here, dict):
            continue
        if MARK in here:
            name = here[MARK]
            if not path or not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
                return None
            if here.get("type") not in _TYPES or name.lower() in used:
                return None
            names[path] = name
            used.add(name.lower())
        for key, value in here.items():
            if key == "properties" and isinstance(value, dict):
                waiting += ((None if path is None else (*path, name), inner) for name, inner in value.items())
            elif key in _SCHEMA:
                waiting.append((None, value))
            elif key in _SCHEMAS and isinstance(value, list):
                waiting += ((None, inner) for inner in value)
            elif key in _NAMED_SCHEMAS and isinstance(value, dict):
                waiting += ((None, inner) for inner in value.values())
    return names


def usable_tools(
    tools: Iterable[dict[str, Any]],
) -> tuple[list[dict[str, Any]], dict[str, dict[tuple[str, ...], str]]]:
    """Return the `tools` of a whole listing whose marks are valid, and the headers of each by its name."""
    usable: list[dict[str, Any]] = []
    headers: dict[str, dict[tuple[str, ...], str]] = {}
    for tool in tools:
        names = header_names(tool.get("inputSchema"))
        if names is not None and isinstance(name := tool.get("name"), str):
            usable.append(tool)
            headers[name] = names
    return usable, headers
