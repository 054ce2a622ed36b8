"""Expand a JSON Schema into plain shapes: references followed, `allOf` merged, and `anyOf`, `oneOf` and `if`
expanded into alternatives.

This helps to generate values and is not a validator: `not`, `dependentSchemas` and the like are ignored here,
and every generated value is validated against the whole schema (`Validity`). Bounded: a schema that refers to
itself, or doubles at each level, yields fewer alternatives and never an endless walk.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

MAX_ALTERNATIVES: Final = 8
"""Alternatives of one schema: enough for every `anyOf` seen in real schemas."""
MAX_STEPS: Final = 20_000
"""Schemas expanded for one tool: some tenths of a second."""
_MAX_CHAIN: Final = 32
_EXPANDED: Final = frozenset(
    {"$ref", "allOf", "anyOf", "oneOf", "if", "then", "else", "$defs", "definitions", "$schema", "$id"}
)
_LOWER: Final = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_UPPER: Final = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})

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
        """Return the alternatives, none for `false` and contradictions.

        Raises `NoValueError` for a schema that is too large to expand.
        """
        return self._of(schema, 0)

    def _of(self, schema: object, chain: int) -> list[dict[str, Any]]:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise NoValueError(f"the schema takes more than {MAX_STEPS:,} steps to expand")
        if schema is False or chain > _MAX_CHAIN:
            return []
        if not isinstance(schema, dict):
            return [{}]  # `true` allows any value
        shapes = [{key: value for key, value in schema.items() if key not in _EXPANDED}]
        if isinstance(ref := schema.get("$ref"), str):
            shapes = self._combined(shapes, self._of(self._resolve(ref), chain + 1))
        for part in _schemas(schema.get("allOf")):
            shapes = self._combined(shapes, self._of(part, chain + 1))
        for key in ("anyOf", "oneOf"):
            if parts := _schemas(schema.get(key)):
                shapes = self._combined(shapes, self._any_of(parts, chain + 1))
        if "if" in schema:
            met = self._combined(self._of(schema["if"], chain + 1), self._of(schema.get("then"), chain + 1))
            shapes = self._combined(shapes, [*met, *self._of(schema.get("else"), chain + 1)])
        return shapes

    def _any_of(self, parts: list[object], chain: int) -> list[dict[str, Any]]:
        shapes: list[dict[str, Any]] = []
        for part in parts:
            if len(shapes) >= MAX_ALTERNATIVES:  # more would be dropped anyway, and double at each level
                break
            shapes += self._of(part, chain)
        return shapes

    def _combined(self, left: list[dict[str, Any]], right: list[dict[str, Any]]) -> list[dict[str, Any]]:
        merged = (_merged(one, other) for one in left for other in right[:MAX_ALTERNATIVES])
        return [shape for shape in merged if shape is not None][:MAX_ALTERNATIVES]

    def _resolve(self, ref: str) -> object:
        target = None
        if ref.startswith("#"):
            target = self._root if ref == "#" else self._follow(ref)
        if target is None:
            self.unresolved.add(ref[:100])
            return {}
        return target

    def _follow(self, ref: str) -> object:
        if not ref.startswith("#/"):
            return next((each for each in objects_in(self._root) if each.get("$anchor") == ref[1:]), None)
        at: object = self._root
        for step in ref[2:].split("/"):
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(at, dict):
                at = at.get(key)
            elif isinstance(at, list) and key.isascii() and key.isdigit() and int(key) < len(at):
                at = at[int(key)]
            else:
                return None
        return at


def _schemas(value: object) -> list[object]:
    return value[: 4 * MAX_ALTERNATIVES] if isinstance(value, list) else []


def objects_in(root: object) -> Iterator[dict[str, Any]]:
    """Iterate over every object in a schema, without recursion."""
    left = [root]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield value
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)


def same(one: object, other: object) -> bool:
    """Compare two JSON values; 1 and true differ."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def types_of(shape: Shape) -> list[str]:
    """Return the declared JSON types, in order."""
    declared = shape.get("type")
    if isinstance(declared, str):
        return [declared]
    return [it for it in declared if isinstance(it, str)] if isinstance(declared, list) else []


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any] | None:
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
        elif key in _LOWER and _numbers(left, right):
            both[key] = max(left, right)
        elif key in _UPPER and _numbers(left, right):
            both[key] = min(left, right)
        elif key == "const" and not same(left, right):
            return None
        elif key == "type":
            wanted = _types_in_both(types_of(one), types_of(other))
            if not wanted:
                return None
            both[key] = wanted
    return None if both.get("enum") == [] else both


def _numbers(*values: object) -> bool:
    return all(isinstance(it, int | float) and not isinstance(it, bool) for it in values)


def _types_in_both(left: list[str], right: list[str]) -> list[str]:
    types = [it for it in left if it in right or (it == "integer" and "number" in right)]
    return types + [it for it in right if it == "integer" and "number" in left and it not in types]
