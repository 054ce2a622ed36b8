"""`structuredContent` against a tool's `outputSchema`, when both come from a hostile server.

`jsonschema` does the work; around it stand bounds that it lacks:
* nothing is fetched: a `$ref` leads into the schema itself or to a published dialect, or nowhere;
* every keyword evaluated costs steps, so that references which double at each level end;
* regular expressions run under `regex`, which can give up; `jsonschema`'s own uses of `re` are replaced;
* deep recursion is a finding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY
from referencing.exceptions import Unresolvable

from playhead.content.findings import Notes, kind_of, step
from playhead.content.formats import number, quoted, time_problem, uri_problem
from playhead.content.validation_keywords import BoundError, Budget, bounded

MAX_SCHEMA_VALUES: Final = 5_000
"""Of one outputSchema; the largest seen in the wild have some hundreds."""
_WHERE: Final = "outputSchema"


class _SchemaError(Exception):
    """The schema is none: where, and what stands there."""

    def __init__(self, path: str, came: str) -> None:
        super().__init__(path)
        self.path = path
        self.came = came


def check_output(
    notes: Notes, path: str, value: object, schema: object, *, clock: Callable[[], float] = time.monotonic
) -> None:
    """Adds what `schema` does not allow in `value`, or one finding that says why that cannot be told.

    Paths that begin with `outputSchema` lie in the schema. `clock` bounds the regular expressions only.
    """
    if not isinstance(schema, dict | bool):
        notes.add(_WHERE, expected="a JSON Schema: an object or a boolean", came=kind_of(schema))
        return
    try:
        _check_size(schema)
        for error in _errors(value, schema, Budget(clock)):
            if notes.full:
                return
            notes.add(_joined(path, error.absolute_path), expected=_expected(error), came=_came(error))
    except _SchemaError as error:
        notes.add(error.path, expected="a valid JSON Schema", came=error.came)
    except BoundError as error:
        notes.add(_WHERE, expected="a schema that can be checked within bounds", came=str(error))
    except Unresolvable as error:
        came = f"a reference to {quoted(str(error.ref))}; nothing is fetched"
        notes.add(_WHERE, expected="references into the schema itself", came=came)
    except RecursionError:
        notes.add(_WHERE, expected="a schema that ends", came="one nested too deep, or without end")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # jsonschema and referencing trust a schema's identifiers and numbers more than its metaschema does.
        came = f"one that jsonschema cannot use ({type(error).__name__})"
        notes.add(_WHERE, expected="a JSON Schema that can be used", came=came)


def _check_size(schema: object) -> None:
    """Counts without recursion."""
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
        # An unknown dialect is read as the one that MCP names for a schema that says nothing.
        return validator_for(schema, default=Draft202012Validator)
    return Draft202012Validator


def _check_schema(schema: dict[str, Any] | bool, checker: Any) -> None:
    for error in checker(checker.META_SCHEMA, registry=REGISTRY).iter_errors(schema):
        raise _SchemaError(_joined(_WHERE, error.absolute_path), f"{_came(error)} ({_expected(error)})")


class SchemaReader:
    """One schema held against many values, which share the bounds that `check_output` has for one. A hostile
    schema may take seconds: to be used in a thread."""

    def __init__(self, schema: object, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._schema = schema
        self._budget = Budget(clock)
        notes = Notes()
        check_output(notes, "$", {}, schema, clock=clock)
        wrong = [finding for finding in notes.all() if finding.path.startswith(_WHERE)]
        self.problem = str(wrong[0]) if wrong else None
        """Why it can't be used: it is no JSON Schema, too large, leads out of itself. None where it can."""

    def allows(self, value: object) -> bool | None:
        """Whether `value` conforms. None where a bound is reached, and ever after; and where the schema can't
        be used."""
        schema = self._schema
        if self.problem is not None or not isinstance(schema, dict | bool):
            return None
        checker = bounded(_dialect(schema), self._budget, schema)
        try:
            errors = checker(schema, registry=REGISTRY, format_checker=_formats()).iter_errors(value)
            return next(errors, None) is None
        except (
            BoundError,
            Unresolvable,
            RecursionError,
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ):
            return None  # as in `check_output`, which has a word for each


_BUILT_IN: Final = ("date", "email", "ipv4", "ipv6", "uuid")
"""Formats that jsonschema checks in linear time without further packages."""


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
    """RFC 3339 wants what ISO 8601 leaves open: the time, and its zone."""
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
        return f"{_WHERE} {keyword}: {quoted(error.message)}"
    wanted = error.validator_value
    if isinstance(wanted, str | int | float) and not isinstance(wanted, bool):
        return f"{_WHERE} {keyword} {quoted(wanted) if isinstance(wanted, str) else number(wanted)}"
    return f"{_WHERE} {keyword}"


def _came(error: ValidationError) -> str:
    instance = error.instance
    if isinstance(instance, str):
        return f"a string of {len(instance)} character{'' if len(instance) == 1 else 's'}"
    if isinstance(instance, bool):
        return "true" if instance else "false"
    return number(instance) if isinstance(instance, int | float) else kind_of(instance)
