"""Blocks: what is understood is typed, what is wrong is found, and what came is kept as it came."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from mcp_types import AudioContent, EmbeddedResource, ResourceLink, TextContent

from playhead.content import Block, UnknownBlock, downgrade_raw, parse_block
from playhead.content.types import FileContent, FileValue


@pytest.mark.parametrize("wrong", [{"annotations": {"audience": [0] * 200}}, {"icons": [0] * 200}])
def test_a_block_with_a_flood_of_wrong_values_is_that_block_with_one_finding(
    wrong: dict[str, object],
) -> None:
    raw = {"type": "resource_link", "uri": "x://y", "name": "n"} | wrong
    block = parse_block(raw)
    assert block.raw is raw
    assert block.content == parse_block({"type": "resource_link", "uri": "x://y", "name": "n"}).content
    assert [(each.path, each.got) for each in block.findings] == [
        ("$", "200; annotations and icons are ignored")
    ]


@pytest.mark.requirement("TR-03")
def test_a_link_without_a_name_is_a_link_with_a_finding() -> None:
    block = parse_block({"type": "resource_link", "uri": "x:song"})
    assert isinstance(block.content, ResourceLink)
    assert (block.content.uri, block.content.name) == ("x:song", "x:song")
    assert [finding.path for finding in block.findings] == ["$.name"]


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"annotations": {"priority": 7}}, "$.annotations.priority"),
        ({"annotations": "high"}, "$.annotations"),
        ({"_meta": []}, "$._meta"),
    ],
)
def test_a_wrong_optional_field_leaves_the_block_what_it_is(wrong: dict[str, object], path: str) -> None:
    raw = {"type": "text", "text": "hello", **wrong}
    block = parse_block(raw)
    assert isinstance(block.content, TextContent)
    assert block.content.text == "hello"
    assert block.raw is raw
    assert [finding.path for finding in block.findings] == [path]


def test_sound_without_a_type_is_still_sound() -> None:
    block = parse_block({"type": "audio", "data": "AAAA"})
    assert isinstance(block.content, AudioContent)
    assert [finding.path for finding in block.findings] == ["$.mimeType"]


@pytest.mark.requirement("TR-02")
@pytest.mark.parametrize(
    "raw",
    [
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "resource_link", "name": "n"},
        {"type": "resource", "resource": {"uri": "x:"}},
        {"type": "hologram"},
        {"type": None},
        None,
        7,
        [],
    ],
)
def test_what_is_not_understood_stands_in_its_place(raw: object) -> None:
    block = parse_block(raw)
    assert isinstance(block.content, UnknownBlock)
    assert block.raw is raw
    assert block.content.reason


@pytest.mark.parametrize(
    ("contents", "path"),
    [
        ({"uri": "x:", "text": "t", "mimeType": 3}, "$.resource.mimeType"),
        ({"uri": "x:", "blob": "AA==", "_meta": 3}, "$.resource._meta"),
    ],
)
def test_embedded_contents_with_a_wrong_optional_field_are_still_contents(
    contents: dict[str, object], path: str
) -> None:
    block = parse_block({"type": "resource", "resource": contents})
    assert isinstance(block.content, EmbeddedResource)
    assert [finding.path for finding in block.findings] == [path]


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ({"uri": "x:"}, "$.resource.text: expected this required field, got nothing"),
        ({"blob": ""}, "$.resource.uri: expected this required field, got nothing"),
        ({"uri": "x:", "text": None}, "$.resource.text: expected a valid string, got null"),
        (3, "$.resource: expected an object, got a number"),
    ],
)
def test_embedded_contents_without_what_matters_are_found_once(contents: object, said: str) -> None:
    block = parse_block({"type": "resource", "resource": contents})
    assert isinstance(block.content, UnknownBlock)
    assert [str(finding) for finding in block.findings] == [said]
    assert block.content.reason == said


@pytest.mark.requirement("TR-03")
@pytest.mark.parametrize("size", [-1, 2**53, 2**70, 10**400])
@pytest.mark.parametrize("also", [{"name": "n"}, {}])
def test_a_link_whose_size_nothing_can_have_is_one_without_a_size(size: int, also: dict[str, str]) -> None:
    block = parse_block({"type": "resource_link", "uri": "x:song", "size": size, **also})
    assert isinstance(block.content, ResourceLink)
    assert block.content.size is None
    assert block.raw["size"] == size
    assert block.findings[-1].path == "$.size"


@pytest.mark.parametrize("size", [0, 2**53 - 1])
def test_a_link_keeps_a_size_that_can_be(size: int) -> None:
    block = parse_block({"type": "resource_link", "uri": "x:song", "name": "n", "size": size})
    assert isinstance(block.content, ResourceLink)
    assert (block.content.size, block.findings) == (size, ())


# --- files out of band (SEP-2631) -------------------------------------------------------------------------

SHA256 = hashlib.sha256(b"song").digest()
FILE = {
    "type": "file",
    "file": {"uri": "mcp-file://a", "name": "a.flac", "mimeType": "audio/flac", "size": 9},
}


def test_a_file_is_a_block_of_its_own() -> None:
    block = parse_block(FILE)
    assert isinstance(block.content, FileContent)
    assert block.content.file == FileValue(uri="mcp-file://a", name="a.flac", mimeType="audio/flac", size=9)
    assert (block.raw, block.findings) == (FILE, ())


@pytest.mark.parametrize(
    "text",
    [
        SHA256.hex(),
        SHA256.hex().upper(),
        base64.b64encode(SHA256).decode(),
        base64.urlsafe_b64encode(SHA256).decode().rstrip("="),
    ],
)
def test_a_digest_is_read_in_each_form_of_the_drafts(text: str) -> None:
    for digest in ({"sha-256": text}, {"algorithm": "sha-256", "value": text}):
        assert FileValue(uri="a", digest=digest).sha256 == SHA256.hex()


@pytest.mark.parametrize(
    "digest",
    [None, {}, {"sha-512": "00"}, {"algorithm": "sha-512", "value": SHA256.hex()}, {"sha-256": "short"}],
)
def test_another_digest_is_not_a_sha256(digest: dict[str, str] | None) -> None:
    assert FileValue(uri="a", digest=digest).sha256 is None


def test_invalid_facts_about_a_file_are_findings_and_do_not_hide_it() -> None:
    block = parse_block(
        {"type": "file", "file": {"uri": "mcp-file://a", "size": -1, "digest": 7, "name": "a"}}
    )
    assert isinstance(block.content, FileContent)
    assert block.content.file == FileValue(uri="mcp-file://a", name="a")
    assert {each.path for each in block.findings} == {"$.file.size", "$.file.digest"}


@pytest.mark.parametrize("file", [None, "mcp-file://a", {}, {"uri": 7}])
def test_a_file_without_a_uri_is_unknown(file: object) -> None:
    block = parse_block({"type": "file", "file": file})
    assert isinstance(block.content, UnknownBlock)
    assert "$.file" in block.content.reason


def test_an_older_client_gets_a_file_as_text() -> None:
    (block,) = downgrade_raw({"content": [FILE]}, "2025-06-18")["content"]
    assert block == {"type": "text", "text": "a.flac: mcp-file://a (audio/flac, 9 bytes)"}


# --- base64 that is a view of its message -------------------------------------------------------------------

BASE64 = base64.b64encode(bytes(range(256)) * 12).decode()
AUDIO = {"type": "audio", "data": BASE64, "mimeType": "audio/wav", "_meta": {"k": 1}, "unknown": 2}
IMAGE = {"type": "image", "data": BASE64, "mimeType": "image/png"}
BLOB = {"type": "resource", "resource": {"uri": "x://b", "blob": BASE64, "mimeType": "audio/wav"}}


def with_views(raw: dict[str, Any]) -> dict[str, Any]:
    """A copy of `raw`, with a view in place of each `BASE64`."""
    return {
        key: with_views(value)
        if isinstance(value, dict)
        else memoryview(BASE64.encode())
        if value == BASE64
        else value
        for key, value in raw.items()
    }


@pytest.mark.parametrize("raw", [AUDIO, IMAGE, BLOB])
def test_a_block_with_a_view_is_the_block_with_the_string(raw: dict[str, Any]) -> None:
    block, plain = parse_block(with_views(raw)), parse_block(raw)
    assert isinstance(block.payload, memoryview)
    assert (bytes(block.payload).decode(), plain.payload) == (BASE64, BASE64)
    assert type(block.outline) is type(plain.content)
    assert (block.content, block.findings) == (plain.content, plain.findings)
    assert block.raw == raw
    assert json.dumps(block.raw) == json.dumps(raw), "in the same order"
    assert block == plain
    assert block.raw is block.raw
    assert block.content is block.content


@pytest.mark.parametrize("raw", [AUDIO, BLOB])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_copy_of_a_block_with_a_view_has_the_string(
    raw: dict[str, Any], copied: Callable[[Block], Block]
) -> None:
    assert copied(parse_block(with_views(raw))) == parse_block(raw)


@pytest.mark.parametrize(
    "raw",
    [
        AUDIO | {"mimeType": 7},
        {"type": "audio", "data": BASE64},
        IMAGE | {"annotations": {"priority": 7}},
        {"type": "text", "text": "a", "data": BASE64},
        {"type": "text", "data": BASE64},
        {"type": "x-new", "data": BASE64},
        {"data": BASE64},
        AUDIO | {"resource": {"blob": BASE64}},
        {"type": "image", "data": "", "mimeType": "image/png", "resource": {"blob": BASE64}},
        {"type": "audio", "data": "QUJD", "mimeType": "audio/wav", "resource": {"blob": BASE64}},
        BLOB | {"data": BASE64},
        {"type": "resource", "resource": {"uri": "x://b", "text": "a", "blob": BASE64}},
        {"type": "resource", "resource": {"blob": BASE64}},
        {"type": "resource", "resource": {"uri": "x://b", "blob": BASE64, "mimeType": 7}},
        {"type": "resource_link", "uri": "x://y", "name": "y", "size": -1, "data": BASE64},
    ],
)
def test_a_view_where_its_type_has_none_or_in_a_faulty_block_becomes_a_string(raw: dict[str, Any]) -> None:
    block, plain = parse_block(with_views(raw)), parse_block(raw)
    assert (block.outline, block.payload) == (plain.content, plain.payload)
    assert block == plain


def test_what_is_postponed_does_not_hide_that_a_name_is_wrong() -> None:
    with pytest.raises(AttributeError, match="'Block' object has no attribute 'contents'"):
        _ = parse_block(with_views(AUDIO)).contents  # type: ignore[attr-defined]
