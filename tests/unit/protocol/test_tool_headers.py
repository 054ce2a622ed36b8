"""Arguments that HTTP headers repeat: the SDK's reading of the same schemas is the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import (
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)

from playhead.protocol.revisions import NEWEST, OLDEST
from playhead.protocol.tool_headers import header_names, usable_tools

NAMES = st.sampled_from(["a", "b", "x-mcp-header", "properties"])
MARKS = st.sampled_from(["City", "city", "Zone", "two words", "", "Ä", 3, None, ["City"]])
TYPES: st.SearchStrategy[Any] = st.sampled_from(
    ["string", "integer", "boolean", "number", "object", None, ["string"], {}]
)
KEYWORDS = ["items", "not", "additionalProperties", "contentSchema", "default", "const", "$ref", "enum"]


def schemas() -> st.SearchStrategy[Any]:
    leaf = st.fixed_dictionaries({}, optional={"type": TYPES, "x-mcp-header": MARKS})

    def outer(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        named = st.dictionaries(NAMES, inner, max_size=3)
        return st.fixed_dictionaries(
            {"properties": named | st.just([])},
            optional={
                "type": TYPES,
                "x-mcp-header": MARKS,
                "anyOf": st.lists(inner, max_size=2) | named,
                "$defs": named,
                "patternProperties": named,
                **dict.fromkeys(KEYWORDS, inner),
            },
        )

    return st.recursive(leaf, outer, max_leaves=6) | st.none()


@given(schemas())
def test_marks_are_read_as_the_sdk_reads_them(schema: Any) -> None:
    expected = None if find_invalid_x_mcp_header(schema) else x_mcp_header_map(schema)
    assert header_names(schema) == expected


SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "x-mcp-header": "City"},
        "loud": {"type": "boolean", "x-mcp-header": "Loud"},
        "place": {"properties": {"zone": {"type": "integer", "x-mcp-header": "Zone"}}},
    },
}


@pytest.mark.parametrize(
    "arguments",
    [
        {"city": "Oslo", "loud": True, "place": {"zone": 3}},
        {"city": "Malmö", "loud": False},
        {"city": " edge ", "place": "not an object"},
        {"city": "=?base64?b3Nsbw==?=", "place": {"zone": None}},
        {"city": ["a", "list"], "place": {"zone": 1.5}},
        {"city": ""},
        {},
    ],
)
def test_the_headers_of_a_call_are_those_of_the_sdk(arguments: dict[str, Any]) -> None:
    names = header_names(SCHEMA)
    assert names is not None
    params = {"name": "weather", "arguments": arguments}
    sent = NEWEST.headers("tools/call", params, {"weather": names})
    got = {name.decode().lower(): value.decode() for name, value in sent if name.startswith(b"mcp-param-")}
    assert got == {name.lower(): value for name, value in mcp_param_headers(names, arguments).items()}
    assert not any(
        name.startswith(b"mcp-param") for name, _ in OLDEST.headers("tools/call", params, {"weather": names})
    )


def test_a_tool_with_an_invalid_mark_is_left_out_and_the_others_are_learned() -> None:
    good = {"name": "good", "inputSchema": SCHEMA}
    plain = {"name": "plain", "inputSchema": {"type": "object"}}
    number = {
        "name": "bad",
        "inputSchema": {"properties": {"n": {"type": "number", "x-mcp-header": "N"}}},
    }
    usable, headers = usable_tools([good, number, plain, {"name": 3}])
    assert usable == [good, plain]
    assert headers == {
        "good": {("city",): "City", ("loud",): "Loud", ("place", "zone"): "Zone"},
        "plain": {},
    }


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["", " edge", "=?base64?eA==?=", "x://caf\u00e9", "tab\t", "x:y"]
)


@given(TEXTS)
def test_behaviour_24_the_name_in_a_header_is_that_of_the_sdk(name: str) -> None:
    for method, key in NAME_BEARING_METHODS.items():
        sent = dict(NEWEST.headers(method, {key: name}, {}))
        assert sent[b"mcp-method"].decode() == method
        assert sent[b"mcp-name"].decode() == encode_header_value(name)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_behaviour_24_a_request_about_a_task_names_it(method: str) -> None:
    assert (b"mcp-name", b"t-1") in NEWEST.headers(method, {"taskId": "t-1"}, {})
    assert OLDEST.headers(method, {"taskId": "t-1"}, {}) == [(b"mcp-protocol-version", b"2024-11-05")]
