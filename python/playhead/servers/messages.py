"""The JSON-RPC messages of a client. An invalid one gets the same error on every transport.

| error | for |
|---|---|
| -32700, id null | anything but JSON |
| -32600 | JSON that is not a message: a batch, a wrong version, an id that is neither string nor integer |
| -32600, id null | a message nested too deeply, or with too many values, which is not decoded |
| -32602 | a request whose `params` are not an object |

The SDK's own error depends on the transport and the protocol version, and quotes its parser at length.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import mcp_types as types
import pydantic
import pydantic_core
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from playhead.errors import LimitError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.protocol.messages import check_structure

BARE_INITIALIZED: Final = "initialized"
"""The name that clients in the field (2024-11-05) use for `notifications/initialized`."""

MESSAGE_LIMITS: Final = replace(DEFAULT_LIMITS, json_depth=128, json_values=50_000)
"""Limits a client's message. Real ones are short, and `[[],[],…` of 1 MiB would become 60 MB of Python
lists."""


class ErrorAnswer:
    """An error answer to send."""

    __slots__ = ("answer",)

    def __init__(self, code: int, reason: str, request_id: types.RequestId | None = None) -> None:
        self.answer = types.JSONRPCError(
            jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=reason)
        )


def decode(data: bytes, limits: Limits = MESSAGE_LIMITS) -> types.JSONRPCMessage | ErrorAnswer:
    """Decode a frame, line or body, after a check of the `json_depth` and `json_values` of `limits`."""
    try:
        check_structure(data, limits)
    except LimitError as error:
        return ErrorAnswer(types.INVALID_REQUEST, str(error))
    try:
        value: Any = pydantic_core.from_json(data, allow_inf_nan=False)
    except ValueError as error:
        return ErrorAnswer(types.PARSE_ERROR, f"expected JSON: {error}")
    if isinstance(value, list):
        return ErrorAnswer(types.INVALID_REQUEST, "expected one message, got a batch; send them one by one")
    if not isinstance(value, dict):
        return ErrorAnswer(
            types.INVALID_REQUEST, f"expected an object, got JSON of type {type(value).__name__}"
        )
    return _validate_message(value)


def _validate_message(value: dict[str, Any]) -> types.JSONRPCMessage | ErrorAnswer:
    request_id = value.get("id")
    valid_id = request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None
    if "method" in value and "id" in value and request_id is None:
        return ErrorAnswer(
            types.INVALID_REQUEST,
            'expected a string or an integer as "id", got null; a notification has no "id": leave it out',
        )
    if "method" in value:
        model: Any = types.JSONRPCRequest if "id" in value else types.JSONRPCNotification
    elif "result" in value:
        model = types.JSONRPCResponse
    elif "error" in value:
        model = types.JSONRPCError
    else:
        return ErrorAnswer(
            types.INVALID_REQUEST, 'expected "method", "result" or "error", got neither', valid_id
        )
    if value.get("method") == BARE_INITIALIZED and "id" not in value:
        value = value | {"method": "notifications/initialized"}
    try:
        message: types.JSONRPCMessage = model.model_validate(value)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = str(first["loc"][0]) if first["loc"] else ""
        code = types.INVALID_PARAMS if place == "params" else types.INVALID_REQUEST
        # In an invalid answer, the id is one of this server's requests, so the error must not have it.
        error_id = valid_id if "method" in value else None
        return ErrorAnswer(code, f"expected a JSON-RPC 2.0 message; at {place!r}: {first['msg']}", error_id)
    return message


class OnlyMessages:
    """ASGI middleware that answers a POST on `path` whose body is not a message with HTTP 400 and the error.

    It relies on `serve_app`, which limits the body and passes it on in one piece.
    """

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return
        unread = [await receive()]
        decoded = decode(unread[0].get("body", b""))
        if isinstance(decoded, ErrorAnswer):
            text = decoded.answer.model_dump_json(by_alias=True, exclude_unset=True)
            await Response(text, status_code=400, media_type="application/json")(scope, receive, send)
            return

        async def replay() -> Message:
            return unread.pop() if unread else await receive()

        await self._app(scope, replay, send)
