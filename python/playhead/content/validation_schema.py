"""Validation of `structuredContent` against a tool's `outputSchema`, both from an untrusted server.

`jsonschema` does the work. This module adds the bounds that it lacks:

* Nothing is fetched: a `$ref` resolves within the schema or to a published dialect, or fails.
* Each evaluation of a keyword costs steps, which limits references that double the work at each level.
* `regex`, which has timeouts, runs the regular expressions instead of `re`.
* Deep nesting and endless recursion become a finding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import regex
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY
from referencing.exceptions import Unresolvable

from playhead.content.findings import Notes, kind_of, step
from playhead.content.formats import number, quoted, time_problem, uri_problem
from playhead.content.schema_shapes import objects_in

MAX_STEPS: Final = 200_000
"""Limits the evaluations of keywords, weighted by the size of their operands, to about two seconds."""
MAX_PATTERN: Final = 2_000
"""Limits the characters of a regular expression."""
MAX_LEVELS: Final = 200
"""Limits the nesting of keywords. Each takes three of Python's thousand stack frames. If they run out inside
`rpds`, a Rust library that jsonschema uses, it panics, and `except Exception` does not catch a panic."""
PATTERN_SECONDS: Final = 1.0
"""Limits all regular expressions of one check together; a reasonable one takes microseconds."""

_Keyword = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]


class BoundError(Exception):
    """A bound was reached; the message names it. Never leaves this package."""


class Budget:
    """The remaining budget of one check."""

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
        """Count one more level of nesting while the context is open."""
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
                raise BoundError(f"the invalid regular expression {quoted(pattern)}") from None
        return known


def bounded(dialect: Any, budget: Budget, root: object) -> Any:
    """Extend `dialect` so that keywords spend the budget and regular expressions time out."""
    keywords: dict[str, _Keyword] = dict(dialect.VALIDATORS)
    keywords |= {"pattern": _pattern_keyword(budget), "patternProperties": _pattern_properties(budget)}
    if "additionalProperties" in keywords:
        keywords["additionalProperties"] = _additional_properties(budget)
    if "unevaluatedProperties" in keywords:
        keywords["unevaluatedProperties"] = _unevaluated(keywords["unevaluatedProperties"], root)
    if "uniqueItems" in keywords:
        keywords["uniqueItems"] = _unique_items(keywords["uniqueItems"], budget)
    return extend(dialect, validators={name: _spending(check, budget) for name, check in keywords.items()})


def _spending(keyword: _Keyword, budget: Budget) -> _Keyword:
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
        # Here jsonschema runs patterns of siblings and references under `re`, which has no timeout.
        if isinstance(instance, dict) and any("patternProperties" in each for each in objects_in(root)):
            raise BoundError("unevaluatedProperties together with patternProperties")
        try:
            yield from keyword(validator, wanted, instance, schema) or ()
        except BaseException as error:
            # jsonschema follows references here without counting levels. A Rust panic is not an `Exception`.
            if type(error).__name__ == "PanicException":
                raise RecursionError from None
            raise

    return check


def _unique_items(keyword: _Keyword, budget: Budget) -> _Keyword:
    def check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, list) and any(isinstance(item, dict | list) for item in instance):
            budget.spend(len(instance) ** 2 // 2)  # unsortable items are compared pairwise
        yield from keyword(validator, wanted, instance, schema) or ()

    return check


MAX_SCHEMA_VALUES: Final = 5_000
"""Limits the values in an outputSchema. The largest in use have a few hundred."""
VALID_SCHEMA: Final = "a valid JSON Schema"
"""`Finding.expected` for a schema that its metaschema rejects."""
_ROOT: Final = "outputSchema"
_UNUSABLE: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of jsonschema and referencing, which assume more about identifiers and numbers than the metaschema
requires."""


class _SchemaError(Exception):
    """The schema is invalid at `path`; `actual` describes the value there."""

    def __init__(self, path: str, actual: str) -> None:
        super().__init__(path)
        self.path = path
        self.actual = actual


def check_output(
    notes: Notes, path: str, value: object, schema: object, *, clock: Callable[[], float] = time.monotonic
) -> None:
    """Add a finding for each violation of `schema` in `value`, or one that explains why the check failed.

    Paths that begin with `outputSchema` refer to the schema. `clock` times the regular expressions.
    """
    if not isinstance(schema, dict | bool):
        notes.add(_ROOT, expected="a JSON Schema: an object or a boolean", got=kind_of(schema))
        return
    try:
        _check_size(schema)
        for error in _errors(value, schema, Budget(clock)):
            if notes.full:
                return
            notes.add(_joined(path, error.absolute_path), expected=_expected(error), got=_described(error))
    except _SchemaError as error:
        notes.add(error.path, expected=VALID_SCHEMA, got=error.actual)
    except BoundError as error:
        notes.add(_ROOT, expected="a schema that can be checked within bounds", got=str(error))
    except Unresolvable as error:
        actual = f"a reference to {quoted(str(error.ref))}; nothing is fetched"
        notes.add(_ROOT, expected="references within the schema", got=actual)
    except RecursionError:
        notes.add(_ROOT, expected="a finite schema", got="one nested too deeply, or recursive")
    except _UNUSABLE as error:
        actual = f"one that jsonschema cannot use ({type(error).__name__})"
        notes.add(_ROOT, expected="a JSON Schema that can be used", got=actual)


def _check_size(schema: object) -> None:
    """Count the values of the schema, without recursion."""
    left, seen = [schema], 0
    while left:
        value = left.pop()
        seen += 1
        if seen > MAX_SCHEMA_VALUES:
            raise BoundError(f"one of more than {MAX_SCHEMA_VALUES:,} values")
        if isinstance(value, dict):
            left.extend(islice(value.values(), MAX_SCHEMA_VALUES + 1))
        elif isinstance(value, list):
            left.extend(islice(value, MAX_SCHEMA_VALUES + 1))


def _errors(value: object, schema: dict[str, Any] | bool, budget: Budget) -> Iterator[ValidationError]:
    checker = bounded(_dialect(schema), budget, schema)
    _check_schema(schema, checker)
    yield from checker(schema, registry=REGISTRY, format_checker=_formats()).iter_errors(value)


def _dialect(schema: dict[str, Any] | bool) -> Any:
    if isinstance(schema, dict) and isinstance(schema.get("$schema"), str):
        # For an unknown dialect, use the default that MCP defines for a schema without `$schema`.
        return validator_for(schema, default=Draft202012Validator)
    return Draft202012Validator


def _check_schema(schema: dict[str, Any] | bool, checker: Any) -> None:
    for error in checker(checker.META_SCHEMA, registry=REGISTRY).iter_errors(schema):
        raise _SchemaError(_joined(_ROOT, error.absolute_path), f"{_described(error)} ({_expected(error)})")


class SchemaReader:
    """Validates many values against one schema. Together they have the bounds of one `check_output`.

    A hostile schema may take seconds, so use this in a thread.
    """

    def __init__(self, schema: object, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._schema = schema
        self._budget = Budget(clock)
        notes = Notes()
        check_output(notes, "$", {}, schema, clock=clock)
        wrong = [finding for finding in notes.all() if finding.path.startswith(_ROOT)]
        self.problem = str(wrong[0]) if wrong else None
        """The reason if the schema is unusable (invalid, too large, external references), else None."""

    def allows(self, value: object) -> bool | None:
        """Return True if `value` conforms; None if the schema is unusable, or once a bound is reached."""
        schema = self._schema
        if self.problem is not None or not isinstance(schema, dict | bool):
            return None
        checker = bounded(_dialect(schema), self._budget, schema)
        try:
            errors = checker(schema, registry=REGISTRY, format_checker=_formats()).iter_errors(value)
            return next(errors, None) is None
        except (BoundError, Unresolvable, RecursionError, *_UNUSABLE):
            return None


_BUILT_IN: Final = ("date", "email", "ipv4", "ipv6", "uuid")
"""Formats that jsonschema checks in linear time without extra packages."""


def _formats() -> FormatChecker:
    checker = FormatChecker(formats=_BUILT_IN)
    checks: Mapping[str, Callable[[str], str | None]] = {"date-time": _date_time, "uri": uri_problem}
    for name, problem in checks.items():
        checker.checkers[name] = (
            lambda value, problem=problem: not isinstance(value, str) or problem(value) is None,
            (),
        )
    return checker


def _date_time(text: str) -> str | None:
    """Validate an RFC 3339 time, which requires the time of day and zone that ISO 8601 leaves optional."""
    if len(text) < 20 or not (text[-1] in "zZ" or text[-6] in "+-"):
        return quoted(text)
    return time_problem(text.upper())


def _joined(path: str, keys: Iterable[object]) -> str:
    for key in keys:
        path = step(path, key)
    return path[:1000]


def _expected(error: ValidationError) -> str:
    keyword = str(error.validator)
    if keyword in ("required", "dependentRequired", "additionalProperties", "unevaluatedProperties"):
        return f"{_ROOT} {keyword}: {quoted(error.message)}"
    wanted = error.validator_value
    if isinstance(wanted, str | int | float) and not isinstance(wanted, bool):
        return f"{_ROOT} {keyword} {quoted(wanted) if isinstance(wanted, str) else number(wanted)}"
    return f"{_ROOT} {keyword}"


def _described(error: ValidationError) -> str:
    instance = error.instance
    if isinstance(instance, str):
        return f"a string of {len(instance)} character{'' if len(instance) == 1 else 's'}"
    if isinstance(instance, bool):
        return "true" if instance else "false"
    return number(instance) if isinstance(instance, int | float) else kind_of(instance)
