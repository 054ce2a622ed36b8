"""Builders: what they make is what the wire wants, and what cannot be right is refused with its place."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest
from mcp_types import Icon

from playhead import content
from playhead.content import (
    create_annotations,
    create_audio_content,
    create_embedded_resource,
    create_image_content,
    create_resource_link,
    create_text_content,
    create_tool_response,
    dump,
    parse_block,
)
from playhead.errors import UsageError

NOTE = create_annotations(
    audience=["user"], priority=1, last_modified=datetime(2025, 1, 12, 15, 0, 58, tzinfo=UTC)
)
NOTED = {"audience": ["user"], "priority": 1.0, "lastModified": "2025-01-12T15:00:58Z"}


@pytest.mark.requirement("TR-05", "TR-06")
@pytest.mark.parametrize(
    ("block", "wire"),
    [
        (create_text_content("hi"), {"type": "text", "text": "hi"}),
        (
            create_text_content("hi", annotations=NOTE, meta={"a": None}),
            {"type": "text", "text": "hi", "annotations": NOTED, "_meta": {"a": None}},
        ),
        (
            create_image_content(b"\x00\x01", "image/png"),
            {"type": "image", "data": "AAE=", "mimeType": "image/png"},
        ),
        (
            create_audio_content("AAE=", "audio/L16;rate=44100"),
            {"type": "audio", "data": "AAE=", "mimeType": "audio/L16;rate=44100"},
        ),
        (create_resource_link("x:1", "one"), {"type": "resource_link", "uri": "x:1", "name": "one"}),
        (
            create_resource_link(
                "x:1", "one", title="One", description="d", mime_type="audio/mpeg", size_bytes=3,
                icons=[Icon(src="https://e.org/i.png")], annotations=create_annotations(), meta={},
            ),
            {
                "type": "resource_link", "uri": "x:1", "name": "one", "title": "One", "description": "d",
                "mimeType": "audio/mpeg", "size": 3, "icons": [{"src": "https://e.org/i.png"}],
                "annotations": {}, "_meta": {},
            },
        ),
        (
            create_embedded_resource("x:1", text="t", meta={"outer": 1}, resource_meta={"inner": 1}),
            {
                "type": "resource",
                "resource": {"uri": "x:1", "text": "t", "_meta": {"inner": 1}},
                "_meta": {"outer": 1},
            },
        ),
        (
            create_embedded_resource("x:1", blob=bytearray(b"abc"), mime_type="audio/mpeg"),
            {"type": "resource", "resource": {"uri": "x:1", "blob": "YWJj", "mimeType": "audio/mpeg"}},
        ),
    ],
)  # fmt: skip
def test_a_block_is_dumped_with_wire_names_and_without_what_is_absent(block: Any, wire: object) -> None:
    assert dump(block) == wire


@pytest.mark.requirement("TR-05", "TR-08")
def test_a_response_carries_everything_it_was_given() -> None:
    made = create_tool_response(
        [create_text_content("a"), create_text_content("b")],
        structured_content={"x": None},
        is_error=True,
        meta={"com.example/k": 1},
    )
    assert dump(made) == {
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "structuredContent": {"x": None},
        "isError": True,
        "resultType": "complete",
        "_meta": {"com.example/k": 1},
    }


def test_structured_content_alone_is_also_given_as_text() -> None:
    assert dump(create_tool_response(structured_content={"x": "é"}))["content"] == [
        {"type": "text", "text": '{"x": "é"}'}
    ]


def test_structured_content_of_null_is_not_the_same_as_none() -> None:
    assert dump(create_tool_response(structured_content=None))["structuredContent"] is None
    assert "structuredContent" not in dump(create_tool_response())


def test_a_parsed_block_is_dumped_as_it_came() -> None:
    raw = {"type": "text", "text": "a", "annotations": {"priority": 1, "zzz": None}, "foo": [1.0]}
    assert dump(parse_block(raw)) is raw


LOOSE: Any = content


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LOOSE.create_text_content(3), "text: expected a value of type str, got int"),
        (
            lambda: LOOSE.create_text_content("a\ud800"),
            "text: expected text that can be encoded as UTF-8, got a lone",
        ),
        (lambda: LOOSE.create_image_content("AA=", "image/png"), "data: expected base64"),
        (lambda: LOOSE.create_image_content("AA==\n", "image/png"), "data: expected base64"),
        (
            lambda: LOOSE.create_image_content(None, "image/png"),
            "data: expected bytes or a base64 string, got None",
        ),
        (lambda: LOOSE.create_image_content(b"", "audio/mpeg"), "mime_type: expected an image/… type"),
        (lambda: LOOSE.create_image_content(b"", "png"), "mime_type: expected a MIME type"),
        (lambda: LOOSE.create_audio_content(b"", "text/html"), "mime_type: expected an audio/… type"),
        (lambda: LOOSE.create_resource_link("no scheme", "n"), "uri: expected an absolute URI"),
        (lambda: LOOSE.create_resource_link("x:", None), "name: expected a value of type str"),
        (
            lambda: LOOSE.create_resource_link("x:", "n", size_bytes=-1),
            "size_bytes: expected 0 or more, got -1",
        ),
        (
            lambda: LOOSE.create_resource_link("x:", "n", size_bytes=True),
            "size_bytes: expected a value of type",
        ),
        (
            lambda: LOOSE.create_embedded_resource("x:"),
            "text and blob: expected exactly one of them, got neither",
        ),
        (lambda: LOOSE.create_embedded_resource("x:", text="", blob=b""), "text and blob: .* got both"),
        (
            lambda: LOOSE.create_annotations(priority=1.1),
            "annotations.priority: expected a number from 0 to 1",
        ),
        (lambda: LOOSE.create_annotations(priority=float("nan")), "annotations.priority"),
        (
            lambda: LOOSE.create_annotations(audience=["model"]),
            "annotations.audience: expected user or assistant",
        ),
        (
            lambda: LOOSE.create_annotations(last_modified="yesterday"),
            "annotations.last_modified: expected an ISO",
        ),
        (lambda: LOOSE.create_annotations(last_modified=datetime(2025, 1, 1)), "a datetime with a time zone"),
        (
            lambda: LOOSE.create_text_content("", annotations={"priority": 1}),
            "annotations: expected Annotations",
        ),
        (lambda: LOOSE.create_text_content("", meta={"a b": 1}), "meta: expected keys"),
        (lambda: LOOSE.create_text_content("", meta={"a": b""}), "meta: expected a JSON value"),
        (lambda: LOOSE.create_tool_response("text"), "content: expected a list of blocks"),
        (lambda: LOOSE.create_tool_response(["text"]), r"content\[0\]: expected a block"),
        (
            lambda: LOOSE.create_tool_response(structured_content=float("inf")),
            "structured_content: expected a JSON",
        ),
        (lambda: LOOSE.create_tool_response(is_error=1), "is_error: expected a value of type bool"),
    ],
)
def test_what_cannot_be_right_is_refused_with_its_place(build: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build()


def test_a_refusal_quotes_no_binary() -> None:
    secret = b64encode(b"secret" * 50).decode() + "!"
    with pytest.raises(UsageError) as caught:
        create_image_content(secret, "image/png")
    assert "c2Vjcm" not in str(caught.value)
    assert "at character 400 of 401" in str(caught.value)
