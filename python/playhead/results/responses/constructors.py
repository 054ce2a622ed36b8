"""How a tool makes its responses.

Each takes `timestamp` (unix seconds); by default it is now, by the system's clock. That is the one place of
this package that looks at a clock, and only where it was given no time: a server wants its answers stamped, a
test passes a number.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from playhead.results.responses.types import ActionResponse, AudioResponse, ContentResponse, ErrorResponse


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
    """An action that succeeded. `terminal` sets all three flags: `final_action`, `no_further_response` and
    `silence_llm`; off by default, so that the model speaks next."""
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
    """Sound. `terminal` sets `final_action` alone; `data` is base64 (RFC 4648, section 4, padded)."""
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
    """Data, any JSON value, with a message."""
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
    """A failure: `success` is false."""
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
