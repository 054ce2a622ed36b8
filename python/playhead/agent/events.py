"""The events of a turn, and their JSON lines.

One turn with two parallel calls (`b` finishes first), then the answer:

    llm_response_created, text_delta …, mcp_tool_in_progress(a), mcp_tool_call_begin(a),
    mcp_tool_in_progress(b), mcp_tool_call_begin(b), text_complete, llm_response_complete, usage,
    mcp_tool_call_response(b), mcp_tool_call_response(a), mcp_tool_complete([a, b]),
    llm_response_created, text_delta …, text_complete, llm_response_complete, usage

A call's response is emitted as soon as the call finishes, even while the reply still streams;
`mcp_tool_complete` and the messages to the model are in call order. A call's status goes pending → invoking →
done, error or cancelled. Events hold no media: they name the audio and pictures, and never quote them.

`to_json` and `from_json` convert an event to and from one line:

    {"type":"mcp_tool_call_begin","round":1,"tool":{"id":"a","name":"home__play","arguments":{},"status":"invoking"}}

A line is ASCII without a line break. The event that `from_json` returns equals the one that was written,
except for values that do not fit JSON or a log: inline data (see `results.model_text`) becomes a note with
its size, lone surrogates become U+FFFD, non-finite numbers become their names, and values nested 128 deep or
more become a note.

A newer version may add keys and types. `from_json` ignores unknown keys, and returns None for an unknown
type, because a reader of events does not need to know all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from playhead.agent.conversation import Status
from playhead.content.findings import kind_of
from playhead.errors import RecordingError
from playhead.limits import Limits
from playhead.results.model_text import without_inline_data
from playhead.strict_json import parse_json

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

CallStatus = Literal["pending", "invoking", "done", "error", "cancelled"]

_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})


def _parse_number(value: object) -> object:
    return float(value) if isinstance(value, str) and value in _NOT_FINITE else value


_Number = Annotated[float, BeforeValidator(_parse_number)]
"""A number that may be infinite or NaN. JSON has neither, so a line has their names as strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRef:
    """The call that an event is about."""

    id: str
    name: str
    arguments: Mapping[str, Any] | None
    """None while they are still streaming, and if the model wrote no JSON object."""
    status: CallStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResponse:
    """One call's result, as the model receives it."""

    id: str
    name: str
    text: str
    status: Status
    media: tuple[str, ...] = ()
    """MIME types of the attachments sent to the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    round: int
    """The number of the model call within the turn, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyCreated(_Event):
    """The request was sent to the model."""

    type: ClassVar[str] = "llm_response_created"
    provider: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(_Event):
    type: ClassVar[str] = "text_delta"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextComplete(_Event):
    """The reply's whole text; omitted if empty."""

    type: ClassVar[str] = "text_complete"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta(_Event):
    type: ClassVar[str] = "thinking_delta"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInProgress(_Event):
    """A call is complete in the stream: its name and arguments are known."""

    type: ClassVar[str] = "mcp_tool_in_progress"
    tool: ToolRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPending(_Event):
    """The call waits for approval."""

    type: ClassVar[str] = "mcp_tool_pending"
    tool: ToolRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallBegin(_Event):
    """The call is sent to its server."""

    type: ClassVar[str] = "mcp_tool_call_begin"
    tool: ToolRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress(_Event):
    type: ClassVar[str] = "mcp_tool_progress"
    tool: ToolRef
    progress: _Number
    total: _Number | None
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallResponse(_Event):
    type: ClassVar[str] = "mcp_tool_call_response"
    tool: ToolRef
    result: CallResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallError(_Event):
    """The call has no result from its tool, because it was denied, unknown, late, cancelled or over budget,
    or raised an exception. The model receives `error`."""

    type: ClassVar[str] = "mcp_tool_call_error"
    tool: ToolRef
    status: Status
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolComplete(_Event):
    """Every call of the reply has its result. The responses are in call order."""

    type: ClassVar[str] = "mcp_tool_complete"
    responses: tuple[CallResponse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioStart(_Event):
    """A result's audio was handed to the player."""

    type: ClassVar[str] = "audio_start"
    tool: ToolRef
    title: str
    mime_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioEnd(_Event):
    """The audio ended; `error` is the reason if it failed. `finding` says that the file is cut short, such as
    "ended at 5.2 of 12.0 s"."""

    type: ClassVar[str] = "audio_end"
    title: str
    error: str | None = None
    finding: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioWaiting(_Event):
    """The audio that plays has waited for three seconds without a new byte from its server."""

    type: ClassVar[str] = "stream_waiting"
    title: str
    seconds: _Number
    last_error: str | None
    """The reason of the last failed read, if any."""
    patience_seconds: _Number
    """The wait after which the audio fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioResumed(_Event):
    """The audio's bytes arrive again."""

    type: ClassVar[str] = "stream_resumed"
    title: str
    seconds: _Number
    """The length of the wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageComplete(_Event):
    """A result contains an image for the user."""

    type: ClassVar[str] = "image_complete"
    tool: ToolRef
    mime_type: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(_Event):
    """Tokens of this model call; None if the provider doesn't report them."""

    type: ClassVar[str] = "usage"
    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyComplete(_Event):
    """The model's reply ended."""

    type: ClassVar[str] = "llm_response_complete"
    stop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(_Event):
    """The turn failed; its caller gets the exception too."""

    type: ClassVar[str] = "error"
    error: str
    kind: str = ""
    """The class name of the exception."""


Event = (
    ReplyCreated
    | TextDelta
    | TextComplete
    | ThinkingDelta
    | ToolInProgress
    | ToolPending
    | ToolCallBegin
    | ToolProgress
    | ToolCallResponse
    | ToolCallError
    | ToolComplete
    | AudioStart
    | AudioEnd
    | AudioWaiting
    | AudioResumed
    | ImageComplete
    | Usage
    | ReplyComplete
    | Failed
)


_MAX_DEPTH: Final = Limits().json_depth
_DATA_KEYS: Final = frozenset({"data", "blob", "base64", "b64"})
_MIN_DATA_CHARS: Final = 64
"""The length of the shortest string that counts as data if its key is in `_DATA_KEYS`, as in
`results.model_text`."""


# --- writing -----------------------------------------------------------------------------------------


def to_json(event: Event, *, text_chars: int | None = None) -> str:
    """Write an event as one line, without the line break.

    `text_chars` shortens longer strings (but not a status) in the middle, with a note of the omitted length.
    Never raises for the events of a turn: values in arguments that aren't JSON are named by their type.
    """
    line = {"type": event.type, **_json_object(event, text_chars)}
    return json.dumps(line, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _json_object(value: Any, chars: int | None) -> dict[str, object]:
    return {
        field.name: _json_value(getattr(value, field.name), None if field.name == "status" else chars, 0)
        for field in fields(value)
    }


def _json_value(value: object, chars: int | None, depth: int, key: str = "") -> object:
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else _name_of_number(value)
        case str():
            return _json_text(value, chars, key)
        case _ if depth == _MAX_DEPTH:
            return f"[nested more than {_MAX_DEPTH} deep]"
        case ToolRef() | CallResponse():
            return _json_object(value, chars)
        case Mapping():
            return {
                _json_text(str(name), chars, ""): _json_value(inner, chars, depth + 1, str(name))
                for name, inner in value.items()
            }
        case list() | tuple():
            return [_json_value(inner, chars, depth + 1, key) for inner in value]
        case _:
            return f"[a {type(value).__name__}]"


def _name_of_number(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _json_text(text: str, chars: int | None, key: str) -> str:
    text = without_inline_data(text)
    if key.lower() in _DATA_KEYS and len(text) >= _MIN_DATA_CHARS:
        text = without_inline_data(text, run_chars=_MIN_DATA_CHARS)
    if chars is None or len(text) <= chars:
        return text
    half = chars // 2
    return f"{text[:half]}[… {len(text) - 2 * half} characters left out …]{text[len(text) - half :]}"


# --- reading -----------------------------------------------------------------------------------------


def from_json(line: str | bytes) -> Event | None:
    """Read one line; None for a type that this version doesn't know.

    Raises `RecordingError`, naming the key, if the line is not a valid event.
    """
    return read_event(line, parse_line(line))


def parse_line(line: str | bytes) -> Mapping[str, object]:
    """Parse one line to its JSON object. Raises `RecordingError`."""
    try:
        raw = parse_json(line)
    except RecursionError:
        raise RecordingError("expected an event, got JSON that is nested too deeply") from None
    except ValueError as error:
        raise RecordingError(f"expected an event as one line of JSON, got invalid JSON ({error})") from None
    if not isinstance(raw, dict):
        raise RecordingError(f"expected a JSON object, got {kind_of(raw)}")
    return raw


def read_event(line: str | bytes, raw: Mapping[str, object]) -> Event | None:
    """Read a line, as `from_json` does, that `parse_line` has parsed to `raw`."""
    name = raw.get("type")
    if not isinstance(name, str):
        raise RecordingError(f"type: expected a string, got {kind_of(name)}", key="type")
    if name not in _EVENT_TYPES:
        return None
    try:
        return _adapter(name).validate_json(line, strict=True)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
    # Raised outside the handler, so that its context is not pydantic's error, which holds the values.
    raise _recording_error(raw, problem)


@cache
def _adapter(name: str) -> TypeAdapter[Event]:
    return TypeAdapter(_EVENT_TYPES[name])


def _recording_error(raw: object, problem: ErrorDetails) -> RecordingError:
    key = ""
    for step in problem["loc"]:
        key += f"[{step}]" if isinstance(step, int) else f".{step}" if key else step
        try:
            raw = raw[step]  # type: ignore[index]  # an invalid value raises one of these
        except (KeyError, IndexError, TypeError):
            return RecordingError(f"{key}: is missing", key=key)
    if not key:
        return RecordingError(f"expected an event as one line of JSON, got {problem['msg']}")
    kind, allowed = kind_of(raw), problem.get("ctx", {}).get("expected")
    expected = _EXPECTED.get(problem["type"], allowed or problem["msg"])
    actual = "another one" if allowed and isinstance(raw, str) else kind
    return RecordingError(f"{key}: expected {expected}, got {actual}", key=key)


_EXPECTED: Final[Mapping[str, str]] = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "dict_type": "an object",
    "dataclass_type": "an object",
    "tuple_type": "an array",
}
_EVENT_TYPES: Final[Mapping[str, type[Event]]] = {kind.type: kind for kind in get_args(Event)}
