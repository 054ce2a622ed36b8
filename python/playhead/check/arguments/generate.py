"""Generate arguments from a tool's inputSchema: valid ones, boundary values, and invalid ones.

The project's validator confirms every case: valid cases conform to the schema, invalid ones don't. For a
schema without possible values there is a remark and no case, never an exception. The same schema and seed
yield the same cases. It takes milliseconds for real schemas and a few seconds for hostile ones: use a thread.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from playhead.check.arguments.cases import Case, boundary_cases, invalid_cases
from playhead.check.arguments.values import Maker, Style
from playhead.content.schema_shapes import NoValueError, Shapes
from playhead.content.validation_schema import SchemaReader

MAX_VALID: Final = 60
MAX_INVALID: Final = 40
"""Limits the invalid cases per tool. Another seed may cover further properties."""
_TRIES: Final = 6
"""Limits the attempts per random value, because some violate keywords that only the validator understands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolArguments:
    """The generated arguments of one tool."""

    valid: tuple[Case, ...]
    """The valid cases, in this order: the smallest, everything declared, boundary values, random ones."""
    invalid: tuple[Case, ...]
    """The invalid cases. Certain violations are first."""
    remarks: tuple[str, ...]
    """Notes on omitted cases, with the reasons."""


def arguments_for(schema: object, *, seed: int = 0, examples: int = 5) -> ToolArguments:
    """Generate arguments for the inputSchema `schema`, `examples` of them random. Raises nothing."""
    validity = Validity(schema)
    if validity.problem is not None:
        return _only_remark(
            f"no arguments were generated, because the inputSchema is unusable: {validity.problem}"
        )
    try:
        return _Generator(schema, validity, seed).all(examples)
    except (NoValueError, RecursionError, OverflowError, ValueError, TypeError, ArithmeticError) as error:
        # The metaschema may allow a keyword value that this module does not foresee: add a remark.
        return _only_remark(f"no arguments could be generated for the inputSchema: {error}")


def distinct_arguments(schema: object, base: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Return `count` valid arguments that differ in one property, so that their answers can be distinguished.

    `base` are valid arguments; the result is empty if none of their properties can be varied.
    """
    validity = Validity(schema)
    for name, value in base.items():
        made = [{**base, name: _varied(value, index)} for index in range(count)]
        if _can_vary(value) and all(validity.allows(arguments) for arguments in made):
            return made
    return []


def _can_vary(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _varied(value: Any, index: int) -> Any:
    if not _can_vary(value):
        return value
    return f"{value[:40]} {index + 1}" if isinstance(value, str) else value + index


def _only_remark(remark: str) -> ToolArguments:
    return ToolArguments(valid=(), invalid=(), remarks=(remark[:500],))


class _Generator:
    """Generates the arguments for one schema."""

    def __init__(self, schema: object, validity: Validity, seed: int) -> None:
        self._schema = schema
        self._wanted = {"allOf": [schema, {"type": "object"}]}
        """The schema to generate for. It says that arguments are an object, as they always are in MCP."""
        self._validity = validity
        self._seed = seed
        self._shapes = Shapes(schema)
        self._remarks: list[str] = []
        self._reasons: list[str] = []
        """Reasons for failed attempts, reported if none succeeds."""
        self._seen: set[str] = set()

    def all(self, examples: int) -> ToolArguments:
        maker = Maker(self._shapes, self._draw())
        bases = list(self._bases()) or list(self._random(1))  # a random value may satisfy a `not`
        if not bases:
            return _only_remark(self._why_none())
        fullest = max(bases, key=lambda case: len(case.arguments)).arguments
        edges = boundary_cases(maker, self._wanted, fullest)
        valid = [
            *bases,
            *self._selected([*self._schema_examples(), *edges], wanted=True, most=MAX_VALID - len(bases)),
        ]
        valid += self._random(examples)
        broken = invalid_cases(maker, self._wanted, fullest)
        invalid = self._selected(broken, wanted=False, most=MAX_INVALID)
        if self._shapes.unresolved:
            self._remarks.append(f"an external reference was not followed: {min(self._shapes.unresolved)}")
        return ToolArguments(valid=tuple(valid), invalid=tuple(invalid), remarks=tuple(self._remarks))

    def _draw(self) -> random.Random:
        return random.Random(self._seed)  # a new one per part makes the parts independent

    def _bases(self) -> Iterator[Case]:
        """Generate the smallest and the fullest valid arguments."""
        styles: tuple[tuple[Style, str], ...] = (("least", "the least"), ("full", "everything declared"))
        for style, title in styles:
            for arguments in self._attempts(style):
                if isinstance(arguments, dict) and self._validity.allows(arguments):
                    if self._is_new(arguments):
                        yield Case(title=title, arguments=arguments, kind="valid")
                    break

    def _attempts(self, style: Style) -> Iterator[Any]:
        """Generate values of each shape, with the schema's examples and then without."""
        for use_examples in (True, False):
            maker = Maker(self._shapes, self._draw(), use_examples=use_examples)
            for shape in self._shapes.of(self._wanted):
                try:
                    yield maker.of_shape(shape, style)
                except NoValueError as error:
                    self._remember(str(error))

    def _schema_examples(self) -> Iterator[Case]:
        """Yield the schema's own examples of arguments."""
        examples = self._schema.get("examples") if isinstance(self._schema, dict) else None
        for index, arguments in enumerate(examples[:10] if isinstance(examples, list) else ()):
            title = f"example {index + 1} of the schema"
            if isinstance(arguments, dict):
                yield Case(title=title, arguments=arguments, kind="valid")

    def _random(self, wanted: int) -> Iterator[Case]:
        draw = self._draw()
        made = 0
        for _attempt in range(wanted * _TRIES):
            if made == wanted:
                return
            try:
                arguments = Maker(self._shapes, draw).value(self._wanted, "random")
            except NoValueError as error:
                self._remember(str(error))
                continue
            if isinstance(arguments, dict) and self._validity.allows(arguments) and self._is_new(arguments):
                made += 1
                yield Case(title=f"random {made}", arguments=arguments, kind="random")

    def _selected(self, cases: Iterable[Case], *, wanted: bool, most: int) -> list[Case]:
        selected: list[Case] = []
        for case in cases:
            if self._validity.allows(case.arguments) is not wanted or not self._is_new(case.arguments):
                continue
            if len(selected) == most:
                self._remarks.append(f"only the first {most} {case.kind} cases were generated")
                break
            selected.append(case)
        return selected

    def _is_new(self, arguments: Any) -> bool:
        key = json.dumps(arguments, sort_keys=True)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _remember(self, why: str) -> None:
        if why not in self._reasons and len(self._reasons) < 3:
            self._reasons.append(why)

    def _why_none(self) -> str:
        if self._shapes.unresolved:
            return (
                f"no arguments could be generated: the inputSchema refers to {min(self._shapes.unresolved)},"
                " and external references are not followed"
            )
        why = "; ".join(self._reasons) or "every generated object violates it"
        return f"no valid arguments could be generated for the inputSchema: {why}"


class Validity:
    """Validate many values against one inputSchema. Arguments are objects, whatever the schema says."""

    def __init__(self, schema: object) -> None:
        self._reader = SchemaReader(schema)
        self.problem = self._reader.problem
        """The reason why the schema is unusable, if any."""

    def allows(self, value: Any) -> bool | None:
        """Validate a value; None if undecidable, because of an external reference or an exceeded limit."""
        try:
            json.dumps(value, allow_nan=False).encode("utf-8")
        except (ValueError, RecursionError):
            return None  # not representable in JSON
        return isinstance(value, dict) and self._reader.allows(value)
