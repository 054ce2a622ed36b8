"""What the answer to a POST stands for: a message for its request, or one of our errors."""

from __future__ import annotations

from typing import Any

import httpx2
import pydantic_core
from mcp.client.streamable_http import MCP_SESSION_ID
from mcp_types import INVALID_REQUEST, RequestId

from playhead.client.transports import frames, messages
from playhead.errors import AccessDeniedError, HttpStatusError, ProtocolError, SessionLostError
from playhead.limits import Limits


def place_of(url: str) -> str:
    """`url` without what may be secret in it: userinfo, query and fragment."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        return "(not a URL)"
    return str(parsed.copy_with(userinfo=b"", query=None, fragment=None))


def check_status(response: httpx2.Response, content: bytes) -> None:
    """Raise the error that `response` stands for; return where its body is the peer's JSON-RPC error."""
    status = response.status_code
    place = place_of(str(response.request.url))
    answered = f"HTTP {status} {response.reason_phrase}".rstrip()
    error = _error_in(content)
    said = error.get("message", "") if error is not None else ""
    had_session = MCP_SESSION_ID in response.request.headers
    refused = (
        error is not None and error.get("code") == INVALID_REQUEST and "session not found" in said.lower()
    )
    if had_session and (refused or (status == 404 and (error is None or "session" in said.lower()))):
        raise SessionLostError(f"{place} no longer knows the session (HTTP {status})")
    if status in (401, 403):
        raise AccessDeniedError(
            f"{place} refused access with {answered}: give (other) credentials under `headers` or `auth`",
            status=status,
        )
    if error is not None:
        return
    if status >= 500 or status == 429:
        raise HttpStatusError(f"{place} answered {answered}", status=status)
    raise ProtocolError(f"{place} answered {answered}: is it an MCP endpoint?")


def _error_in(content: bytes) -> dict[str, Any] | None:
    try:
        # Not the json module's parser: 60 KiB of brackets make that one raise RecursionError.
        message = pydantic_core.from_json(content)
    except ValueError:
        return None
    error = message.get("error") if isinstance(message, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    return error


def check_answer(content: bytes, request_id: RequestId, limits: Limits, *, place: str) -> None:
    """Raise unless the JSON in `content`, which the SDK parses next, answers `request_id`.

    The SDK hands on whatever it holds: another request would get the answer of this one, and this one would
    wait for its deadline. `ProtocolError` for that, `LimitError` for nesting or values past the limits.
    """
    messages.check_structure(content, limits)
    key = messages.answered_id(content, content[-frames.TAIL_BYTES :])
    if key is None:
        key = messages.answered_key(messages.parse_message(content, limits))
    if key != messages.key_of(request_id):
        raise ProtocolError(
            f"{place} was sent request {request_id} and answered "
            + ("with a message that is no answer" if key is None else f"request {key[:40]!r}")
        )
