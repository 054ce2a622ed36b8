"""Arguments that break a schema in one place each."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from playhead.check.arguments_boundary import Path, placed
from playhead.check.arguments_case import Case, brief, counted, named
from playhead.check.arguments_shapes import NoValueError, Shape, same, types_of
from playhead.check.arguments_strings import MAX_STRING, of_length
from playhead.check.arguments_values import (
    MAX_ITEMS,
    Maker,
    Range,
    count,
    properties_of,
    required_of,
)

_MAX_DEPTH: Final = 3
_WRONG: Final[tuple[tuple[str, Any], ...]] = (
    ("object", {"wrong": "type"}),
    ("number", 12345),
    ("string", "wrong type"),
    ("array", ["wrong type"]),
    ("boolean", True),
    ("null", None),
)
"""In this order: an object in place of a text or number is nothing that lenient readers convert, as they do
with "5" for 5."""
NO_OBJECTS: Final[tuple[tuple[str, Any], ...]] = (("an array", []), ("a string", "arguments"))
_ADDED: Final = "playhead_undeclared"


def invalid_cases(maker: Maker, schema: object, base: dict[str, Any]) -> Iterator[Case]:
    """`base`, valid arguments, broken in one place each; the certain breaches first. Not verified."""
    cases = list(_object_cases(maker, schema, base, (), 0))
    yield from (case for case in cases if case.certain)
    for title, value in NO_OBJECTS:
        yield Case(title=f"{title} in place of an object", arguments=value, kind="invalid", certain=True)
    yield from (case for case in cases if not case.certain)


def _object_cases(
    maker: Maker, schema: object, base: dict[str, Any], path: Path, depth: int
) -> Iterator[Case]:
    for shape in maker.shapes.of(schema):
        if maker.kind(shape) != "object":
            continue
        for name in required_of(shape):
            if (arguments := _without(base, (*path, name))) is not None:
                title = f"without {named((*path, name))}"
                # Generators of schemas list what has a default as required, and servers fill it in.
                certain = not _has_default(properties_of(shape).get(name))
                yield Case(title=title, arguments=arguments, kind="invalid", certain=certain)
        for name, inner in list(properties_of(shape).items())[:MAX_ITEMS]:
            here = (*path, name)
            yield from _property_cases(maker, inner, base, here)
            if depth < _MAX_DEPTH:
                yield from _object_cases(maker, inner, base, here, depth + 1)
        added = placed(base, (*path, _ADDED), 1)
        if shape.get("additionalProperties") is False and added is not None:
            title = f"with {named((*path, _ADDED))}, which is not declared"
            yield Case(title=title, arguments=added, kind="invalid")


def _has_default(schema: object) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _without(base: dict[str, Any], path: Path) -> Any | None:
    made = copy.deepcopy(base)
    at: Any = made
    for key in path[:-1]:
        if not isinstance(at, dict) or key not in at:
            return None
        at = at[key]
    if not isinstance(at, dict) or path[-1] not in at:
        return None
    del at[path[-1]]
    return made


def _property_cases(maker: Maker, schema: object, base: dict[str, Any], path: Path) -> Iterator[Case]:
    shapes = maker.shapes.of(schema)
    if (wrong := _wrong_type(shapes)) is not None:
        kind, value, wanted = wrong
        arguments = placed(base, path, value)
        if arguments is not None:
            article = "an" if kind[0] in "ao" else "a"
            title = (
                f"{named(path)} {f'{article} {kind}' if value is not None else 'null'} in place of {wanted}"
            )
            # null in place of a value says "none" in many languages, and is read so.
            certain = value is not None
            yield Case(title=title, arguments=arguments, kind="invalid", certain=certain)
    for shape in shapes:
        for title, value in _breaches(maker, shape):
            arguments = placed(base, path, value)
            if arguments is not None:
                yield Case(title=f"{named(path)} {title}", arguments=arguments, kind="invalid")


def _wrong_type(shapes: Any) -> tuple[str, Any, str] | None:
    """A value of a type that no alternative declares."""
    declared: list[str] = []
    for shape in shapes:
        types = types_of(shape)
        if not types:
            return None
        declared += types
    if not declared:
        return None
    allowed = {"number" if it == "integer" else it for it in declared}
    found = next(((kind, value) for kind, value in _WRONG if kind not in allowed), None)
    return None if found is None else (*found, " or ".join(dict.fromkeys(declared)))


def _breaches(maker: Maker, shape: Shape) -> Iterator[tuple[str, Any]]:
    """Values of the right type that the schema excludes."""
    if isinstance(enum := shape.get("enum"), list):
        odd: Any = "playhead-undeclared" if any(isinstance(it, str) for it in enum) else 987_654
        if not any(same(odd, it) for it in enum):
            yield f"{brief(odd)}, which is not in its enum", odd
        return
    match maker.kind(shape):
        case "integer" | "number" as kind:
            span = Range.of(shape)
            if span.lower is not None:
                below = span.lower - 1
                yield f"{brief(below)}, below its minimum {brief(span.lower)}", below
            if span.upper is not None:
                above = span.upper + 1
                yield f"{brief(above)}, above its maximum {brief(span.upper)}", above
            if kind == "integer":
                yield "1.5 in place of a whole number", 1.5
        case "string":
            least, most = count(shape, "minLength", 0), count(shape, "maxLength", MAX_STRING + 1)
            if 0 < least <= MAX_STRING:
                yield (
                    f"of {counted(least - 1, 'character')}, below its minLength {least:,}",
                    of_length(least - 1),
                )
            if most <= MAX_STRING:
                yield (
                    f"of {counted(most + 1, 'character')}, above its maxLength {most:,}",
                    of_length(most + 1),
                )
            if isinstance(shape.get("pattern"), str):
                for text in ("~", "", "0", "a"):
                    yield f"{brief(text)}, which its pattern does not allow", text
        case "array":
            yield from _array_breaches(maker, shape)


def _array_breaches(maker: Maker, shape: Shape) -> Iterator[tuple[str, Any]]:
    least, most = count(shape, "minItems", 0), count(shape, "maxItems", MAX_ITEMS + 1)
    wanted: list[tuple[int, str]] = []
    if 0 < least <= MAX_ITEMS:
        wanted.append((least - 1, f"below its minItems {least}"))
    if most <= MAX_ITEMS:
        wanted.append((most + 1, f"above its maxItems {most}"))
    for length, word in wanted:
        try:
            yield f"of {counted(length, 'item')}, {word}", maker.items(shape, length, "full", 1)
        except NoValueError:
            continue
