"""The fields of a structured response on their way in: keys found without regard to case, types checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypedDict, TypeVar

from playhead.content.findings import kind_of
from playhead.errors import ResponseError

T = TypeVar("T")
COMMON = frozenset({"type", "success", "timestamp", "tool_name"})


class Common(TypedDict):
    success: bool
    timestamp: int
    tool_name: str
    extra: Mapping[str, object]


class Fields:
    """An object's values by key. Each getter raises `ResponseError` (`INVALID_FIELD`) with the key's path for
    a value of another type, and for an absent one unless it says otherwise."""

    __slots__ = ("_values",)

    def __init__(self, raw: Mapping[str, object], known: frozenset[str]) -> None:
        """`known` keys are found without regard to case; of several spellings the last counts, as in Go."""
        self._values: dict[str, object] = {}
        for key, value in raw.items():
            if key not in known and (folded := key.lower()) in known:
                key = folded
            self._values[key] = value

    def common(self, known: frozenset[str]) -> Common:
        """What every type has; a missing timestamp is 0."""
        extra = {key: value for key, value in self._values.items() if key not in known}
        for key, value in extra.items():
            _check_finite(value, key)
        return {
            "success": self.take("success", bool, "a boolean"),
            "timestamp": self.take("timestamp", int, "a whole number", 0),
            "tool_name": self.text("tool_name"),
            "extra": extra,
        }

    def has(self, key: str) -> bool:
        return key in self._values

    def text(self, key: str, default: str | None = None) -> str:
        """A string; `default`, if there is one, where it is absent."""
        return self.take(key, str, "a string", default)

    def flag(self, key: str) -> bool:
        """A boolean; False where it is absent."""
        return self.take(key, bool, "a boolean", default=False)

    def text_or_none(self, key: str) -> str | None:
        """A string; None where it is absent or null."""
        return None if self._values.get(key) is None else self.text(key)

    def texts_or_none(self, key: str) -> Mapping[str, str] | None:
        """An object of strings; None where it is absent or null."""
        if self._values.get(key) is None:
            return None
        found: dict[str, str] = {}
        for name, value in self.take(key, dict, "an object of strings").items():
            if not isinstance(value, str):
                raise _wrong(f"$.{key}.{name}", "a string", kind_of(value))
            found[name] = value
        return found

    def json(self, key: str) -> object:
        """Any value; None where it is absent."""
        value = self._values.get(key)
        _check_finite(value, key)
        return value

    def take(self, key: str, kind: type[T], expected: str, default: T | None = None) -> T:
        """A value of exactly this type: a boolean is no number."""
        if key not in self._values:
            if default is not None:
                return default
            raise _wrong(f"$.{key}", expected, "nothing")
        value = self._values[key]
        if type(value) is not kind:
            raise _wrong(f"$.{key}", expected, kind_of(value))
        return value


def _check_finite(value: object, key: str) -> None:
    """1e999 is JSON, but no double: it would be read as infinity and could not be written back."""
    left = [value]
    while left:
        match left.pop():
            case dict() as found:
                left.extend(found.values())
            case list() as found:
                left.extend(found)
            case float() as found if not math.isfinite(found):
                raise _wrong(f"$.{key}", "numbers that a double can hold", "a larger one")


def _wrong(path: str, expected: str, came: str) -> ResponseError:
    return ResponseError(
        f"expected {expected} at {path} of a structured response, came {came}",
        code="INVALID_FIELD",
        path=path,
        expected=expected,
        came=came,
    )
