"""Test arguments for a tool: boundary values of its schema, single violations of it, and simplifications."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from playhead.check.arguments.number_range import Range
from playhead.check.arguments.patterns import MAX_STRING
from playhead.check.arguments.values import (
    MAX_ITEMS,
    SAFE_INTEGER,
    UNICODE,
    Maker,
    count,
    of_length,
    properties_of,
    required_of,
)
from playhead.content.schema_shapes import NoValueError, Shape, same, types_of
from playhead.escaping import counted

Kind = Literal["valid", "boundary", "random", "invalid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Arguments of one call, and what is known of their validity."""

    title: str
    """The feature that the case tests: "the least", "without `query`", "`max_results` 0, below its minimum
    1"."""
    arguments: Any
    """The arguments: an object, except in some invalid cases."""
    kind: Kind
    certain: bool = False
    """True for an invalid case that every correct server refuses: a required property is missing, or a value
    has the wrong JSON type. Servers often treat lengths and ranges as mere recommendations."""
    place: tuple[str | int, ...] | None = None
    """The keys that lead to the violation in an invalid case."""


def path_words(path: tuple[str | int, ...]) -> str:
    """Format a path into the arguments for a title: `` `filter.limit` ``."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return f"`{text[:80]}`"


def value_words(value: Any) -> str:
    """Format any value briefly, for a title."""
    match value:
        case str() if len(value) > 30:
            return f"a string of {len(value):,} characters"
        case str():
            return ascii(value) if any(ord(it) < 32 for it in value) else f'"{value}"'
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case int() | float():
            return str(value) if abs(value) < 10**20 else "a very large number"
        case list():
            return f"an array of {len(value)}"
        case dict():
            return "an object"
    return type(value).__name__


LONG_STRING: Final = 2_000
"""Sets the length of a long string without a limit in the schema. Models often send a page of text."""
_MANY_ITEMS: Final = 3
_MAX_ENUM: Final = 20
_MAX_DEPTH: Final = 3

_REMOVED: Final = object()

Path = tuple[str | int, ...]
Variant = tuple[str, Any]
"""A description of a value, for the title of its case, and the value."""


def boundary_cases(maker: Maker, schema: object, base: dict[str, Any]) -> Iterator[Case]:
    """Yield the valid arguments `base`, each time with one boundary value of one property.

    Values that the schema does not name come last. The caller validates the cases.
    """
    late: list[Case] = []
    for path, title, value, declared in _edges(maker, schema, (), 0):
        arguments = _placed(base, path, value)
        if arguments is None:
            continue
        case = Case(title=f"{path_words(path)} {title}", arguments=arguments, kind="boundary")
        if declared:
            yield case
        else:
            late.append(case)
    yield from late


def _changed(value: Any, path: Path, new: Any) -> Any:
    """Return a copy of `value` with `new` at `path`, or without that place if `new` is `_REMOVED`."""
    key, rest = path[0], path[1:]
    made = value.copy()
    if not rest and new is _REMOVED:
        del made[key]
    else:
        made[key] = _changed(value[key], rest, new) if rest else new
    return made


def _placed(base: dict[str, Any], path: Path, new: Any) -> dict[str, Any] | None:
    """Return a changed copy, as `_changed` does, or None if `base` has no such place."""
    try:
        changed: dict[str, Any] = _changed(base, path, new)
    except (KeyError, TypeError, AttributeError):
        return None
    return changed


def _edges(maker: Maker, schema: object, path: Path, depth: int) -> Iterator[tuple[Path, str, Any, bool]]:
    for shape in maker.shapes.of(schema):
        if path:
            for title, value in _declared_edges(maker, shape):
                yield path, title, value, True
            for title, value in _undeclared_edges(maker, shape):
                yield path, title, value, False
        if depth < _MAX_DEPTH and maker.kind(shape) == "object":
            for name, inner in list(properties_of(shape).items())[:MAX_ITEMS]:
                yield from _edges(maker, inner, (*path, name), depth + 1)


def _declared_edges(maker: Maker, shape: Shape) -> Iterator[Variant]:
    """Generate the boundary values that the schema names."""
    if "const" in shape:
        return
    if isinstance(enum := shape.get("enum"), list):
        yield from ((value_words(value), value) for value in enum[:_MAX_ENUM])
        return
    if "null" in types_of(shape):
        yield "null", None
    match maker.kind(shape):
        case "boolean":
            yield from (("true", True), ("false", False))
        case "integer" | "number":
            span = Range.of(shape)
            if span.lower is not None:
                yield from _fit(span, span.lower, "its minimum")
            if span.upper is not None:
                yield from _fit(span, span.upper, "its maximum")
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


def _undeclared_edges(maker: Maker, shape: Shape) -> Iterator[Variant]:
    """Generate boundary values that the schema allows without naming them."""
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
                yield from _fit(span, value, None)
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


def _fit(span: Range, wanted: float, word: str | None) -> Iterator[Variant]:
    try:
        value = span.fit(wanted)
    except (NoValueError, OverflowError):
        return
    yield f"{value_words(value)}{f', {word}' if word else ''}", value


def _array(maker: Maker, shape: Shape, length: int, word: str) -> Iterator[Variant]:
    try:
        value = maker.items(shape, length, "full", 1)
    except NoValueError:
        return
    yield f"of {counted(length, 'item')}{word}", value


_WRONG: Final[tuple[tuple[str, Any], ...]] = (
    ("object", {"wrong": "type"}),
    ("number", 12345),
    ("string", "wrong type"),
    ("array", ["wrong type"]),
    ("boolean", True),
    ("null", None),
)
"""Has a value of each type. A case uses the first one whose type the schema excludes. Objects are first:
lenient servers convert "5" to 5, but do not convert objects."""
NO_OBJECTS: Final[tuple[tuple[str, Any], ...]] = (("an array", []), ("a string", "arguments"))
_ADDED: Final = "playhead_undeclared"


def invalid_cases(maker: Maker, schema: object, base: dict[str, Any]) -> Iterator[Case]:
    """Yield the valid arguments `base`, each time with one violation of the schema.

    Certain violations come first. The caller validates the cases.
    """
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
            here = (*path, name)
            if (arguments := _placed(base, here, _REMOVED)) is not None:
                title = f"without {path_words(here)}"
                # Schema generators list properties with a default as required, and servers fill them in.
                certain = not _has_default(properties_of(shape).get(name))
                yield Case(title=title, arguments=arguments, kind="invalid", certain=certain, place=here)
        for name, inner in list(properties_of(shape).items())[:MAX_ITEMS]:
            here = (*path, name)
            yield from _property_cases(maker, inner, base, here)
            if depth < _MAX_DEPTH:
                yield from _object_cases(maker, inner, base, here, depth + 1)
        added = _placed(base, (*path, _ADDED), 1)
        if shape.get("additionalProperties") is False and added is not None:
            title = f"with {path_words((*path, _ADDED))}, which is not declared"
            yield Case(title=title, arguments=added, kind="invalid", place=(*path, _ADDED))


def _has_default(schema: object) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _property_cases(maker: Maker, schema: object, base: dict[str, Any], path: Path) -> Iterator[Case]:
    shapes = maker.shapes.of(schema)
    if (wrong := _wrong_type(shapes)) is not None:
        kind, value, wanted = wrong
        arguments = _placed(base, path, value)
        if arguments is not None:
            article = "an" if kind[0] in "ao" else "a"
            words = "null" if value is None else f"{article} {kind}"
            title = f"{path_words(path)} {words} in place of {wanted}"
            # Many languages read null as an absent value.
            certain = value is not None
            yield Case(title=title, arguments=arguments, kind="invalid", certain=certain, place=path)
    for shape in shapes:
        for title, value in _breaches(maker, shape):
            arguments = _placed(base, path, value)
            if arguments is not None:
                yield Case(
                    title=f"{path_words(path)} {title}", arguments=arguments, kind="invalid", place=path
                )


def _wrong_type(shapes: Any) -> tuple[str, Any, str] | None:
    """Return a type that no alternative declares, a value of it, and the declared types in words."""
    declared: list[str] = []
    for shape in shapes:
        types = types_of(shape)
        if not types:
            return None  # any type is allowed
        declared += types
    if not declared:
        return None
    allowed = {"number" if it == "integer" else it for it in declared}
    wrong = next((pair for pair in _WRONG if pair[0] not in allowed), None)
    return None if wrong is None else (*wrong, " or ".join(dict.fromkeys(declared)))


def _breaches(maker: Maker, shape: Shape) -> Iterator[tuple[str, Any]]:
    """Generate values of the right type that the schema excludes."""
    if isinstance(enum := shape.get("enum"), list):
        unlisted: Any = "playhead-undeclared" if any(isinstance(it, str) for it in enum) else 987_654
        if not any(same(unlisted, it) for it in enum):
            yield f"{value_words(unlisted)}, which is not in its enum", unlisted
        return
    match maker.kind(shape):
        case "integer" | "number" as kind:
            span = Range.of(shape)
            if span.lower is not None:
                below = span.lower - 1
                yield f"{value_words(below)}, below its minimum {value_words(span.lower)}", below
            if span.upper is not None:
                above = span.upper + 1
                yield f"{value_words(above)}, above its maximum {value_words(span.upper)}", above
            if kind == "integer":
                yield "1.5 in place of a whole number", 1.5
        case "string":
            least, most = count(shape, "minLength", 0), count(shape, "maxLength", MAX_STRING + 1)
            if 0 < least <= MAX_STRING:
                title = f"of {counted(least - 1, 'character')}, below its minLength {least:,}"
                yield title, of_length(least - 1)
            if most <= MAX_STRING:
                title = f"of {counted(most + 1, 'character')}, above its maxLength {most:,}"
                yield title, of_length(most + 1)
            if isinstance(shape.get("pattern"), str):
                for text in ("~", "", "0", "a"):
                    yield f"{value_words(text)}, which its pattern does not allow", text
        case "array":
            least, most = count(shape, "minItems", 0), count(shape, "maxItems", MAX_ITEMS + 1)
            if 0 < least <= MAX_ITEMS:
                yield from _array(maker, shape, least - 1, f", below its minItems {least}")
            if most <= MAX_ITEMS:
                yield from _array(maker, shape, most + 1, f", above its maxItems {most}")


# --- simpler arguments -----------------------------------------------------------------------------------

_SIXTEENTHS: Final = (8, 12, 14, 15)
"""Sets the sixteenths of a number or length to try: a few steps find the limit at which a failure begins."""


def simplifications(arguments: dict[str, Any], *, keep: Path | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield arguments that are simpler than `arguments` in one place, the largest steps first.

    Each comes with a name, made of the place and its new value, by which the same step is recognised in other
    arguments. The value at the path `keep` stays in place, so that a violation there remains. The caller
    validates the arguments.
    """
    size = _size(arguments)
    removable = [name for name in arguments if not _leads((name,), keep)]
    if len(removable) > 1:
        yield "all", {name: value for name, value in arguments.items() if name not in removable}
    for path, value in _simpler(arguments, (), keep):
        made = _changed(arguments, path, value)
        if _size(made) < size:
            yield f"{path}: {'' if value is _REMOVED else json.dumps(value)}", made


def _size(arguments: object) -> tuple[int, str]:
    text = json.dumps(arguments)
    return len(text), text


def _leads(path: Path, keep: Path | None) -> bool:
    """Return True if `path` leads to `keep`."""
    return keep is not None and keep[: len(path)] == path


def _simpler(value: Any, path: Path, keep: Path | None) -> Iterator[tuple[Path, Any]]:
    """Yield each place that can be simplified, with its new value or `_REMOVED`."""
    if path == keep:
        return
    match value:
        case dict():
            yield from (((*path, key), _REMOVED) for key in value if not _leads((*path, key), keep))
            for key, item in value.items():
                yield from _simpler(item, (*path, key), keep)
        case list():
            if not _leads(path, keep):
                yield from ((path, value[:length]) for length in _shares(len(value)))
            for index, item in enumerate(value[:_MANY_ITEMS]):
                yield from _simpler(item, (*path, index), keep)
        case str():
            yield from ((path, value[:length]) for length in _shares(len(value)))
            yield path, "a" * len(value)
        case bool() | None:
            return
        case int():
            sign = 1 if value > 0 else -1
            yield from ((path, sign * size) for size in _shares(abs(value)))
        case float():
            yield from ((path, number) for number in (0, 1, int(value)) if abs(value) < SAFE_INTEGER)


def _shares(size: int) -> list[int]:
    """Return some sizes from 0 to below `size`, in integers: a JSON integer may exceed every float."""
    sizes = [0, *(size * share // 16 for share in _SIXTEENTHS), size - 1]
    return list(dict.fromkeys(it for it in sizes if 0 <= it < size))
