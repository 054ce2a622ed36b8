"""The keywords of `jsonschema`, each paid for out of a budget, and regular expressions that give up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import regex
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from playhead.content.formats import quoted

MAX_STEPS: Final = 200_000
"""Keywords evaluated, weighted by what they look at: about two seconds."""
MAX_PATTERN: Final = 2_000
"""Characters of one regular expression."""
MAX_LEVELS: Final = 200
"""Keywords inside each other, of three frames each; Python has a thousand. Where those run out inside of a
library in Rust (`rpds`, under jsonschema), that panics, which no handler of errors expects."""
PATTERN_SECONDS: Final = 1.0
"""All regular expressions of one check together: a sound one takes microseconds."""

_Keyword = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]


class BoundError(Exception):
    """A bound was reached; the message says which. Never leaves this package."""


class Budget:
    """What one check may still spend."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._steps = MAX_STEPS
        self._levels = 0
        self._seconds = PATTERN_SECONDS
        self._compiled: dict[str, Any] = {}

    def spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise BoundError(f"one that needs more than {MAX_STEPS:,} steps for this content")

    @contextmanager
    def level(self) -> Iterator[None]:
        """One keyword deeper, for as long as the context is open."""
        if self._levels >= MAX_LEVELS:
            raise RecursionError
        self._levels += 1
        try:
            yield
        finally:
            self._levels -= 1

    def matches(self, pattern: str, text: str) -> bool:
        if self._seconds <= 0:
            raise BoundError("regular expressions that take too long")
        began = self._clock()
        try:
            return self._pattern(pattern).search(text, timeout=self._seconds) is not None
        except TimeoutError:
            raise BoundError("a regular expression that takes too long") from None
        finally:
            self._seconds -= self._clock() - began

    def _pattern(self, pattern: str) -> Any:
        if (known := self._compiled.get(pattern)) is None:
            if len(pattern) > MAX_PATTERN:
                raise BoundError(f"a regular expression of more than {MAX_PATTERN:,} characters")
            try:
                known = self._compiled[pattern] = regex.compile(pattern, cache_pattern=False)
            except regex.error:
                raise BoundError(f"the regular expression {quoted(pattern)}, which cannot be read") from None
        return known


def bounded(dialect: Any, budget: Budget, root: object) -> Any:
    """`dialect` with each keyword paid for, and with regular expressions that give up."""
    own: dict[str, _Keyword] = dict(dialect.VALIDATORS)
    own |= {"pattern": _pattern_keyword(budget), "patternProperties": _pattern_properties(budget)}
    if "additionalProperties" in own:
        own["additionalProperties"] = _additional_properties(budget)
    if "unevaluatedProperties" in own:
        own["unevaluatedProperties"] = _unevaluated(own["unevaluatedProperties"], root)
    if "uniqueItems" in own:
        own["uniqueItems"] = _unique_items(own["uniqueItems"], budget)
    return extend(dialect, validators={name: _paid(keyword, budget) for name, keyword in own.items()})


def _paid(keyword: _Keyword, budget: Budget) -> _Keyword:
    def check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        weight = len(wanted) if isinstance(wanted, dict | list) else 0
        if isinstance(instance, dict | list):
            weight += len(instance) // 8
        budget.spend(1 + weight // 4)
        with budget.level():
            yield from keyword(validator, wanted, instance, schema) or ()

    return check


def _pattern_keyword(budget: Budget) -> _Keyword:
    def check(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and not budget.matches(pattern, instance):
            yield ValidationError("the pattern does not match")

    return check


def _pattern_properties(budget: Budget) -> _Keyword:
    def check(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if not isinstance(instance, dict):
            return
        for pattern, subschema in patterns.items():
            budget.spend(len(instance))
            for key, value in instance.items():
                if budget.matches(pattern, key):
                    yield from validator.descend(value, subschema, path=key, schema_path=pattern)

    return check


def _additional_properties(budget: Budget) -> _Keyword:
    def check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if not isinstance(instance, dict):
            return
        patterns = schema.get("patternProperties", {})
        budget.spend(len(instance) * (1 + len(patterns)))
        known = schema.get("properties", {})
        for key, value in instance.items():
            if key in known or any(budget.matches(pattern, key) for pattern in patterns):
                continue
            if wanted is False:
                yield ValidationError(f"no property {quoted(key)}")
            else:
                yield from validator.descend(value, wanted, path=key)

    return check


def _unevaluated(keyword: _Keyword, root: object) -> _Keyword:
    def check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        # jsonschema runs the patterns of neighbours and references under `re` here, which cannot give up.
        if isinstance(instance, dict) and _mentions(root, "patternProperties"):
            raise BoundError("unevaluatedProperties together with patternProperties")
        try:
            yield from keyword(validator, wanted, instance, schema) or ()
        except BaseException as error:
            # It follows references past our levels; and what a panic in Rust raises is no `Exception`.
            if type(error).__name__ == "PanicException":
                raise RecursionError from None
            raise

    return check


def _mentions(root: object, name: str) -> bool:
    left = [root]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            if name in value:
                return True
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
    return False


def _unique_items(keyword: _Keyword, budget: Budget) -> _Keyword:
    def check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, list) and any(isinstance(item, dict | list) for item in instance):
            budget.spend(len(instance) ** 2 // 2)  # items that cannot be sorted are compared in pairs
        yield from keyword(validator, wanted, instance, schema) or ()

    return check
