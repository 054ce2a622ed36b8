"""JSON-RPC messages as the SDK's models, for the transports under its session. Goes with them."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pydantic
import pydantic_core
from mcp.shared.exceptions import MCPError

from playhead._core import Frame
from playhead.errors import PlayheadError, ProtocolError, UsageError
from playhead.limits import Limits
from playhead.protocol.messages import (
    WIDE_FACTOR as WIDE_FACTOR,
)
from playhead.protocol.messages import (
    answered_id as answered_id,
)
from playhead.protocol.messages import (
    answered_plainly as answered_plainly,
)
from playhead.protocol.messages import (
    broken_answer_id as broken_answer_id,
)
from playhead.protocol.messages import (
    check_structure as check_structure,
)
from playhead.protocol.messages import (
    is_answer as is_answer,
)
from playhead.protocol.messages import (
    is_result as is_result,
)
from playhead.protocol.messages import (
    key_of as key_of,
)
from playhead.protocol.messages import (
    plain as plain,
)


def parse_message(
    data: bytes | bytearray, limits: Limits, *, views: bool = False, frame: Frame | None = None
) -> types.JSONRPCMessage:
    """Decode one message.

    Args:
        views: leave the long blobs of a result (`_core.Frame.blobs`) in `data`: each becomes a `memoryview`
            of its base64 text, which keeps `data` alive. Pass `bytes`: only views of those are decoded with
            the GIL released. `plain` makes them strings.
        frame: `Frame(data)`, if it is at hand.

    Raises:
        LimitError: it is nested deeper than `limits.json_depth`, holds more than `limits.json_values`
            values, or takes more memory than `limits.message_bytes` allows; `limit` names which.
        ProtocolError: it is not JSON in UTF-8, or not a JSON-RPC 2.0 message. Both are the peer's fault.
    """
    frame = check_structure(data, limits, frame)
    value = _with_views(frame) if views else None
    if value is None:
        try:
            value = pydantic_core.from_json(data, allow_inf_nan=False)
        except ValueError as error:
            raise ProtocolError(f"expected a JSON-RPC message in UTF-8, got invalid JSON: {error}") from error
    try:
        return _as_message(value)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ProtocolError(
            f"expected a JSON-RPC 2.0 request, notification or answer; at {where!r}: {first['msg']}"
        ) from error


def _with_views(frame: Frame) -> Any:
    """The message with views in place of its blobs; None if it has none, or is not JSON."""
    blobs = frame.blobs()
    if not blobs:
        return None
    try:
        value = pydantic_core.from_json(frame.envelope(), allow_inf_nan=False)
    except ValueError:
        return None  # nor is the whole message: its error names the right place
    result = value["result"]
    for field, item, view in blobs:
        match field:
            case "contents.blob":
                result["contents"][item]["blob"] = view
            case "content.data":
                result["content"][item]["data"] = view
            case "content.resource.blob":
                result["content"][item]["resource"]["blob"] = view
    return value


def _as_message(value: Any) -> types.JSONRPCMessage:
    # The keys decide which of the four it is: trying all four would validate a page four times.
    if not isinstance(value, dict):
        raise ProtocolError(
            f"expected a JSON-RPC message (an object), got JSON of type {type(value).__name__}"
        )
    if isinstance(number := value.get("id"), float) and number.is_integer():
        value["id"] = int(number)  # JSON has one kind of number: 1.0 is 1
    if "method" in value:
        model: Any = types.JSONRPCRequest if "id" in value else types.JSONRPCNotification
    elif "result" in value:
        model = types.JSONRPCResponse
    elif "error" in value:
        # Without an id: JSON-RPC 2.0, section 5, requires null if it couldn't be read; some leave it out.
        value.setdefault("id", None)
        model = types.JSONRPCError
    else:
        raise ProtocolError(
            'expected a JSON-RPC message, got an object without "method", "result" or "error"'
        )
    message: types.JSONRPCMessage = model.model_validate(value)
    return message


def encode(message: types.JSONRPCMessage) -> bytes | UsageError:
    """`message` as JSON on one line; a `UsageError` if its arguments can't be written as JSON."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except ValueError as error:  # a lone surrogate, or an object that JSON does not know
        return UsageError(f"the request cannot be written as JSON in UTF-8 ({error}); correct its arguments")


def answered_key(message: types.JSONRPCMessage) -> str | None:
    """The key of the request that `message` answers; None if it is not an answer."""
    if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and message.id is not None:
        return key_of(message.id)
    return None


def cancellation(request_id: types.RequestId) -> types.JSONRPCNotification:
    """The notification that nobody waits for the answer to `request_id` any more."""
    params = {"requestId": request_id, "reason": "cancelled"}
    return types.JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=params)


def error_answer(request_id: types.RequestId, error: PlayheadError) -> types.JSONRPCError:
    """An answer of our own, for a request whose real answer will not arrive or cannot be used."""
    data = types.ErrorData(code=types.INTERNAL_ERROR, message=str(error), data=error)
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=data)


def own_error(error: MCPError) -> PlayheadError | None:
    """The exception that `error_answer` put into an answer; None if the peer sent the error."""
    data = error.error.data
    return data if isinstance(data, PlayheadError) else None
