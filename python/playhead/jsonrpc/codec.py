"""Decode one JSON-RPC message from the bytes of a line, a frame or a body, checked before it is parsed.

`pydantic_core.from_json` parses straight to Python objects: strict UTF-8, no NaN, no lone surrogates, its own
recursion guard. Two things that it does not limit are limited here, in linear time and before it runs: the
nesting (`limits.json_depth`) and the number of values (`limits.json_values`), because 64 MiB of `[[],[],…`
would become more than a gigabyte of Python lists.

Our own errors travel to the caller of a request inside the SDK as ordinary JSON-RPC errors whose `data` is
the exception object itself. A peer cannot forge that: it can only send JSON.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any

import mcp_types as types
import pydantic
import pydantic_core
from mcp.shared.exceptions import MCPError

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
_STRING = re.compile(rb'"[^"]*"')
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{},"'))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_BELOW_FOUR_BYTES = bytes(range(0xF0))
_SURROGATE = re.compile(rb"\\u[dD][89abAB]")
_NO_CONTINUATION = bytes([*range(0x80), *range(0xC0, 0x100)])
WIDE_FACTOR = 2
"""Memory allowed for the text of a message, as a multiple of its limit in bytes. Without it an answer of
63 MiB made a client of 480 MB."""
_FEW_COMMAS = 256
"""A page has about ten. With more, one counting pass is cheaper than a search for each."""
_LOOK_BYTES = 4096
"""Bytes at each end of a broken line that are searched for its id."""


def parse_message(data: bytes | bytearray, limits: Limits) -> types.JSONRPCMessage:
    """Decode one message.

    Raises:
        LimitError: it is nested deeper than `limits.json_depth`, holds more than `limits.json_values`
            values, or takes more memory than `limits.message_bytes` allows; `limit` names which.
        ProtocolError: it is not JSON in UTF-8, or not a JSON-RPC 2.0 message. Both are the peer's fault.
    """
    check_structure(data, limits)
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


def _as_message(value: Any) -> types.JSONRPCMessage:
    # The keys decide which of the four it is: trying all four would validate a page four times.
    if not isinstance(value, dict):
        raise ProtocolError(
            f"expected a JSON-RPC message (an object), got JSON of type {type(value).__name__}"
        )
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


def check_structure(data: bytes | bytearray, limits: Limits) -> None:
    """Check a message's nesting, number of values and width against the limits, without parsing it.

    A page (one long base64 string) takes the short path: it has too few brackets and commas to exceed them.

    Raises:
        LimitError: as in `parse_message`.
    """
    _check_width(data, limits)
    opening = _count_up_to(data, b"[", limits.json_depth + 1) + _count_up_to(
        data, b"{", limits.json_depth + 1
    )
    many = limits.json_values // 2
    if opening <= limits.json_depth and _commas(data) <= many:
        return
    if opening > limits.json_depth or data.count(b",") + data.count(b"[") + data.count(b"{") > many:
        _check_skeleton(data, limits)


def _check_width(data: bytes | bytearray, limits: Limits) -> None:
    # One emoji makes the whole string that holds it four times as long in memory.
    allowed = WIDE_FACTOR * limits.message_bytes
    if 4 * len(data) <= allowed or (data.isascii() and b"\\u" not in data):
        return
    width = 4 if data.translate(None, _BELOW_FOUR_BYTES) or _SURROGATE.search(data) else 2
    characters = len(data) - len(data.translate(None, _NO_CONTINUATION))
    if width * characters > allowed:
        raise LimitError(
            f"expected a message whose text takes at most {allowed} bytes of memory ({WIDE_FACTOR} times"
            f" the limit message_bytes), got one that may take {width * characters}; ask for smaller pages,"
            " or raise the limit",
            limit="message_bytes",
            allowed=allowed,
            got=width * characters,
        )


def _check_skeleton(data: bytes | bytearray, limits: Limits) -> None:
    # Every step runs in C, passes over the data once and holds no list that grows with it. Backslashes in a
    # run escape each other in pairs from the left, which these replacements reproduce.
    structure = data
    if b"\\" in structure:
        structure = structure.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = structure.translate(None, _NOT_STRUCTURE)
    if structure.count(b'"') > 4 * limits.json_values:  # a key and a value, two quotes each
        raise _too_many(structure.count(b'"') // 4, limits)
    if b'"' in structure:
        # An unfinished string leaves its quote behind: invalid JSON, which the parser will report.
        structure = _STRING.sub(b"", structure).replace(b'"', b"")
    opened = structure.count(b"[") + structure.count(b"{")
    closed = structure.count(b"]") + structure.count(b"}")
    values = max(opened + structure.count(b","), closed)
    if values > limits.json_values:
        raise _too_many(values, limits)
    brackets = structure.translate(None, b",")
    depth = max(accumulate(map(_STEP.__getitem__, brackets)), default=0)
    if depth > limits.json_depth:
        raise LimitError(
            f"expected JSON nested at most {limits.json_depth} deep (limit json_depth), got {depth}",
            limit="json_depth",
            allowed=limits.json_depth,
            got=depth,
        )


def _too_many(values: int, limits: Limits) -> LimitError:
    return LimitError(
        f"expected a message of at most {limits.json_values} values (limit json_values), got {values}",
        limit="json_values",
        allowed=limits.json_values,
        got=values,
    )


def _commas(data: bytes | bytearray) -> int:
    found = _count_up_to(data, b",", _FEW_COMMAS)
    return found if found < _FEW_COMMAS else data.count(b",")


def _count_up_to(data: bytes | bytearray, byte: bytes, most: int) -> int:
    # `find` runs at memchr's speed over a page's base64, `count` does not (0.07 against 0.4 ms per MiB).
    count, at = 0, data.find(byte)
    while at >= 0 and count < most:
        count += 1
        at = data.find(byte, at + 1)
    return count


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


def error_answer(request_id: types.RequestId, error: PlayheadError) -> types.JSONRPCError:
    """An answer of our own, for a request whose real answer will not arrive or cannot be used."""
    data = types.ErrorData(code=types.INTERNAL_ERROR, message=str(error), data=error)
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=data)


def own_error(error: MCPError) -> PlayheadError | None:
    """The exception that `error_answer` put into an answer; None if the peer sent the error."""
    data = error.error.data
    return data if isinstance(data, PlayheadError) else None
