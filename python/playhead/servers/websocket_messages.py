"""What a client sent as a JSON-RPC message, or the answer that says why it is none. No clock and no socket.

| answer | to |
|---|---|
| -32700, id null | what is no JSON |
| -32600 | JSON that is no message: a batch, a wrong version, an id that is neither string nor integer |
| -32600, id null | a message nested too deep, or of too many values, which is not decoded |
| -32602 | a request whose `params` is no object |
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import mcp_types as types
import pydantic
import pydantic_core

from playhead.client.transports.messages import check_structure
from playhead.errors import LimitError
from playhead.limits import DEFAULT_LIMITS, Limits

BARE_INITIALIZED: Final = "initialized"
"""What clients in the field (2024-11-05) call `notifications/initialized`."""


def structure_limits(*, json_depth: int, json_values: int) -> Limits:
    """The limits that `decode` takes."""
    return replace(DEFAULT_LIMITS, json_depth=json_depth, json_values=json_values)


def decode(text: str, limits: Limits) -> types.JSONRPCMessage | Refusal:
    """A client's message.

    Args:
        text: of one frame, line or body.
        limits: `json_depth` and `json_values` are held against it before it is decoded.
    """
    data = text.encode()
    try:
        check_structure(data, limits)
    except LimitError as error:
        return Refusal(types.INVALID_REQUEST, str(error))
    try:
        value: Any = pydantic_core.from_json(data, allow_inf_nan=False)
    except ValueError as error:
        return Refusal(types.PARSE_ERROR, f"expected JSON, got what is none: {error}")
    if isinstance(value, list):
        return Refusal(types.INVALID_REQUEST, "expected one message, got a batch; send them one by one")
    if not isinstance(value, dict):
        return Refusal(types.INVALID_REQUEST, f"expected an object, got JSON of type {type(value).__name__}")
    return _message(value)


def _message(value: dict[str, Any]) -> types.JSONRPCMessage | Refusal:
    request_id = value.get("id")
    known = request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None
    if "method" in value:
        model: Any = types.JSONRPCRequest if "id" in value else types.JSONRPCNotification
    elif "result" in value:
        model = types.JSONRPCResponse
    elif "error" in value:
        model = types.JSONRPCError
    else:
        return Refusal(
            types.INVALID_REQUEST, 'expected "method", "result" or "error"; got none of them', known
        )
    if value.get("method") == BARE_INITIALIZED and "id" not in value:
        value = value | {"method": "notifications/initialized"}
    try:
        message: types.JSONRPCMessage = model.model_validate(value)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = str(first["loc"][0]) if first["loc"] else ""
        code = types.INVALID_PARAMS if place == "params" else types.INVALID_REQUEST
        # An answer that is none has no id of the client's own.
        theirs = known if "method" in value else None
        return Refusal(code, f"expected a JSON-RPC 2.0 message; at {place!r}: {first['msg']}", theirs)
    return message


class Refusal:
    """An error to send in place of an answer."""

    __slots__ = ("answer",)

    def __init__(self, code: int, why: str, request_id: types.RequestId | None = None) -> None:
        self.answer = types.JSONRPCError(
            jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=why)
        )
