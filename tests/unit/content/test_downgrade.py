"""Downgrade: an older client reads what it can, in a form that its revision has."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from mcp_types import Icon

from playhead.content import (
    REVISION_NAMES,
    create_annotations,
    create_audio_content,
    create_resource_link,
    create_text_content,
    create_tool_response,
    downgrade,
    downgrade_raw,
    dump,
    validate_tool_response,
)
from playhead.errors import UsageError

NOTE = create_annotations(audience=["user"], priority=0.5, last_modified="2025-01-12")
FULL = create_tool_response(
    [
        create_text_content("hi", annotations=NOTE, meta={"k": 1}),
        create_resource_link(
            "x:song.mp3",
            "song.mp3",
            title="Song",
            description="A song.",
            mime_type="audio/mpeg",
            size_bytes=3,
            icons=[Icon(src="x:icon")],
            annotations=NOTE,
        ),
        create_audio_content(b"abc", "audio/mpeg", annotations=NOTE),
    ],
    structured_content=[1, {"a": None}],
    meta={"com.example/k": 1},
)


def older(raw: dict[str, Any], revision: str) -> list[Any]:
    blocks: list[Any] = downgrade_raw(raw, revision)["content"]
    return blocks


@pytest.mark.requirement("TR-24")
@pytest.mark.parametrize("revision", REVISION_NAMES)
def test_what_was_right_is_right_in_every_revision(revision: str) -> None:
    assert validate_tool_response(dump(FULL)) == []
    assert validate_tool_response(downgrade_raw(dump(FULL), revision), revision) == []
    assert validate_tool_response(dump(downgrade(FULL, revision)), revision) == []


def test_the_newest_revision_changes_nothing() -> None:
    assert downgrade_raw(dump(FULL), "2026-07-28") == dump(FULL)


def test_a_link_becomes_a_line_with_its_uri() -> None:
    note = {"audience": ["user"], "priority": 0.5}
    assert older(dump(FULL), "2025-03-26")[1] == {
        "type": "text",
        "text": "Song: x:song.mp3 (audio/mpeg, 3 bytes)\nA song.",
        "annotations": note,
    }
    assert older(dump(FULL), "2025-06-18")[1]["type"] == "resource_link"


def test_sound_becomes_a_blob_that_keeps_its_bytes_and_type() -> None:
    assert older(dump(FULL), "2024-11-05")[2] == {
        "type": "resource",
        "resource": {"uri": "tool-result:/audio/2", "blob": "YWJj", "mimeType": "audio/mpeg"},
        "annotations": {"audience": ["user"], "priority": 0.5},
    }
    assert older(dump(FULL), "2025-03-26")[2]["type"] == "audio"


@pytest.mark.parametrize(
    ("revision", "structured", "kept", "text"),
    [
        ("2025-11-25", [1], False, "[1]"),
        ("2025-11-25", None, False, "null"),
        ("2025-11-25", {"a": 1}, True, None),
        ("2025-06-18", {"a": 1}, True, None),
        ("2025-03-26", {"a": "é"}, False, '{"a": "é"}'),
    ],
)
def test_structured_content_becomes_text_where_the_revision_lacks_it(
    revision: str, structured: object, kept: bool, text: str | None
) -> None:
    result = downgrade_raw({"content": [], "structuredContent": structured}, revision)
    assert ("structuredContent" in result) is kept
    assert result["content"] == ([] if text is None else [{"type": "text", "text": text}])


def test_structured_content_is_not_said_twice() -> None:
    raw = {"content": [{"type": "text", "text": '{"b":2, "a":1}'}], "structuredContent": {"a": 1, "b": 2}}
    assert older(raw, "2024-11-05") == raw["content"]
    raw["structuredContent"] = {"a": True, "b": 2}
    assert len(older(raw, "2024-11-05")) == 2


@pytest.mark.parametrize("block", [{"type": "hologram"}, {"type": 3}, {}, 7, None])
def test_a_block_nobody_knows_does_not_fail_its_siblings(block: object) -> None:
    raw = {"content": [block, {"type": "text", "text": "hi"}]}
    result = downgrade_raw(raw, "2025-03-26")
    assert validate_tool_response(result, "2025-03-26") == []
    assert "omitted" in result["content"][0]["text"]


def test_the_result_given_is_not_changed() -> None:
    raw = dump(FULL)
    before = copy.deepcopy(raw)
    downgrade_raw(raw, "2024-11-05")
    assert raw == before


@pytest.mark.requirement("TR-25")
@pytest.mark.parametrize("revision", REVISION_NAMES)
def test_what_every_revision_has_is_not_changed(revision: str) -> None:
    note = {"audience": ["user"], "priority": 1}
    raw = {
        "content": [
            {"type": "text", "text": "hi", "annotations": note},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "x:", "text": ""}},
        ],
        "isError": True,
        "resultType": "complete",
        "_meta": {"k": None},
    }
    assert downgrade_raw(raw, revision) == raw


def test_what_no_revision_knows_is_kept() -> None:
    raw = {"content": [{"type": "text", "text": "", "foo": 1}], "bar": None}
    assert downgrade_raw(raw, "2024-11-05") == raw


def test_structured_content_without_end_is_left_out_with_a_word() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert "nested too deep" in older({"content": [], "structuredContent": deep}, "2025-11-25")[0]["text"]


def test_an_unknown_revision_is_refused() -> None:
    with pytest.raises(UsageError, match="expected a protocol revision"):
        downgrade(FULL, "2023-01-01")
