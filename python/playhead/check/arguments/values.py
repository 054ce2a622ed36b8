"""Generate values for schemas: the smallest allowed, everything declared, or random.

Values are plausible; the caller validates them. Steps, depth and size are bounded. Strings are made for a
length, a format or a regular expression.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from playhead.check.arguments.number_range import Range, number
from playhead.check.arguments.patterns import MAX_STRING, of_pattern
from playhead.content.schema_shapes import NoValueError, Shape, Shapes, same, types_of

WORD: Final = "example"
UNICODE: Final = "Grüße, 世界! 🎵 \u0301\u202e'\"\\\n\t<&>"
"""Has two scripts, an astral character, a combining and a right-to-left mark, quotes and controls."""

_FORMATS: Final = {
    "date-time": "2026-01-12T10:00:00Z",
    "date": "2026-01-12",
    "time": "10:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "idn-email": "someone@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uri-reference": "https://example.com/",
    "iri": "https://example.com/",
    "iri-reference": "https://example.com/",
    "uri-template": "https://example.com/{name}",
    "uuid": "2f1e4b7a-9c3d-4e8f-8a6b-0d5c7e9f1a23",
    "regex": "a+",
    "json-pointer": "/a",
    "relative-json-pointer": "0",
    "byte": "QUFB",
}
"""Maps each format to a valid string. Addresses and names are those for examples (RFC 2606, 5737, 3849)."""

_QUOTED: Final = re.compile(
    r"""(?:e\.g\.|for example|such as|like)[\s,:(]{0,3}(?P<quote>['"`])(?P<text>.{1,60}?)(?P=quote)""", re.I
)


def example_in(description: object) -> str | None:
    """Extract an example from a description (`e.g. 'Europe/Paris'`): better than any generated value."""
    if not isinstance(description, str):
        return None
    example = _QUOTED.search(description[:2000])
    return example["text"] if example else None


def of_length(length: int, text: str = WORD) -> str:
    """Truncate or repeat `text` to `length` characters."""
    return (text * (length // len(text) + 1))[:length]


Style = Literal["least", "full", "random"]

MAX_ITEMS: Final = 200
"""Limits the generated items of an array, and the properties of an object."""
_MAX_DEPTH: Final = 24
_FULL_DEPTH: Final = 4
"""Optional properties deeper than this are omitted, so that recursive schemas end."""
_MAX_VALUES: Final = 20_000
SAFE_INTEGER: Final = 2**53 - 1
"""Is the largest integer that every JSON library reads exactly (RFC 8259, section 6)."""
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz ABCXYZ 0123456789 -_.,äß世🎵"


def count(shape: Shape, key: str, otherwise: int) -> int:
    """Return the value of a counting keyword (`minLength`, `maxItems`, …)."""
    value = number(shape, key)
    return otherwise if value is None else max(0, int(value))


class Maker:
    """Generate values for the schemas inside one root schema."""

    def __init__(self, shapes: Shapes, draw: random.Random, *, use_examples: bool = True) -> None:
        self.shapes = shapes
        self._draw = draw
        self._use_examples = use_examples
        """True if values come from `examples` and `default`. One invalid example would make every value
        invalid."""
        self._made = 0

    def value(self, schema: object, style: Style, depth: int = 0) -> Any:
        """Generate a value. Raises `NoValueError` if none is found."""
        reason = "the schema allows nothing"
        shapes = list(self.shapes.of(schema))
        if style == "random":
            self._draw.shuffle(shapes)
        for shape in shapes:
            try:
                return self.of_shape(shape, style, depth)
            except NoValueError as error:
                reason = str(error)
        raise NoValueError(reason)

    def of_shape(self, shape: Shape, style: Style, depth: int = 0) -> Any:
        """Generate a value of one shape. Raises `NoValueError` if none is found."""
        self._made += 1
        if self._made > _MAX_VALUES:
            raise NoValueError(f"more than {_MAX_VALUES:,} values were generated for one tool")
        if depth > _MAX_DEPTH:
            raise NoValueError("the schema requires itself endlessly, or nests too deep")
        if examples := self._examples(shape, style):
            return examples[0]
        kind = self.kind(shape, style)
        match kind:
            case "object":
                return self._object(shape, style, depth)
            case "array":
                return self._array(shape, style, depth)
            case "string":
                return self._string(shape, style)
            case "integer" | "number":
                return self._number(shape, style, whole=kind == "integer")
            case "boolean":
                return self._draw.random() < 0.5 if style == "random" else True
            case "null":
                return None
        raise NoValueError(f"unknown JSON type {kind[:40]!r}")

    def _examples(self, shape: Shape, style: Style) -> list[Any]:
        """Return the values that the schema itself names, the best first."""
        if "const" in shape:
            return [shape["const"]]
        wanted = shape.get("enum")
        enum = wanted if isinstance(wanted, list) else []
        if style == "random":
            return [self._draw.choice(enum)] if enum else []
        values: list[Any] = []
        if self._use_examples:
            examples = shape.get("examples")
            values = examples[:1] if isinstance(examples, list) else []
            # A null default means "absent", even if the schema does not allow null.
            if shape.get("default") is not None:
                values = [*values, shape["default"]]
        return [*(it for it in values if not enum or any(same(it, one) for one in enum)), *enum]

    def kind(self, shape: Shape, style: Style = "least") -> str:
        """Return the JSON type to generate, guessed from the keywords if undeclared."""
        declared = types_of(shape)
        if declared:
            if style == "random":
                return self._draw.choice(declared)
            return next((it for it in declared if it != "null"), "null")
        if shape.keys() & {"properties", "required", "additionalProperties", "minProperties"}:
            return "object"
        if shape.keys() & {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}:
            return "array"
        if shape.keys() & {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}:
            return "number"
        return "string"

    # --- objects ---------------------------------------------------------------------------------------

    def _object(self, shape: Shape, style: Style, depth: int) -> dict[str, Any]:
        declared = properties_of(shape)
        made: dict[str, Any] = {}
        for name in required_of(shape):
            made[name] = self.value(declared.get(name, _other(shape)), style, depth + 1)
        for name, schema in list(declared.items())[:MAX_ITEMS]:
            if name in made or not self._adds_optional(style, depth):
                continue
            try:
                made[name] = self.value(schema, style, depth + 1)
            except NoValueError:
                continue  # the property is optional
        self._fill(shape, made, style, depth)
        return made

    def _adds_optional(self, style: Style, depth: int) -> bool:
        if style == "least" or depth >= _FULL_DEPTH:
            return False
        return style == "full" or self._draw.random() < 0.5

    def _fill(self, shape: Shape, made: dict[str, Any], style: Style, depth: int) -> None:
        """Add properties to `made` until it has as many as the shape requires."""
        wanted = count(shape, "minProperties", 0)
        if wanted > MAX_ITEMS:
            raise NoValueError(f"an object of {wanted:,} properties")
        for name, schema in properties_of(shape).items():
            if len(made) >= wanted:
                return
            if name not in made:
                made[name] = self.value(schema, style, depth + 1)
        other = _other(shape)
        patterns = shape.get("patternProperties")
        if other is False and isinstance(patterns, dict) and patterns:
            pattern, schema = next(iter(patterns.items()))
            for extra in range(wanted - len(made)):
                made[of_pattern(pattern, least=extra)] = self.value(schema, style, depth + 1)
        while len(made) < wanted:
            made[f"property{len(made)}"] = self.value(other, style, depth + 1)

    # --- arrays ----------------------------------------------------------------------------------------

    def _array(self, shape: Shape, style: Style, depth: int) -> list[Any]:
        low, high = count(shape, "minItems", 0), count(shape, "maxItems", MAX_ITEMS)
        if low > MAX_ITEMS:
            raise NoValueError(f"an array of {low:,} items")
        prefix = prefix_of(shape)
        length = low
        if depth < _FULL_DEPTH and style == "full":
            length = max(low, len(prefix), 1)
        elif style == "random":
            length = self._draw.randint(low, max(low, min(high, low + 4))) if depth < _FULL_DEPTH else low
        return self.items(shape, min(length, max(high, low)), style, depth)

    def items(self, shape: Shape, length: int, style: Style, depth: int = 0) -> list[Any]:
        """Generate an array of `length` items, distinct if `uniqueItems` is true."""
        prefix, rest = prefix_of(shape), rest_of(shape)
        distinct = shape.get("uniqueItems") is True
        made: list[Any] = []
        for index in range(length):
            schema = prefix[index] if index < len(prefix) else rest
            item = self.value(schema, style, depth + 1)
            for attempt in range(50 if distinct else 0):
                if not any(same(item, one) for one in made):
                    break
                item = self._another(schema, attempt, depth)
            made.append(item)
        return made

    def _another(self, schema: object, attempt: int, depth: int) -> Any:
        for shape in self.shapes.of(schema):
            enum = shape.get("enum")
            if isinstance(enum, list) and attempt < len(enum):
                return enum[attempt]
        return self.value(schema, "random", depth + 1)

    # --- strings and numbers ---------------------------------------------------------------------------

    def _string(self, shape: Shape, style: Style) -> str:
        low, high = count(shape, "minLength", 0), count(shape, "maxLength", MAX_STRING)
        if low > MAX_STRING:
            raise NoValueError(f"a string of {low:,} characters")
        if isinstance(pattern := shape.get("pattern"), str):
            return of_pattern(pattern, draw=self._draw if style == "random" else None, least=low)
        if isinstance(name := shape.get("format"), str) and name in _FORMATS:
            return _FORMATS[name]
        if style == "random":
            length = self._draw.randint(low, max(low, min(high, low + 30)))
            return "".join(self._draw.choices(_LETTERS, k=length))
        example = example_in(shape.get("description"))
        if example is not None and low <= len(example) <= high:
            return example
        return of_length(max(low, min(high, len(WORD))))

    def _number(self, shape: Shape, style: Style, *, whole: bool) -> int | float:
        span = Range.of({**shape, "type": "integer" if whole else "number"})
        if style != "random":
            return span.fit(1)
        low = span.lower if span.lower is not None else min(-1000, (span.upper or 0) - 1000)
        high = span.upper if span.upper is not None else max(1000, low + 1000)
        if low > high:
            raise NoValueError(f"no number from {low} to {high}")
        return span.fit(
            self._draw.randint(int(low), int(high)) if whole else round(self._draw.uniform(low, high), 3)
        )


def properties_of(shape: Shape) -> Mapping[str, Any]:
    """Return the declared properties."""
    declared = shape.get("properties")
    return declared if isinstance(declared, dict) else {}


def required_of(shape: Shape) -> list[str]:
    """Return the names of the required properties."""
    wanted = shape.get("required")
    names = [it for it in wanted if isinstance(it, str)] if isinstance(wanted, list) else []
    if len(names) > MAX_ITEMS:
        raise NoValueError(f"an object with {len(names):,} required properties")
    return names


def prefix_of(shape: Shape) -> list[Any]:
    """Return the positional schemas of the first items."""
    for key in ("prefixItems", "items"):
        if isinstance(shape.get(key), list):
            prefix: list[Any] = shape[key]
            return prefix
    return []


def rest_of(shape: Shape) -> Any:
    """Return the schema of all other items."""
    items = shape.get("items", True)
    return shape.get("additionalItems", True) if isinstance(items, list) else items


def _other(shape: Shape) -> Any:
    return shape.get("additionalProperties", {"type": "string"})
