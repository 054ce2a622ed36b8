"""Decode one JSON-RPC message from the bytes of a line, a frame or a body, checked before it is parsed.

`_core.Frame` reads the structure of a message in one pass, and `pydantic_core.from_json` parses it straight
to Python objects: strict UTF-8, no NaN, no lone surrogates, its own recursion guard. Three things that it
does not limit are limited here, before it runs: the nesting (`limits.json_depth`), the number of values
(`limits.json_values`), because 64 MiB of `[[],[],…` would become more than a gigabyte of Python lists, and
the memory of wide characters (`limits.message_bytes`).

Long blobs need not be parsed at all. With `views=True` each is a `memoryview` of the message, ready for
`_core.Pipe.write_base64` and `_core.decode_base64`; everything else in the message is plain JSON.

Our own errors travel to the caller of a request inside the SDK as ordinary JSON-RPC errors whose `data` is
the exception object itself. A peer cannot forge that: it can only send JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import mcp_types as types
import pydantic
import pydantic_core
from mcp.shared.exceptions import MCPError

from playhead._core import Frame
from playhead.errors import LimitError, PlayheadError, ProtocolError, UsageError
from playhead.limits import Limits

_ID = rb'"id"\s*:\s*(-?[0-9]{1,20}(?![0-9]*\.0*[1-9])|"[^"\\]{0,256}")'
"""An integer or a string; 1.5 is not an id, and does not stand for 1."""
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'

_ID_FIRST = re.compile(
    rb"\s*\{\s*(?:"
    + _VERSION
    + rb"\s*,\s*)?"
    + _ID
    + rb"\s*,\s*(?:"
    + _VERSION
    + rb'\s*,\s*)?"(?:result|error)"'
)
"""`{"jsonrpc":"2.0","id":7,"result":`, as the Python and Go SDKs write."""

_ANSWER_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb'\s*,\s*)?"(?:result|error)"')
_ID_LAST = re.compile(rb"(?<!\\)" + _ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*\Z")
"""`…},"jsonrpc":"2.0","id":7}`, as the TypeScript SDK writes. In valid JSON this can only be the outer id."""

_OUTCOME = re.compile(rb'"(result|error)"\s*:')
_FIRST_ID = re.compile(rb"(?<!\\)(?:" + _ID + rb'|"id"\s*:)')
WIDE_FACTOR = 2
"""Memory allowed for the text of a message, as a multiple of its limit in bytes. Without it an answer of
63 MiB made a client of 480 MB."""
_LOOK_BYTES = 4096
"""Bytes at each end of a broken line that are searched for its id."""


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


def plain(result: dict[str, Any], *, but_main: bool = False) -> dict[str, Any]:
    """Make the views in a result strings, in place: what leaves to a caller is plain JSON.

    Args:
        but_main: leave the view of a blob that is more than half of its message. A view keeps its whole
            message alive, so that what is kept of a result takes at most twice its size.
    """
    for holder, key in _holders(result):
        view = holder.get(key)
        if isinstance(view, memoryview) and not (but_main and 2 * len(view) > memoryview(view.obj).nbytes):
            holder[key] = str(view, "ascii")
    return result


def _holders(result: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for item in _objects(result.get("contents")):
        yield item, "blob"
    for item in _objects(result.get("content")):
        yield item, "data"
        if isinstance(resource := item.get("resource"), dict):
            yield resource, "blob"


def _objects(items: object) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


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


def check_structure(data: bytes | bytearray, limits: Limits, frame: Frame | None = None) -> Frame:
    """Check a message's width, nesting and number of values against the limits, without parsing it.

    Returns its structure. Raises:
        LimitError: as in `parse_message`.
    """
    frame = frame or Frame(data)
    # One emoji makes the whole string that holds it four times as long in memory.
    allowed = WIDE_FACTOR * limits.message_bytes
    if 4 * len(data) > allowed and (taken := frame.text_bytes()) > allowed:
        raise LimitError(
            f"expected a message whose text takes at most {allowed} bytes of memory ({WIDE_FACTOR} times"
            f" the limit message_bytes), got one that may take {taken}; ask for smaller pages,"
            " or raise the limit",
            limit="message_bytes",
            allowed=allowed,
            got=taken,
        )
    if frame.values > limits.json_values:
        raise LimitError(
            f"expected a message of at most {limits.json_values} values (limit json_values), got"
            f" {frame.values}",
            limit="json_values",
            allowed=limits.json_values,
            got=frame.values,
        )
    if frame.depth > limits.json_depth:
        raise LimitError(
            f"expected JSON nested at most {limits.json_depth} deep (limit json_depth), got {frame.depth}",
            limit="json_depth",
            allowed=limits.json_depth,
            got=frame.depth,
        )
    return frame


def answered_id(head: bytes | bytearray, tail: bytes | bytearray = b"") -> str | None:
    """The key of the request that a message answers, found in its two ends; None if they don't show it.

    Args:
        head: the beginning of the message, or all of it.
        tail: its end; empty as long as that has not arrived.
    """
    match = _ID_FIRST.match(head)
    if match is None and tail and _ANSWER_FIRST.match(head):
        match = _ID_LAST.search(tail)
    return None if match is None else _key_of_text(match[1])


def answered_plainly(frame: Frame) -> str | None:
    """The key of the request that a whole message answers; None for no answer, or if its id needs parsing."""
    return key_of(frame.id) if frame.id is not None and frame.kind in ("result", "error") else None


def answered_key(message: types.JSONRPCMessage) -> str | None:
    """The key of the request that `message` answers; None if it is not an answer."""
    if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and message.id is not None:
        return key_of(message.id)
    return None


def is_answer(head: bytes | bytearray) -> bool:
    """True if a message that begins with `head` is an answer."""
    return _ID_FIRST.match(head) is not None or _ANSWER_FIRST.match(head) is not None


def is_result(data: bytes | bytearray) -> bool:
    """True if an answer that begins with `data` is a result rather than an error, by its first key."""
    first = _OUTCOME.search(data, 0, _LOOK_BYTES)
    return first is not None and first[1] == b"result"


def broken_answer_id(data: bytes | bytearray) -> str | None:
    """The key of the request that a broken message was probably meant to answer.

    Only a line that begins as an object and names the protocol is considered: a log line that mentions an id
    must not fail the request with that id.
    """
    head, tail = bytes(data[:_LOOK_BYTES]), bytes(data[-_LOOK_BYTES:])
    if not head.lstrip().startswith(b"{") or not (b'"jsonrpc"' in head or b'"jsonrpc"' in tail):
        return None
    if b'"method"' in head:
        return None
    match = _ID_FIRST.match(head) or _ID_LAST.search(tail) or _FIRST_ID.search(head)
    return None if match is None or match[1] is None else _key_of_text(match[1])


def key_of(request_id: types.RequestId) -> str:
    """The key that matches an answer to its request: servers may echo 7 as "7" (the SDK accepts that too)."""
    return str(request_id)


def _key_of_text(text: bytes) -> str:
    return text.strip(b'"').decode("utf-8", "replace")


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
