"""What a turn tells while it runs: typed events, each also one line of JSON.

One turn with two parallel calls, `b` done first, and then the answer:

    llm_response_created, text_delta …, mcp_tool_in_progress(a), mcp_tool_call_begin(a),
    mcp_tool_in_progress(b), mcp_tool_call_begin(b), text_complete, llm_response_complete, usage,
    mcp_tool_call_response(b), mcp_tool_call_response(a), mcp_tool_complete([a, b]),
    llm_response_created, text_delta …, text_complete, llm_response_complete, usage

A call's response comes as soon as the call is done, also while the reply still streams; `mcp_tool_complete`
and the messages to the model are in the order of the calls. A call's status goes pending → invoking → done,
error or cancelled. Events hold no media: what played or was shown is named, never quoted.

`to_json` and `from_json` are in event_lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from playhead.agent.conversation import Status

CallStatus = Literal["pending", "invoking", "done", "error", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRef:
    """The call that an event is about."""

    id: str
    name: str
    arguments: Mapping[str, Any] | None
    """None while they still come, and where the model wrote no JSON object."""
    status: CallStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResponse:
    """One call's result, as the model gets it."""

    id: str
    name: str
    text: str
    status: Status
    media: tuple[str, ...] = ()
    """MIME types of what went to the model natively."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    round: int
    """The number of the model call within the turn, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyCreated(_Event):
    """The model was asked."""

    type: ClassVar[str] = "llm_response_created"
    provider: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(_Event):
    type: ClassVar[str] = "text_delta"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextComplete(_Event):
    """The reply's whole text; told only where there is any."""

    type: ClassVar[str] = "text_complete"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta(_Event):
    type: ClassVar[str] = "thinking_delta"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInProgress(_Event):
    """A call is complete in the stream (its name and arguments are known)."""

    type: ClassVar[str] = "mcp_tool_in_progress"
    tool: ToolRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPending(_Event):
    """The call waits for somebody to allow it."""

    type: ClassVar[str] = "mcp_tool_pending"
    tool: ToolRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallBegin(_Event):
    """The call goes to its server."""

    type: ClassVar[str] = "mcp_tool_call_begin"
    tool: ToolRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress(_Event):
    type: ClassVar[str] = "mcp_tool_progress"
    tool: ToolRef
    progress: float
    total: float | None
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallResponse(_Event):
    type: ClassVar[str] = "mcp_tool_call_response"
    tool: ToolRef
    result: ToolResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallError(_Event):
    """The call gave no result of its tool's: it was denied, unknown, late, cancelled, too much, or it raised.
    The model is told `error`."""

    type: ClassVar[str] = "mcp_tool_call_error"
    tool: ToolRef
    status: Status
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolComplete(_Event):
    """Every call of the reply has its result; in the order of the calls."""

    type: ClassVar[str] = "mcp_tool_complete"
    responses: tuple[ToolResponse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioStart(_Event):
    """A result's sound went to the player."""

    type: ClassVar[str] = "audio_start"
    tool: ToolRef
    title: str
    mime_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioEnd(_Event):
    """The sound is over; `error` says why where it failed."""

    type: ClassVar[str] = "audio_end"
    title: str
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageComplete(_Event):
    """A result has an image for the user."""

    type: ClassVar[str] = "image_complete"
    tool: ToolRef
    mime_type: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(_Event):
    """Tokens of this model call; None where the provider doesn't say."""

    type: ClassVar[str] = "usage"
    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyComplete(_Event):
    """The model's reply is over."""

    type: ClassVar[str] = "llm_response_complete"
    stop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(_Event):
    """The turn can't go on; its caller gets the exception too."""

    type: ClassVar[str] = "error"
    error: str
    kind: str = ""
    """The exception's class."""


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
    | ImageComplete
    | Usage
    | ReplyComplete
    | Failed
)
