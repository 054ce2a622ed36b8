"""Values at the edges of what a schema allows, one property at a time."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from playhead.check.arguments_case import Case, brief, counted, named
from playhead.check.arguments_shapes import NoValueError, Shape, types_of
from playhead.check.arguments_strings import MAX_STRING, UNICODE, of_length
from playhead.check.arguments_values import MAX_ITEMS, SAFE_INTEGER, Maker, Range, count, properties_of

LONG_STRING: Final = 2_000
"""Characters where a schema sets no bound: a page of text is nothing unusual for a model."""
_MANY_ITEMS: Final = 3
_MAX_ENUM: Final = 20
_MAX_DEPTH: Final = 3

Path = tuple[str | int, ...]
Variant = tuple[str, Any]
"""What is particular about a value, and the value."""


def boundary_cases(maker: Maker, schema: object, base: dict[str, Any]) -> Iterator[Case]:
    """The edges of each property, put into `base`, valid arguments. The extremes that the schema doesn't
    name come last. Not verified."""
    late: list[Case] = []
    for path, title, value, declared in _edges(maker, schema, (), 0):
        arguments = placed(base, path, value)
        if arguments is None:
            continue
        case = Case(title=f"{named(path)} {title}", arguments=arguments, kind="boundary")
        if declared:
            yield case
        else:
            late.append(case)
    yield from late


def placed(base: Any, path: Path, value: Any) -> Any | None:
    """A copy of `base` with `value` at `path`, or None where `base` has no such place."""
    if not path:
        return copy.deepcopy(value)
    made = copy.deepcopy(base)
    at = made
    for key in path[:-1]:
        if not isinstance(at, dict) or key not in at:
            return None
        at = at[key]
    if not isinstance(at, dict):
        return None
    at[path[-1]] = value
    return made


def _edges(maker: Maker, schema: object, path: Path, depth: int) -> Iterator[tuple[Path, str, Any, bool]]:
    for shape in maker.shapes.of(schema):
        if path:
            for title, value in _declared(maker, shape):
                yield path, title, value, True
            for title, value in _undeclared(maker, shape):
                yield path, title, value, False
        if depth < _MAX_DEPTH and maker.kind(shape) == "object":
            for name, inner in list(properties_of(shape).items())[:MAX_ITEMS]:
                yield from _edges(maker, inner, (*path, name), depth + 1)


def _declared(maker: Maker, shape: Shape) -> Iterator[Variant]:
    """Edges that the schema names."""
    if "const" in shape:
        return
    if isinstance(enum := shape.get("enum"), list):
        yield from ((brief(value), value) for value in enum[:_MAX_ENUM])
        return
    if "null" in types_of(shape):
        yield "null", None
    match maker.kind(shape):
        case "boolean":
            yield from (("true", True), ("false", False))
        case "integer" | "number":
            span = Range.of(shape)
            if span.lower is not None:
                yield from _fitted(span, span.lower, "its minimum")
            if span.upper is not None:
                yield from _fitted(span, span.upper, "its maximum")
        case "string" if "pattern" not in shape and "format" not in shape:
            if (least := count(shape, "minLength", 0)) and least <= MAX_STRING:
                yield f"of {counted(least, 'character')}, its shortest", of_length(least)
            if (most := count(shape, "maxLength", MAX_STRING + 1)) <= MAX_STRING:
                yield f"of {counted(most, 'character')}, its longest", of_length(most)
        case "array":
            for key, word in (("minItems", "fewest"), ("maxItems", "most")):
                length = count(shape, key, MAX_ITEMS + 1)
                if length <= MAX_ITEMS:
                    yield from _array(maker, shape, length, f", its {word}")


def _undeclared(maker: Maker, shape: Shape) -> Iterator[Variant]:
    """Edges that it doesn't name, and allows."""
    if shape.keys() & {"const", "enum"}:
        return
    match maker.kind(shape):
        case "integer" | "number" as kind:
            span = Range.of(shape)
            wanted: list[float] = [0]
            wanted += [] if kind == "integer" else [0.5]
            wanted += [] if span.lower is not None else [-1]
            wanted += [] if span.upper is not None else [SAFE_INTEGER]
            for value in wanted:
                yield from _fitted(span, value, None)
        case "string" if "pattern" not in shape and "format" not in shape:
            least, most = count(shape, "minLength", 0), count(shape, "maxLength", LONG_STRING)
            if least == 0:
                yield "empty", ""
            if least <= most <= MAX_STRING or least <= len(UNICODE) <= most:
                yield "of many scripts", of_length(max(least, min(most, len(UNICODE))), UNICODE)
            if "maxLength" not in shape and least <= LONG_STRING:
                yield f"of {LONG_STRING:,} characters", of_length(LONG_STRING)
        case "array":
            for length in (0, 1, _MANY_ITEMS):
                if count(shape, "minItems", 0) < length < count(shape, "maxItems", MAX_ITEMS) or (
                    length == 0 and "minItems" not in shape
                ):
                    yield from _array(maker, shape, length, "")


def _fitted(span: Range, wanted: float, word: str | None) -> Iterator[Variant]:
    try:
        value = span.fit(wanted)
    except (NoValueError, OverflowError):
        return
    yield f"{brief(value)}{f', {word}' if word else ''}", value


def _array(maker: Maker, shape: Shape, length: int, word: str) -> Iterator[Variant]:
    try:
        value = maker.items(shape, length, "full", 1)
    except NoValueError:
        return
    yield f"of {counted(length, 'item')}{word}", value
