"""Makes values for schemas: the least that is allowed, everything that is declared, or a random one.

Values are made in good faith and verified by whoever asked for them. Bounded in steps, depth and size.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from playhead.check.arguments_shapes import NoValueError, Shape, Shapes, same, types_of
from playhead.check.arguments_strings import MAX_STRING, WORD, described, of_format, of_length, of_pattern

Style = Literal["least", "full", "random"]

MAX_ITEMS: Final = 200
"""Items of one array, and properties of one object, that are made."""
_MAX_DEPTH: Final = 24
_FULL_DEPTH: Final = 4
"""Optional properties deeper than this are left out: a recursive schema ends here."""
_MAX_VALUES: Final = 20_000
SAFE_INTEGER: Final = 2**53 - 1
"""The largest whole number that every JSON library reads exactly (RFC 8259, section 6)."""
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz ABCXYZ 0123456789 -_.,äß世🎵"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The numbers a shape allows, both ends included; None is no end."""

    lower: int | float | None
    upper: int | float | None
    whole: bool
    step: int | float | None

    @classmethod
    def of(cls, shape: Shape) -> Range:
        whole = "integer" in types_of(shape) and "number" not in types_of(shape)
        beyond_lower, beyond_upper = number(shape, "exclusiveMinimum"), number(shape, "exclusiveMaximum")
        inset: float = 1
        if not whole and beyond_lower is not None and beyond_upper is not None:
            inset = min(1.0, abs(beyond_upper - beyond_lower) / 4)
        lowers = [
            number(shape, "minimum"),
            None if beyond_lower is None else _after(beyond_lower, inset, whole=whole),
        ]
        uppers = [
            number(shape, "maximum"),
            None if beyond_upper is None else -_after(-beyond_upper, inset, whole=whole),
        ]
        step = number(shape, "multipleOf")
        lower = max((it for it in lowers if it is not None), default=None)
        upper = min((it for it in uppers if it is not None), default=None)
        if whole:
            lower = None if lower is None else math.ceil(lower)
            upper = None if upper is None else math.floor(upper)
        return cls(lower=lower, upper=upper, whole=whole, step=step if step and step > 0 else None)

    def fit(self, wanted: int | float) -> int | float:
        """The allowed number nearest to `wanted`, where steps let it be found. Raises `NoValueError`."""
        value = wanted
        if self.lower is not None:
            value = max(value, self.lower)
        if self.upper is not None:
            value = min(value, self.upper)
        if self.step is not None and value % self.step:
            value = math.ceil(value / self.step) * self.step
            if self.upper is not None and value > self.upper:
                value = math.floor(self.upper / self.step) * self.step
        if self.whole and value != int(value):
            value = math.ceil(value)
        if (self.lower is not None and value < self.lower) or (self.upper is not None and value > self.upper):
            raise NoValueError(f"no number from {self.lower} to {self.upper}")
        return int(value) if self.whole else value


def number(shape: Shape, key: str) -> int | float | None:
    """A keyword's number, or None."""
    value = shape.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def _after(value: int | float, inset: float, *, whole: bool) -> int | float:
    """The first number tried that is greater than `value`."""
    return math.floor(value) + 1 if whole else value + inset


def count(shape: Shape, key: str, otherwise: int) -> int:
    """A keyword that counts: `minLength`, `maxItems`, …"""
    value = number(shape, key)
    return otherwise if value is None else max(0, int(value))


class Maker:
    """Values of the schemas inside one root schema."""

    def __init__(self, shapes: Shapes, draw: random.Random, *, use_given: bool = True) -> None:
        self.shapes = shapes
        self._draw = draw
        self._use_given = use_given
        """Whether `examples` and `default` are taken: a wrong one spoils every value that holds it."""
        self._made = 0

    def value(self, schema: object, style: Style, depth: int = 0) -> Any:
        """A value. Raises `NoValueError` where none was found."""
        why = "the schema allows nothing"
        shapes = list(self.shapes.of(schema))
        if style == "random":
            self._draw.shuffle(shapes)
        for shape in shapes:
            try:
                return self.of_shape(shape, style, depth)
            except NoValueError as error:
                why = str(error)
        raise NoValueError(why)

    def of_shape(self, shape: Shape, style: Style, depth: int = 0) -> Any:
        """A value of one shape. Raises `NoValueError` where none was found."""
        self._made += 1
        if self._made > _MAX_VALUES:
            raise NoValueError(f"more than {_MAX_VALUES:,} values were made for one tool")
        if depth > _MAX_DEPTH:
            raise NoValueError("a schema that requires itself without end, or nests too deep")
        given = self._given(shape, style)
        if given:
            return given[0]
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
        raise NoValueError(f"there is no JSON type {kind[:40]!r}")

    def _given(self, shape: Shape, style: Style) -> list[Any]:
        if "const" in shape:
            return [shape["const"]]
        wanted = shape.get("enum")
        enum = wanted if isinstance(wanted, list) else []
        if style == "random":
            return [self._draw.choice(enum)] if enum else []
        found: list[Any] = []
        if self._use_given:
            examples = shape.get("examples")
            found = examples[:1] if isinstance(examples, list) else []
            # A default of null says "none" for an optional property whose schema may not even allow null.
            if shape.get("default") is not None:
                found = [*found, shape["default"]]
        return [*(it for it in found if not enum or any(same(it, one) for one in enum)), *enum]

    def kind(self, shape: Shape, style: Style = "least") -> str:
        """The JSON type to make, guessed from the keywords where none is declared."""
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
            if name in made or not self._takes(style, depth):
                continue
            try:
                made[name] = self.value(schema, style, depth + 1)
            except NoValueError:
                continue  # optional: the object does without
        self._fill(shape, made, style, depth)
        return made

    def _takes(self, style: Style, depth: int) -> bool:
        if style == "least" or depth >= _FULL_DEPTH:
            return False
        return style == "full" or self._draw.random() < 0.5

    def _fill(self, shape: Shape, made: dict[str, Any], style: Style, depth: int) -> None:
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
        """An array of `length` items, distinct where `uniqueItems` asks for that."""
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
        if (formatted := of_format(shape.get("format"))) is not None:
            return formatted
        if style == "random":
            length = self._draw.randint(low, max(low, min(high, low + 30)))
            return "".join(self._draw.choices(_LETTERS, k=length))
        told = described(shape.get("description"))
        if told is not None and low <= len(told) <= high:
            return told
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
    """The declared properties."""
    declared = shape.get("properties")
    return declared if isinstance(declared, dict) else {}


def required_of(shape: Shape) -> list[str]:
    """The names of required properties."""
    wanted = shape.get("required")
    names = [it for it in wanted if isinstance(it, str)] if isinstance(wanted, list) else []
    if len(names) > MAX_ITEMS:
        raise NoValueError(f"an object with {len(names):,} required properties")
    return names


def prefix_of(shape: Shape) -> list[Any]:
    """The schemas of the first items, each its own."""
    for key in ("prefixItems", "items"):
        if isinstance(shape.get(key), list):
            found: list[Any] = shape[key]
            return found
    return []


def rest_of(shape: Shape) -> Any:
    """The schema of all other items."""
    items = shape.get("items", True)
    return shape.get("additionalItems", True) if isinstance(items, list) else items


def _other(shape: Shape) -> Any:
    return shape.get("additionalProperties", {"type": "string"})
