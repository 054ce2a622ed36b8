"""Events as lines of JSON, and back.

    {"type":"mcp_tool_call_begin","round":1,"tool":{"id":"a","name":"home__play","arguments":{},"status":"invoking"}}

A line is ASCII and holds no line break. What comes back is equal to what went in, except for what JSON or a
log can't hold: inline data (`results.redaction` says what counts) is replaced by words that tell how much it
was, lone surrogates by U+FFFD, numbers that are not finite by their names, nesting below 128 by a note.

A newer version may add keys and types: a key that isn't known is passed over, and so is an event of a type
that isn't known (`from_json` gives None), since a reader of events lives well without those.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, Final, NoReturn, get_args

from playhead.agent.conversation import Status
from playhead.agent.events import (
    AudioEnd,
    AudioStart,
    CallStatus,
    Event,
    Failed,
    ImageComplete,
    ReplyComplete,
    ReplyCreated,
    TextComplete,
    TextDelta,
    ThinkingDelta,
    ToolCallBegin,
    ToolCallError,
    ToolCallResponse,
    ToolComplete,
    ToolInProgress,
    ToolPending,
    ToolProgress,
    ToolRef,
    ToolResponse,
    Usage,
)
from playhead.errors import RecordingError
from playhead.limits import Limits
from playhead.results.redaction import without_inline_data

_DEPTH: Final = Limits().json_depth
_DATA_KEYS: Final = frozenset({"data", "blob", "base64", "b64"})
_KEYED_RUN: Final = 64
"""As in results.redaction: under such a key no text of this length is anything else."""
_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")


# --- out ---------------------------------------------------------------------------------------------


def to_json(event: Event, *, text_chars: int | None = None) -> str:
    """One line, without its line break.

    `text_chars` cuts each longer text (but a status) in the middle, and says how much was left out. Never
    raises for what a turn can make: values in arguments that are no JSON are named by their type.
    """
    told = {"type": event.type, **_object(event, text_chars)}
    return json.dumps(told, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _object(value: Any, chars: int | None) -> dict[str, object]:
    return {
        one.name: _value(getattr(value, one.name), None if one.name == "status" else chars, 0)
        for one in fields(value)
    }


def _value(value: object, chars: int | None, depth: int, key: str = "") -> object:
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else _name_of(value)
        case str():
            return _text(value, chars, key)
        case _ if depth == _DEPTH:
            return f"[nested more than {_DEPTH} deep]"
        case ToolRef() | ToolResponse():
            return _object(value, chars)
        case Mapping():
            return {
                _text(str(name), chars, ""): _value(inner, chars, depth + 1, str(name))
                for name, inner in value.items()
            }
        case list() | tuple():
            return [_value(inner, chars, depth + 1, key) for inner in value]
        case _:
            return f"[a {type(value).__name__}]"


def _name_of(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _text(text: str, chars: int | None, key: str) -> str:
    kept = without_inline_data(text)
    if key.lower() in _DATA_KEYS and len(kept) >= _KEYED_RUN:
        kept = without_inline_data(kept, run_chars=_KEYED_RUN)
    if chars is None or len(kept) <= chars:
        return kept
    half = chars // 2
    return f"{kept[:half]}[… {len(kept) - 2 * half} characters left out …]{kept[len(kept) - half :]}"


# --- in ----------------------------------------------------------------------------------------------


def from_json(line: str | bytes) -> Event | None:
    """The event of one line; None for a type that this version doesn't know.

    Raises `RecordingError`, naming the key, for a line that is no event.
    """
    return from_object(parsed(line))


def parsed(line: str | bytes) -> Mapping[str, object]:
    """The object of one line. Raises `RecordingError`."""
    try:
        raw = json.loads(line, parse_constant=_no_constant)
    except RecursionError:
        raise RecordingError("expected an event, came JSON that is nested too deeply") from None
    except ValueError as error:
        raise RecordingError(
            f"expected an event as one line of JSON, came something else ({error})"
        ) from None
    if not isinstance(raw, dict):
        raise RecordingError(f"expected a JSON object, came {_kind(raw)}")
    return raw


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def from_object(raw: Mapping[str, object]) -> Event | None:
    """As `from_json`, of a line that is parsed already."""
    name = _string(raw.get("type"), "type")
    known = _EVENTS.get(name)
    if known is None:
        return None
    make, readers = known
    return make(**_read(make, readers, raw, ""))


_Reader = Callable[[object, str], Any]


def _read(
    make: type, readers: Mapping[str, _Reader], raw: Mapping[str, object], where: str
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in fields(make):
        if one.name in raw:
            found[one.name] = readers[one.name](raw[one.name], where + one.name)
        elif one.default is MISSING:
            key = where + one.name
            raise RecordingError(f"{key}: is missing", key=key)
    return found


def _wrong(key: str, expected: str, came: object) -> RecordingError:
    return RecordingError(f"{key}: expected {expected}, came {_kind(came)}", key=key)


def _kind(value: object) -> str:
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    return (
        json.dumps(value)[:40]
        if isinstance(value, bool | int | float | None)
        else f"a {type(value).__name__}"
    )


def _string(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise _wrong(key, "a text", value)
    return value


def _whole(value: object, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(key, "a whole number", value)
    return value


def _number(value: object, key: str) -> float:
    if value in _NOT_FINITE:
        return float(str(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(key, "a number", value)
    return value


def _object_in(value: object, key: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(key, "an object", value)
    return value


def _strings(value: object, key: str) -> tuple[str, ...]:
    return tuple(_each(_string, value, key))


def _responses(value: object, key: str) -> tuple[ToolResponse, ...]:
    return tuple(_each(_response, value, key))


def _each(reader: _Reader, value: object, key: str) -> Iterable[Any]:
    if not isinstance(value, list):
        raise _wrong(key, "a list", value)
    return (reader(item, f"{key}[{index}]") for index, item in enumerate(value))


def _or_none(reader: _Reader) -> _Reader:
    return lambda value, key: None if value is None else reader(value, key)


def _one_of(allowed: tuple[str, ...]) -> _Reader:
    def read(value: object, key: str) -> str:
        if value not in allowed:
            raise _wrong(key, f"one of {', '.join(allowed)}", value)
        return str(value)

    return read


_STATUS: Final = _one_of(get_args(Status))
_TOOL_KEYS: Final[Mapping[str, _Reader]] = {
    "id": _string,
    "name": _string,
    "arguments": _or_none(_object_in),
    "status": _one_of(get_args(CallStatus)),
}
_RESPONSE_KEYS: Final[Mapping[str, _Reader]] = {
    "id": _string,
    "name": _string,
    "text": _string,
    "status": _STATUS,
    "media": _strings,
}


def _tool(value: object, key: str) -> ToolRef:
    return ToolRef(**_read(ToolRef, _TOOL_KEYS, _object_in(value, key), f"{key}."))


def _response(value: object, key: str) -> ToolResponse:
    return ToolResponse(**_read(ToolResponse, _RESPONSE_KEYS, _object_in(value, key), f"{key}."))


_READERS: Final[Mapping[type[Event], Mapping[str, _Reader]]] = {
    ReplyCreated: {"provider": _string, "model": _string},
    TextDelta: {"text": _string},
    TextComplete: {"text": _string},
    ThinkingDelta: {"text": _string},
    ToolInProgress: {"tool": _tool},
    ToolPending: {"tool": _tool},
    ToolCallBegin: {"tool": _tool},
    ToolProgress: {
        "tool": _tool,
        "progress": _number,
        "total": _or_none(_number),
        "message": _or_none(_string),
    },
    ToolCallResponse: {"tool": _tool, "result": _response},
    ToolCallError: {"tool": _tool, "status": _STATUS, "error": _string},
    ToolComplete: {"responses": _responses},
    AudioStart: {"tool": _tool, "title": _string, "mime_type": _or_none(_string)},
    AudioEnd: {"title": _string, "error": _or_none(_string)},
    ImageComplete: {"tool": _tool, "mime_type": _string, "size_bytes": _whole},
    Usage: {"input_tokens": _or_none(_whole), "output_tokens": _or_none(_whole)},
    ReplyComplete: {"stop": _string},
    Failed: {"error": _string, "kind": _string},
}
_EVENTS: Final[Mapping[str, tuple[type[Event], Mapping[str, _Reader]]]] = {
    make.type: (make, {"round": _whole, **readers}) for make, readers in _READERS.items()
}
