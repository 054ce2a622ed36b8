"""From a tool's inputSchema to arguments to call it with: right ones, ones at the edges, and wrong ones.

Every case is held against the schema by the project's validator before it is given out: a valid case
conforms, an invalid one doesn't. A schema that nothing can be made for gives a remark and no case, never an
exception; the same schema and seed give the same cases. Takes milliseconds for the schemas of the field and a
few seconds for a hostile one: to be called in a thread.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from playhead.check.arguments_boundary import boundary_cases
from playhead.check.arguments_case import Case, Kind
from playhead.check.arguments_invalid import invalid_cases
from playhead.check.arguments_shapes import NoValueError, Shapes
from playhead.check.arguments_validity import Validity
from playhead.check.arguments_values import Maker, Style

MAX_VALID: Final = 60
MAX_INVALID: Final = 40
"""Cases of one tool. More properties than these cover are looked at by another seed, or by nobody."""
_TRIES: Final = 6
"""Random values made for each that is wanted: some break what only the validator understands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolArguments:
    """What a tool can be called with."""

    valid: tuple[Case, ...]
    """The least first, then everything declared, the edges, and random ones."""
    invalid: tuple[Case, ...]
    """The certain breaches first."""
    remarks: tuple[str, ...]
    """What was not made, and why."""


def arguments_for(schema: object, *, seed: int = 0, examples: int = 5) -> ToolArguments:
    """Arguments for the inputSchema `schema`; `examples` random ones beside the others. Raises nothing."""
    validity = Validity(schema)
    if validity.problem is not None:
        return _none(f"the inputSchema can't be used, so that nothing was made for it: {validity.problem}")
    try:
        return _Work(schema, validity, seed).all(examples)
    except (NoValueError, RecursionError, OverflowError, ValueError, TypeError, ArithmeticError) as error:
        # A keyword with a value that the metaschema allows and nobody foresaw: one remark, not a crash.
        return _none(f"no arguments could be made for the inputSchema: {error}")


def distinct_arguments(schema: object, base: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """`count` valid arguments that differ in one property, for calls whose answers are to be told apart.
    Empty where none of the properties of `base`, valid arguments, can be varied."""
    validity = Validity(schema)
    for name, value in base.items():
        made = [{**base, name: _varied(value, index)} for index in range(count)]
        if _differ(value) and all(validity.allows(arguments) for arguments in made):
            return made
    return []


def _differ(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _varied(value: Any, index: int) -> Any:
    if not _differ(value):
        return value
    return f"{value[:40]} {index + 1}" if isinstance(value, str) else value + index


def _none(remark: str) -> ToolArguments:
    return ToolArguments(valid=(), invalid=(), remarks=(remark[:500],))


class _Work:
    def __init__(self, schema: object, validity: Validity, seed: int) -> None:
        self._schema = schema
        self._wanted = {"allOf": [schema, {"type": "object"}]}
        """What arguments are: MCP has objects only, whether the schema says so or not."""
        self._validity = validity
        self._seed = seed
        self._shapes = Shapes(schema)
        self._remarks: list[str] = []
        self._reasons: list[str] = []
        """Why values could not be made; of interest where none could."""
        self._seen: set[str] = set()

    def all(self, examples: int) -> ToolArguments:
        maker = Maker(self._shapes, self._draw())
        bases = list(self._bases()) or list(self._random(1))  # chance finds its way around a `not`
        if not bases:
            return _none(self._why_none())
        fullest = max(bases, key=lambda case: len(case.arguments)).arguments
        edges = boundary_cases(maker, self._wanted, fullest)
        valid = [*bases, *self._kept([*self._given(), *edges], wanted=True, most=MAX_VALID - len(bases))]
        valid += self._random(examples)
        broken = invalid_cases(maker, self._wanted, fullest)
        invalid = self._kept(broken, wanted=False, most=MAX_INVALID)
        if self._shapes.unresolved:
            self._remarks.append(f"a reference was not followed: {min(self._shapes.unresolved)}")
        return ToolArguments(valid=tuple(valid), invalid=tuple(invalid), remarks=tuple(self._remarks))

    def _draw(self) -> random.Random:
        return random.Random(self._seed)  # a fresh one for each part: cases don't shift when another grows

    def _bases(self) -> Iterator[Case]:
        """The least and the fullest arguments, by whichever way gives valid ones."""
        styles: tuple[tuple[Style, str], ...] = (("least", "the least"), ("full", "everything declared"))
        for style, title in styles:
            for arguments in self._ways(style):
                if isinstance(arguments, dict) and self._validity.allows(arguments):
                    if self._is_new(arguments):
                        yield Case(title=title, arguments=arguments, kind="valid")
                    break

    def _ways(self, style: Style) -> Iterator[Any]:
        for use_given in (True, False):
            maker = Maker(self._shapes, self._draw(), use_given=use_given)
            for shape in self._shapes.of(self._wanted):
                try:
                    yield maker.of_shape(shape, style)
                except NoValueError as error:
                    self._remember(str(error))

    def _given(self) -> Iterator[Case]:
        """The schema's own examples of whole arguments."""
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

    def _kept(self, cases: Iterable[Case], *, wanted: bool, most: int) -> list[Case]:
        kept: list[Case] = []
        for case in cases:
            if self._validity.allows(case.arguments) is not wanted or not self._is_new(case.arguments):
                continue
            if len(kept) == most:
                kind: Kind = case.kind
                self._remarks.append(f"only the first {most} {kind} cases were made")
                break
            kept.append(case)
        return kept

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
                f"no arguments could be made: the inputSchema refers to {min(self._shapes.unresolved)},"
                " and nothing outside of it is followed"
            )
        why = "; ".join(self._reasons) or "every object that was tried breaks it"
        return f"no arguments could be made that the inputSchema allows: {why}"
