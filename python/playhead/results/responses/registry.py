"""The registry of structured response types (four are built in, and a program may add others), and their
parser."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from types import MappingProxyType
from typing import Any, Final, TypedDict, TypeVar, get_args

from playhead.content.findings import kind_of
from playhead.errors import ResponseError, ResponseTypeError, UsageError
from playhead.results.responses.types import BuiltIn, StructuredResponse

T = TypeVar("T")
COMMON = frozenset({"type", "success", "timestamp", "tool_name"})


class Common(TypedDict):
    """The fields that all types have."""

    success: bool
    timestamp: int
    tool_name: str
    extra: Mapping[str, object]


class Fields:
    """Typed access to an object's values. Each getter raises `ResponseError` (`INVALID_FIELD`) with the key's
    path for a value of the wrong type, and for a missing key unless documented otherwise."""

    __slots__ = ("_values",)

    def __init__(self, raw: Mapping[str, object], known: frozenset[str]) -> None:
        """`known` keys match case-insensitively; the last of several spellings wins, as in Go."""
        self._values: dict[str, object] = {}
        for key, value in raw.items():
            if key not in known and (folded := key.lower()) in known:
                key = folded
            self._values[key] = value

    def common(self, known: frozenset[str]) -> Common:
        """Read the fields common to all types; a missing timestamp is 0."""
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
        """Return a string, or `default` (if given) when the key is missing."""
        return self.take(key, str, "a string", default)

    def flag(self, key: str) -> bool:
        """Return a boolean, or False when the key is missing."""
        return self.take(key, bool, "a boolean", default=False)

    def text_or_none(self, key: str) -> str | None:
        """Return a string, or None when missing or null."""
        return None if self._values.get(key) is None else self.text(key)

    def texts_or_none(self, key: str) -> Mapping[str, str] | None:
        """Return an object of strings, or None when missing or null."""
        if self._values.get(key) is None:
            return None
        found: dict[str, str] = {}
        for name, value in self.take(key, dict, "an object of strings").items():
            if not isinstance(value, str):
                raise _wrong(f"$.{key}.{name}", "a string", kind_of(value))
            found[name] = value
        return found

    def json(self, key: str) -> object:
        """Return any value, or None when the key is missing."""
        value = self._values.get(key)
        _check_finite(value, key)
        return value

    def take(self, key: str, kind: type[T], expected: str, default: T | None = None) -> T:
        """Return a value of exactly type `kind`: a boolean is not accepted as a number."""
        if key not in self._values:
            if default is not None:
                return default
            raise _wrong(f"$.{key}", expected, "nothing")
        value = self._values[key]
        if type(value) is not kind:
            raise _wrong(f"$.{key}", expected, kind_of(value))
        return value


def _check_finite(value: object, key: str) -> None:
    """Reject numbers such as 1e999: valid JSON, but parsed as infinity, which cannot be encoded again."""
    left = [value]
    while left:
        match left.pop():
            case dict() as found:
                left.extend(found.values())
            case list() as found:
                left.extend(found)
            case float() as found if not math.isfinite(found):
                raise _wrong(f"$.{key}", "numbers that fit a double", "a larger one")


def _wrong(path: str, expected: str, got: str) -> ResponseError:
    return ResponseError(
        f"expected {expected} at {path} of a structured response, got {got}",
        code="INVALID_FIELD",
        path=path,
        expected=expected,
        got=got,
    )


Reader = Callable[[Mapping[str, object]], StructuredResponse]
"""Builds a response from an object whose `type` is already checked. Raises `ResponseError`."""


def _keys(cls: type[StructuredResponse]) -> frozenset[str]:
    return frozenset(each.name for each in fields(cls)) - {"extra"} | COMMON


_GETTERS: Final[Mapping[str, Callable[[Fields, Field[Any]], object]]] = {
    "str": lambda found, own: found.text(own.name, None if own.default is MISSING else own.default),
    "str | None": lambda found, own: found.text_or_none(own.name),
    "bool": lambda found, own: found.flag(own.name),
    "Mapping[str, str] | None": lambda found, own: found.texts_or_none(own.name),
    "object": lambda found, own: found.json(own.name),
    "object | None": lambda found, own: found.json(own.name),
}
"""Readers of fields by their annotations, as written."""


def _reader_of_built_in(cls: type[BuiltIn]) -> Reader:
    known = _keys(cls)
    getters = [(each, _GETTERS[str(each.type)]) for each in fields(cls) if each.name in known - COMMON]

    def read(raw: Mapping[str, object]) -> StructuredResponse:
        found = Fields(raw, known)
        common = found.common(known)
        own: dict[str, Any] = {each.name: getter(found, each) for each, getter in getters}
        return cls(**common, **own)

    return read


@dataclass(frozen=True, slots=True)
class ResponseRegistry:
    """Known response types. Immutable, so it can be shared. `DEFAULT_REGISTRY` has the four built in."""

    _readers: Mapping[str, Reader]

    @property
    def types(self) -> frozenset[str]:
        """The wire names."""
        return frozenset(self._readers)

    def reader(self, type_name: str) -> Reader | None:
        """Return the reader of a type, or None if unknown."""
        return self._readers.get(type_name)

    def with_type(self, cls: type[StructuredResponse]) -> ResponseRegistry:
        """Return a registry that also knows `cls`; this one is unchanged.

        Objects are validated strictly against the class's annotations, as pydantic reads a dataclass from
        JSON: nested dataclasses, enums, lists and tuples work, and "1" is not accepted as a number. Build it
        once, because it takes a millisecond.

        Raises:
            UsageError: `cls` is not a dataclass derived from `StructuredResponse`, lacks `type` or
                `content()`, reuses a registered type, has keys that are not lower case, or has an annotation
                that cannot be resolved.
        """
        name = getattr(cls, "type", None)
        ours = StructuredResponse in getattr(cls, "__mro__", ())
        # A subclass without the decorator would pass `is_dataclass`: it inherits the table.
        if not ours or inspect.isabstract(cls) or "__dataclass_fields__" not in vars(cls):
            raise UsageError(
                f"expected a dataclass derived from StructuredResponse with content(), got {cls!r}"
            )
        if not isinstance(name, str) or not name:
            raise UsageError(
                f'expected {cls.__name__} to set its type (type: ClassVar[str] = "…"), got {name!r}'
            )
        if name in self._readers:
            raise UsageError(
                f"response type {name!r} of {cls.__name__} is already registered; use another name"
            )
        if upper := sorted(key for key in _keys(cls) if key != key.lower()):
            raise UsageError(f"expected lower-case field names in {cls.__name__}, got {', '.join(upper)}")
        return ResponseRegistry(MappingProxyType({**self._readers, name: _reader_of(cls)}))


def _reader_of(cls: type[StructuredResponse]) -> Reader:
    from pydantic import TypeAdapter, ValidationError  # not for the four built in
    from pydantic.errors import PydanticUserError

    try:
        adapter = TypeAdapter(cls)
    except (PydanticUserError, NameError) as error:
        raise UsageError(f"cannot resolve the annotations of {cls.__name__}: {error}") from error
    known = _keys(cls)

    def read(raw: Mapping[str, object]) -> StructuredResponse:
        found = Fields(raw, known)
        own = {key: found.json(key) for key in known - COMMON if found.has(key)}
        # Through JSON, because pydantic's strict mode accepts a dict as a dataclass only there.
        text = json.dumps({**own, **found.common(known)})
        try:
            return adapter.validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            path = "$" + "".join(
                f".{part}" if isinstance(part, str) else f"[{part}]" for part in first["loc"]
            )
            got = "nothing" if first["type"] == "missing" else kind_of(first["input"])
            raise ResponseError(
                f"{path} of a structured response of type {cls.type!r}: {first['msg']}, got {got}",
                code="INVALID_FIELD",
                path=path,
                expected=first["msg"],
                got=got,
            ) from error

    return read


DEFAULT_REGISTRY: Final = ResponseRegistry(
    MappingProxyType({cls.type: _reader_of_built_in(cls) for cls in get_args(BuiltIn)})
)


_LONGEST_NAME: Final = 100
"""Limits the characters of an unknown type's name in an error."""


def parse(text: str) -> Any:
    """Parse JSON of at most 200 levels. Raises `ValueError`."""
    from pydantic_core import (
        from_json,  # without pydantic; `json` follows any depth, and takes half a surrogate
    )

    return from_json(text.encode(), allow_inf_nan=False)


def parse_response(text: str, registry: ResponseRegistry = DEFAULT_REGISTRY) -> StructuredResponse:
    """Parse `text` as a structured response. Keys match case-insensitively.

    As in the reference system, a missing flag is false, a missing `timestamp` is 0, and a missing `status`,
    `user_state` or `action` of an audio response is empty. The essential fields are required: `success`,
    `tool_name`, and `action` and `message`, `music_name`, `message`, or `error`, depending on the type.

    Raises:
        ResponseTypeError: Its `type` is not in the registry; the message names it (code `INVALID_TYPE`).
        ResponseError: It is not a JSON object (`INVALID_JSON`), or a field is missing or has the wrong type
            (`INVALID_FIELD`; `path` names the field). All of these are the sender's fault.
    """
    try:
        raw = parse(text)
    except ValueError as error:
        raise ResponseError(
            f"expected a structured response (a JSON object), got invalid JSON: {error}",
            code="INVALID_JSON",
            path="$",
            expected="a JSON object",
            got="invalid JSON",
        ) from error
    if not isinstance(raw, dict):
        raise ResponseError(
            f"expected a structured response (a JSON object), got {kind_of(raw)}",
            code="INVALID_JSON",
            path="$",
            expected="a JSON object",
            got=kind_of(raw),
        )
    return read_response(raw, registry)


def common_keys(raw: Mapping[str, object]) -> Mapping[str, object]:
    """Return those of `type`, `success`, `timestamp` and `tool_name` that are present, in any case."""
    return {
        folded: value
        for key, value in raw.items()
        if (folded := key if key in COMMON else key.lower()) in COMMON
    }


def read_response(raw: Mapping[str, object], registry: ResponseRegistry) -> StructuredResponse:
    """Read an object that is already parsed. Otherwise as `parse_response`."""
    name = common_keys(raw).get("type")
    reader = registry.reader(name) if isinstance(name, str) else None
    if reader is not None:
        return reader(raw)
    got = (
        repr(name[:_LONGEST_NAME]) if isinstance(name, str) else "nothing" if name is None else kind_of(name)
    )
    known = ", ".join(sorted(registry.types))
    raise ResponseTypeError(
        f"unknown type {got} at $.type of a structured response: expected one of {known}",
        code="INVALID_TYPE",
        path="$.type",
        expected=f"one of {known}",
        got=got,
    )
