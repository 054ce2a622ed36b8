"""`_core.Frame`, and the codec on it, against the SDK's parser and slow code that counts over copies."""

from __future__ import annotations

import base64
import json
import re
from itertools import accumulate
from typing import Any

import mcp_types as types
import pydantic
import pydantic_core
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from playhead._core import Frame, decode_base64
from playhead.errors import LimitError, ProtocolError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.protocol import messages
from playhead.strict_json import parse_json

LONG = "QUJD" * 256
NAMES = ("id", "method", "result", "error", "contents", "content", "blob", "data", "resource", "jsonrpc", "x")

strings = st.sampled_from([LONG, LONG + "QUI=", LONG + "\n", LONG + "é", "QUJD", "", '{[,\\"', "😀", "2.0"])
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | strings | st.text(max_size=9)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=20,
)
items = st.fixed_dictionaries(
    {"type": st.sampled_from(["audio", "text"])},
    optional={
        "blob": strings,
        "data": strings,
        "resource": st.fixed_dictionaries({"blob": strings}) | values,
        "x": values,
    },
)
results = st.fixed_dictionaries(
    {}, optional={"contents": st.lists(items | values, max_size=4), "content": st.lists(items, max_size=4)}
)
ids = st.integers() | st.text(max_size=300) | st.none() | st.booleans() | st.floats(allow_nan=False)
jsonrpc_messages = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0")},
    optional={
        "id": ids,
        "method": st.just("x"),
        "result": results,
        "error": st.just({"code": 1, "message": "no"}),
        "x": values,
    },
)


@st.composite
def encoded(draw: st.DrawFn) -> bytes:
    spaces = draw(st.sampled_from([(",", ":"), (" ,\n", " : ")]))
    text = json.dumps(draw(jsonrpc_messages), separators=spaces, ensure_ascii=draw(st.booleans()))
    return text.encode("utf-8", "surrogatepass")


KINDS: dict[type[object], str] = {
    types.JSONRPCRequest: "request",
    types.JSONRPCNotification: "notification",
    types.JSONRPCResponse: "result",
    types.JSONRPCError: "error",
}


@given(data=encoded())
def test_kind_and_id_are_those_of_the_sdks_parser(data: bytes) -> None:
    frame = Frame(data)
    value = pydantic_core.from_json(data.replace(b"\\ud", b"?"))
    try:
        message = types.jsonrpc_message_adapter.validate_json(data)
    except pydantic.ValidationError:
        return
    if len(value.keys() & {"method", "result", "error"}) == 1 and not ("id" in value and "method" in value):
        # Of a message with two of the keys, or a request with a wrong id, the SDK makes the first kind that
        # fits without the rest; the codec refuses it.
        assert frame.kind == KINDS[type(message)]
    if frame.kind == KINDS[type(message)] and not isinstance(message, types.JSONRPCNotification):
        written = value.get("id")
        is_plain = (
            -(2**63) <= written < 2**63
            if type(written) is int
            else isinstance(written, str)
            and len(written.encode()) <= 256
            and json.dumps(written)[1:-1] == written
        )
        if is_plain:
            assert frame.id == message.id == written
        else:
            assert frame.id in (None, message.id)


def plainly(data: bytes) -> object:
    """The message as the standard library reads it, or what is wrong with it."""
    try:
        value = parse_json(data.decode())
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return ProtocolError
    return value


def decoded(data: bytes) -> object:
    try:
        value = messages.decode(data, DEFAULT_LIMITS)
    except (ProtocolError, LimitError) as error:
        return type(error)
    if isinstance(value, dict) and isinstance(result := value.get("result"), dict):
        messages.plain(result)
    return value


@given(data=encoded())
def test_with_views_put_back_a_message_is_the_one_without(data: bytes) -> None:
    assert decoded(data) == plainly(data)
    assert all(view.obj is data and view.readonly for _, _, view in Frame(data).blobs())


@given(data=encoded(), at=st.integers(0, 5000), byte=st.sampled_from(b'"\\{}[],:\n\x00\x80'))
def test_a_damaged_message_has_the_same_error_with_views(data: bytes, at: int, byte: int) -> None:
    at %= len(data)
    damaged = data[:at] + bytes([byte]) + data[at + 1 :]
    assert decoded(damaged) == plainly(damaged)


# --- the limits ---------------------------------------------------------------------------------------

STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def counted(data: bytes) -> tuple[int, int]:
    """The nesting and the number of values, over copies without escapes and without strings."""
    structure = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = re.sub(rb'"[^"]*"', b"", structure).replace(b'"', b"")
    structure = re.sub(rb"[^\[\]{},]", b"", structure)
    opened = structure.count(b"[") + structure.count(b"{")
    closed = structure.count(b"]") + structure.count(b"}")
    depth = max(accumulate(map(STEP.__getitem__, structure.replace(b",", b""))), default=0)
    return max(depth, 0), max(opened + structure.count(b","), closed)


@given(data=encoded() | st.lists(st.sampled_from(b'"\\{}[],:0 \xc3'), max_size=60).map(bytes))
@example(data=b'"a" [ "[[ , ')
@example(data=rb'"\\" [ \" [ "\\\"]" [')
@example(data=b"]]][")
def test_nesting_and_values_of_any_bytes_are_counted_outside_strings(data: bytes) -> None:
    frame = Frame(data)
    depth, n_values = counted(data)
    assert (frame.depth, frame.values) == (depth, n_values)
    limits = Limits(json_depth=max(depth, 1), json_values=max(n_values, 1))
    messages.check_structure(data, limits)
    for name, got in (("json_values", n_values), ("json_depth", depth)):
        if got > 1:
            tight: Any = {"json_depth": limits.json_depth, "json_values": limits.json_values, name: got - 1}
            with pytest.raises(LimitError) as caught:
                messages.check_structure(data, Limits(**tight))
            assert (caught.value.limit, caught.value.allowed, caught.value.got) == (name, got - 1, got)


@given(text=st.text(max_size=20), escape=st.sampled_from(["", "\\ud83d\\ude00", "\\uD800", "\\u4e2d", "\\n"]))
def test_the_memory_of_a_text_is_never_underestimated(text: str, escape: str) -> None:
    data = json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")[:-1] + escape.encode() + b'"'
    allowed = Frame(data).text_bytes()
    try:
        parsed = pydantic_core.from_json(data)
    except ValueError:
        return
    width = 1 if parsed.isascii() else 2 if max(parsed) < "\U00010000" else 4
    assert width * len(parsed) <= allowed <= 4 * len(data)


@given(data=st.binary(max_size=3000))
def test_a_view_is_decoded_as_a_string_is(data: bytes) -> None:
    text = base64.b64encode(data)
    assert decode_base64(memoryview(b"xx" + text)[2:]) == data
