"""JSON-RPC messages ⇄ bytes, checked before they are parsed. Plain dictionaries; no model, no library.

`_core.Frame` reads the structure of a message in one pass, so that limits apply before the parser runs: to
the nesting (`limits.json_depth`); to the number of values (`limits.json_values`), because 64 MiB of
`[[],[],…` would become more than a gigabyte of Python lists; and to the memory of wide characters
(`limits.message_bytes`).

Long blobs are not parsed. Each becomes a `memoryview` of its message, ready for `_core.Pipe.write_base64` and
`_core.decode_base64`; everything else is plain JSON. `plain` turns the views into strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from playhead._core import Frame
from playhead.errors import LimitError, ProtocolError, UsageError
from playhead.limits import Limits
from playhead.strict_json import STRICT_DECODER

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022

_ID = rb'"id"\s*:\s*(-?[0-9]{1,20}(?![0-9]*\.0*[1-9])|"[^"\\]{0,256}")'
"""An integer or a string; 1.5 is not an id, and does not stand for 1."""
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'

_ANSWER_WITH_ID_FIRST = re.compile(
    rb"\s*\{\s*(?:"
    + _VERSION
    + rb"\s*,\s*)?"
    + _ID
    + rb"\s*,\s*(?:"
    + _VERSION
    + rb'\s*,\s*)?"(?:result|error)"'
)
"""`{"jsonrpc":"2.0","id":7,"result":`, as the Python and Go SDKs write."""

_ANSWER_HEAD = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb'\s*,\s*)?"(?:result|error)"')
_ANSWER_WITH_ID_LAST = re.compile(rb"(?<!\\)" + _ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*\Z")
"""`…},"jsonrpc":"2.0","id":7}`, as the TypeScript SDK writes. In valid JSON this can only be the outer id."""

_OUTCOME = re.compile(rb'"(result|error)"\s*:')
_ANY_ID = re.compile(rb"(?<!\\)(?:" + _ID + rb'|"id"\s*:)')
WIDE_FACTOR = 2
"""Limits the memory for the text of a message to this multiple of `limits.message_bytes`. Without it, an
answer of 63 MiB took 480 MB."""
_SEARCHED_BYTES = 4096
"""Bytes at each end of a broken line that are searched for its id."""
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class RpcError:
    """The error of an answer."""

    code: int
    message: str
    data: Any = None


def decode(data: bytes, limits: Limits, frame: Frame | None = None) -> Any:
    """Parse one message, or a batch of them, into plain JSON with views in place of its long blobs.

    Args:
        data: `bytes`, because only views of those are decoded with the GIL released. A view keeps it alive.
        frame: `Frame(data)`, if the caller has it.

    Raises:
        LimitError: it is nested deeper than `limits.json_depth`, holds more than `limits.json_values`
            values, or takes more memory than `limits.message_bytes` allows; `limit` names which.
        ProtocolError: it is not JSON in UTF-8. Both are the peer's fault.
    """
    frame = check_structure(data, limits, frame)
    blobs = frame.blobs()
    envelope = frame.envelope() if blobs else data
    try:
        value = STRICT_DECODER.decode(str(envelope, "utf-8"))
        if _SURROGATE.search(envelope):
            # A pair is a character; a lone one cannot be written as UTF-8 again.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"expected a JSON-RPC message in UTF-8, got invalid JSON: {error}") from error
    for field, item, view in blobs:
        match field:
            case "contents.blob":
                value["result"]["contents"][item]["blob"] = view
            case "content.data":
                value["result"]["content"][item]["data"] = view
            case "content.resource.blob":
                value["result"]["content"][item]["resource"]["blob"] = view
    return value


def encode(message: dict[str, Any]) -> bytes:
    """Write `message` as JSON on one line. Raises `UsageError` if its arguments can't be written as JSON."""
    try:
        return _ENCODER.encode(message).encode()
    except (ValueError, TypeError, RecursionError) as error:  # a lone surrogate, NaN, an unknown object
        raise UsageError(
            f"the request cannot be written as JSON in UTF-8 ({error}); correct its arguments"
        ) from error


def plain(result: dict[str, Any], *, but_main: bool = False) -> dict[str, Any]:
    """Turn the views in a result into strings, in place, so that it is plain JSON.

    Args:
        but_main: leave the view of a blob that is more than half of its message. A view keeps its whole
            message alive, so these take at most twice the memory of the blob.
    """
    for holder, key in _blob_places(result):
        view = holder.get(key)
        if not isinstance(view, memoryview):
            continue
        is_main = 2 * len(view) > memoryview(view.obj).nbytes
        if not (but_main and is_main):
            holder[key] = str(view, "ascii")
    return result


def _blob_places(result: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each object in a result that may hold a blob, with the key of the blob."""
    for item in _objects(result.get("contents")):
        yield item, "blob"
    for item in _objects(result.get("content")):
        yield item, "data"
        if isinstance(resource := item.get("resource"), dict):
            yield resource, "blob"


def _objects(items: object) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def check_structure(data: bytes | bytearray, limits: Limits, frame: Frame | None = None) -> Frame:
    """Check the memory of a message's text, its nesting and its number of values against the limits.

    Returns its structure, without parsing it. Raises:
        LimitError: as in `decode`.
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
    """Return the key of the request that a message answers. None if its two ends do not show the id.

    Args:
        head: the beginning of the message, or all of it.
        tail: its end; empty until that has arrived.
    """
    match = _ANSWER_WITH_ID_FIRST.match(head)
    if match is None and tail and _ANSWER_HEAD.match(head):
        match = _ANSWER_WITH_ID_LAST.search(tail)
    return None if match is None else _key_of_json(match[1])


def answered_plainly(frame: Frame) -> str | None:
    """Return the key of the request that a complete message answers. None if it is not an answer, or if its
    id needs parsing."""
    return str(frame.id) if frame.id is not None and frame.kind in ("result", "error") else None


def is_answer(head: bytes | bytearray) -> bool:
    """Return True if a message that begins with `head` is an answer."""
    return _ANSWER_WITH_ID_FIRST.match(head) is not None or _ANSWER_HEAD.match(head) is not None


def is_result(data: bytes | bytearray) -> bool:
    """Return True if an answer that begins with `data` is a result rather than an error, by its first key."""
    first = _OUTCOME.search(data, 0, _SEARCHED_BYTES)
    return first is not None and first[1] == b"result"


def broken_answer_id(data: bytes | bytearray) -> str | None:
    """Return the key of the request that an invalid message was probably meant to answer.

    None unless the line begins as an object and names the protocol: a log line that mentions an id must not
    fail the request with that id.
    """
    head, tail = bytes(data[:_SEARCHED_BYTES]), bytes(data[-_SEARCHED_BYTES:])
    if not head.lstrip().startswith(b"{") or not (b'"jsonrpc"' in head or b'"jsonrpc"' in tail):
        return None
    if b'"method"' in head:
        return None
    match = _ANSWER_WITH_ID_FIRST.match(head) or _ANSWER_WITH_ID_LAST.search(tail) or _ANY_ID.search(head)
    return None if match is None or match[1] is None else _key_of_json(match[1])


def _key_of_json(text: bytes) -> str:
    return text.strip(b'"').decode("utf-8", "replace")
