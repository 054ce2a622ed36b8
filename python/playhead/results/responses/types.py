"""The built-in types of structured response, their base class and their constructors."""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, assert_never, get_args

from playhead.content.audio import mime_of, sniff
from playhead.content.formats import head_of_base64
from playhead.errors import UsageError

if TYPE_CHECKING:
    from playhead.content import TypedContent


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredResponse(ABC):
    """Base class of response types: a frozen dataclass that sets `type` and implements `content()`.

    The fields are the keys of the JSON, in order. A field that defaults to None is omitted while it is None;
    all others are always present. See `ResponseRegistry.with_type` to register and parse your own type.
    """

    type: ClassVar[str]
    """The wire name, case-sensitive."""

    success: bool
    timestamp: int
    """Unix seconds."""
    tool_name: str
    extra: Mapping[str, object] = field(default_factory=dict)
    """Unknown keys, as received; encoded after the known ones."""

    @property
    def is_terminal(self) -> bool:
        """True if the response ends the turn."""
        return False

    @property
    def stops_model(self) -> bool:
        """True if the model must not be called again: the response is terminal or silences the model."""
        return self.is_terminal

    @property
    def action_name(self) -> str | None:
        """The action performed, or None for types without one."""
        return None

    @abstractmethod
    def content(self) -> tuple[TypedContent, ...]:
        """Return the content blocks that represent the response, in order."""

    def to_json(self, *, compat: bool = False) -> str:
        """Encode as compact JSON: `type`, the common keys, the type's own keys, then unknown keys as is.

        Args:
            compat: Match the reference system (Go's encoding/json) byte for byte: escape `<`, `>`, `&`,
                U+2028 and U+2029, sort `metadata` by key, omit empty optional values. The exceptions are
                floats, which stay Python's (`1.0`, `1e-05`; Go writes `1`, `0.00001`), lone surrogates, which
                Go cannot represent, and keys inside `data` and `details`, which keep their order. Off by
                default, because every JSON parser reads both forms.

        Raises:
            UsageError: A field or an extra contains a value that JSON cannot represent.
        """
        wire: dict[str, object] = {"type": self.type}
        for each in fields(self):
            if each.name == "extra":
                continue
            value = getattr(self, each.name)
            if each.default is None and (value is None or (compat and value in ("", {}))):
                continue
            if isinstance(value, Mapping):
                value = dict(sorted(value.items())) if compat and each.name == "metadata" else dict(value)
            wire[each.name] = value
        wire |= {key: value for key, value in self.extra.items() if key not in wire}
        return _dump(wire, compat=compat)


UNKNOWN_MIME: Final = "application/octet-stream"
"""Fallback: an audio response carries no MIME type, and its first bytes may not identify one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResponse(StructuredResponse):
    """An action was performed; the flags control whether the model speaks next."""

    type: ClassVar[str] = "action"

    action: str
    message: str
    status: str = ""
    metadata: Mapping[str, str] | None = None
    final_action: bool = False
    no_further_response: bool = False
    silence_llm: bool = False
    """True to stop the model, without being terminal."""
    user_state: str = ""
    instruction: str | None = None

    @property
    def is_terminal(self) -> bool:
        return self.final_action or self.no_further_response

    @property
    def stops_model(self) -> bool:
        return self.final_action or self.no_further_response or self.silence_llm

    @property
    def action_name(self) -> str | None:
        return self.action

    def content(self) -> tuple[TypedContent, ...]:
        return _typed(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioResponse(StructuredResponse):
    """Audio with its title."""

    type: ClassVar[str] = "audio"

    data: str | None
    """Base64; None (JSON null) if the audio is delivered another way."""
    music_name: str
    action: str = ""
    status: str = ""
    metadata: Mapping[str, str] | None = None
    final_action: bool = False

    @property
    def is_terminal(self) -> bool:
        return self.final_action

    @property
    def action_name(self) -> str | None:
        return self.action

    def content(self) -> tuple[TypedContent, ...]:
        """Return the title, then the audio if any, with a MIME type detected from its first bytes."""
        return _typed(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentResponse(StructuredResponse):
    """Data for a program, with a message that describes it."""

    type: ClassVar[str] = "content"

    data: object
    """Any JSON value."""
    message: str

    def content(self) -> tuple[TypedContent, ...]:
        """Return the message only; the data is for the program."""
        return _typed(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse(StructuredResponse):
    """An error, with an optional suggestion."""

    type: ClassVar[str] = "error"

    error: str
    error_code: str | None = None
    details: object | None = None
    """Any JSON value."""
    suggestion: str | None = None

    def content(self) -> tuple[TypedContent, ...]:
        return _typed(self)


BuiltIn = ActionResponse | AudioResponse | ContentResponse | ErrorResponse


def raw_content(response: StructuredResponse) -> tuple[Mapping[str, Any], ...]:
    """Return `response.content()` as JSON. Only a registered type needs the SDK's types for that."""
    if isinstance(response, BuiltIn) and type(response) in get_args(BuiltIn):
        return _blocks(response)
    return tuple(block.model_dump(by_alias=True, exclude_none=True) for block in response.content())


def _blocks(response: BuiltIn) -> tuple[Mapping[str, Any], ...]:
    match response:
        case ActionResponse(message=text) | ContentResponse(message=text) | ErrorResponse(error=text):
            return ({"type": "text", "text": text},)
        case AudioResponse(music_name=title, data=data):
            text_block = {"type": "text", "text": title}
            if not data:
                return (text_block,)
            mime_type = mime_of(sniff(head_of_base64(data))) or UNKNOWN_MIME
            return text_block, {"type": "audio", "data": data, "mimeType": mime_type}
        case _:
            assert_never(response)


def _typed(response: BuiltIn) -> tuple[TypedContent, ...]:
    from playhead.content.types import typed  # the SDK's types

    return tuple(typed(block["type"], block) for block in _blocks(response))


def action_response(
    tool: str,
    action: str,
    message: str,
    status: str,
    *,
    terminal: bool = False,
    metadata: Mapping[str, str] | None = None,
    user_state: str = "",
    instruction: str | None = None,
    timestamp: int | None = None,
) -> ActionResponse:
    """Report a successful action. `terminal` sets all three flags (`final_action`, `no_further_response` and
    `silence_llm`); by default none is set and the model speaks next."""
    return ActionResponse(
        success=True,
        timestamp=_stamp(timestamp),
        tool_name=tool,
        action=action,
        message=message,
        status=status,
        metadata=metadata,
        final_action=terminal,
        no_further_response=terminal,
        silence_llm=terminal,
        user_state=user_state,
        instruction=instruction,
    )


def audio_response(
    tool: str,
    action: str,
    status: str,
    *,
    terminal: bool = False,
    data: str | None = None,
    music_name: str = "",
    metadata: Mapping[str, str] | None = None,
    timestamp: int | None = None,
) -> AudioResponse:
    """Return audio. `terminal` sets only `final_action`; `data` is base64 (RFC 4648, section 4, padded)."""
    return AudioResponse(
        success=True,
        timestamp=_stamp(timestamp),
        tool_name=tool,
        data=data,
        music_name=music_name,
        action=action,
        status=status,
        metadata=metadata,
        final_action=terminal,
    )


def content_response(
    tool: str, data: object, message: str, *, timestamp: int | None = None
) -> ContentResponse:
    """Return data (any JSON value) with a message."""
    return ContentResponse(
        success=True, timestamp=_stamp(timestamp), tool_name=tool, data=data, message=message
    )


def error_response(
    tool: str,
    error: str,
    code: str | None = None,
    suggestion: str | None = None,
    *,
    details: object | None = None,
    timestamp: int | None = None,
) -> ErrorResponse:
    """Report a failure: `success` is false."""
    return ErrorResponse(
        success=False,
        timestamp=_stamp(timestamp),
        tool_name=tool,
        error=error,
        error_code=code,
        details=details,
        suggestion=suggestion,
    )


def _stamp(timestamp: int | None) -> int:
    return int(time.time()) if timestamp is None else timestamp


# --- JSON as Go's encoding/json writes it ----------------------------------------------------------------

_ESCAPED_BY_GO: Final = re.compile("[<>&\u2028\u2029]")
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _dump(value: Mapping[str, object], *, compat: bool) -> str:
    """Encode `value` as compact JSON, non-ASCII characters unescaped, keeping the order of keys.

    In compat mode it matches the default of Go's encoding/json, which escapes `<`, `>`, `&`, U+2028 and
    U+2029 so that the JSON is safe in HTML and JavaScript. Raises `UsageError` for a value that JSON cannot
    represent: NaN, a cycle, a custom object.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"expected values that JSON can represent: {error}") from error
    # All of these occur only inside JSON strings, where an escape is equivalent.
    text = _LONE_SURROGATE.sub(_escape, text)
    return _ESCAPED_BY_GO.sub(_escape, text) if compat else text


def _plain(value: object) -> object:
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
