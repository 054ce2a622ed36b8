"""Expand a JSON Schema into plain shapes, from which values can be generated.

A shape follows the references, merges `allOf`, and is one alternative of `anyOf`, `oneOf` and `if`. It
ignores `not`, `dependentSchemas` and the like, so validate each generated value against the whole schema
(`Validity`). The work has a limit: a schema that refers to itself, or doubles at each level, gives fewer
alternatives.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

MAX_ALTERNATIVES: Final = 8
"""Limits the alternatives of one schema. No `anyOf` in real schemas has more."""
MAX_STEPS: Final = 20_000
"""Limits the schemas to expand for one tool, which takes some tenths of a second."""
_MAX_DEPTH: Final = 32
_EXPANDED_KEYWORDS: Final = frozenset(
    {"$ref", "allOf", "anyOf", "oneOf", "if", "then", "else", "$defs", "definitions", "$schema", "$id"}
)
_LOWER_BOUNDS: Final = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_UPPER_BOUNDS: Final = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})

Shape = Mapping[str, Any]
"""A schema without references and combinations. `properties`, `items` and the like still contain schemas."""


class NoValueError(Exception):
    """No value can be generated, with the reason."""


class Shapes:
    """The shapes of the schemas inside one root schema."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._steps = 0
        self.unresolved: set[str] = set()
        """References to other documents, or to nothing."""

    def of(self, schema: object) -> Sequence[Shape]:
        """Return the alternatives of a schema; none for `false` and contradictions.

        Raises `NoValueError` for a schema that is too large to expand.
        """
        return self._expand(schema, 0)

    def _expand(self, schema: object, depth: int) -> list[dict[str, Any]]:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise NoValueError(f"the schema takes more than {MAX_STEPS:,} steps to expand")
        if schema is False or depth > _MAX_DEPTH:
            return []
        if not isinstance(schema, dict):
            return [{}]  # `true` allows any value
        shapes = [{key: value for key, value in schema.items() if key not in _EXPANDED_KEYWORDS}]
        if isinstance(ref := schema.get("$ref"), str):
            shapes = self._combine(shapes, self._expand(self._target_of(ref), depth + 1))
        for part in _schema_list(schema.get("allOf")):
            shapes = self._combine(shapes, self._expand(part, depth + 1))
        for key in ("anyOf", "oneOf"):
            if parts := _schema_list(schema.get(key)):
                shapes = self._combine(shapes, self._expand_any(parts, depth + 1))
        if "if" in schema:
            condition = self._expand(schema["if"], depth + 1)
            consequence = self._expand(schema.get("then"), depth + 1)
            otherwise = self._expand(schema.get("else"), depth + 1)
            shapes = self._combine(shapes, [*self._combine(condition, consequence), *otherwise])
        return shapes

    def _expand_any(self, parts: list[object], depth: int) -> list[dict[str, Any]]:
        shapes: list[dict[str, Any]] = []
        for part in parts:
            if len(shapes) >= MAX_ALTERNATIVES:  # `_combine` would drop more, and they double at each level
                break
            shapes += self._expand(part, depth)
        return shapes

    def _combine(self, left: list[dict[str, Any]], right: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the shapes that fit one of `left` and one of `right`."""
        merged = (_merge(one, other) for one in left for other in right[:MAX_ALTERNATIVES])
        return [shape for shape in merged if shape is not None][:MAX_ALTERNATIVES]

    def _target_of(self, ref: str) -> object:
        target = None
        if ref.startswith("#"):
            target = self._root if ref == "#" else self._find(ref)
        if target is None:
            self.unresolved.add(ref[:100])
            return {}
        return target

    def _find(self, ref: str) -> object:
        """Return the schema that an anchor or a JSON pointer names; None if it is missing."""
        if not ref.startswith("#/"):
            return next((each for each in objects_in(self._root) if each.get("$anchor") == ref[1:]), None)
        current: object = self._root
        for step in ref[2:].split("/"):
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(current, dict):
                current = current.get(key)
            elif isinstance(current, list) and key.isascii() and key.isdigit() and int(key) < len(current):
                current = current[int(key)]
            else:
                return None
        return current


def _schema_list(value: object) -> list[object]:
    return value[: 4 * MAX_ALTERNATIVES] if isinstance(value, list) else []


def objects_in(root: object) -> Iterator[dict[str, Any]]:
    """Iterate over every object in a schema, without recursion."""
    remaining = [root]
    while remaining:
        value = remaining.pop()
        if isinstance(value, dict):
            yield value
            remaining.extend(value.values())
        elif isinstance(value, list):
            remaining.extend(value)


def same(one: object, other: object) -> bool:
    """Compare two JSON values; 1 and true differ."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def types_of(shape: Shape) -> list[str]:
    """Return the declared JSON types, in order."""
    declared = shape.get("type")
    if isinstance(declared, str):
        return [declared]
    return [it for it in declared if isinstance(it, str)] if isinstance(declared, list) else []


def _merge(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the intersection of two shapes, or None if they obviously contradict each other."""
    both = {**one, **other}
    for key in one.keys() & other.keys():
        left, right = one[key], other[key]
        if key == "properties" and isinstance(left, dict) and isinstance(right, dict):
            shared = {name: {"allOf": [left[name], right[name]]} for name in left.keys() & right.keys()}
            both[key] = {**left, **right, **shared}
        elif key == "required" and isinstance(left, list) and isinstance(right, list):
            both[key] = [*left, *(it for it in right if it not in left)]
        elif key == "enum" and isinstance(left, list) and isinstance(right, list):
            both[key] = [it for it in left if any(same(it, wanted) for wanted in right)]
        elif key in ("items", "additionalProperties"):
            both[key] = False if left is False or right is False else {"allOf": [left, right]}
        elif key in _LOWER_BOUNDS and _are_numbers(left, right):
            both[key] = max(left, right)
        elif key in _UPPER_BOUNDS and _are_numbers(left, right):
            both[key] = min(left, right)
        elif key == "const" and not same(left, right):
            return None
        elif key == "type":
            wanted = _types_in_both(types_of(one), types_of(other))
            if not wanted:
                return None
            both[key] = wanted
    return None if both.get("enum") == [] else both


def _are_numbers(*values: object) -> bool:
    return all(isinstance(it, int | float) and not isinstance(it, bool) for it in values)


def _types_in_both(left: list[str], right: list[str]) -> list[str]:
    types = [it for it in left if it in right or (it == "integer" and "number" in right)]
    return types + [it for it in right if it == "integer" and "number" in left and it not in types]
