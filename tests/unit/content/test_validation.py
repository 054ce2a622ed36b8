"""Validation: every departure from a revision is found, with its place; nothing binary is quoted."""

from __future__ import annotations

from typing import Any

import pytest

from playhead.content import REVISION_NAMES, validate_tool_response
from playhead.content.findings import MAX_FINDINGS
from playhead.errors import UsageError

TEXT = {"type": "text", "text": "hi"}
LINK = {"type": "resource_link", "uri": "x:1", "name": "n"}
AUDIO = {"type": "audio", "data": "AAE=", "mimeType": "audio/mpeg"}


def result(*blocks: object, **fields: object) -> dict[str, object]:
    return {"content": list(blocks), "resultType": "complete", **fields}


def places(raw: object, revision: str = "2026-07-28", **options: Any) -> list[str]:
    return [finding.path for finding in validate_tool_response(raw, revision, **options)]


@pytest.mark.requirement("TR-14", "TR-15", "TR-16", "TR-17", "TR-18", "TR-19")
@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (None, "$"),
        ([], "$"),
        ({"resultType": "complete"}, "$.content"),
        ({"content": []}, "$.resultType"),
        ({"content": {}, "resultType": "complete"}, "$.content"),
        (result(isError="no"), "$.isError"),
        (result(_meta=[]), "$._meta"),
        (result(_meta={"a b": 1}), "$._meta['a b']"),
        (result(_meta={"-x/y": 1}), "$._meta['-x/y']"),
        (result(_meta={"x.-y/z": 1}), "$._meta['x.-y/z']"),
        (result(_meta={"x/y-": 1}), "$._meta['x/y-']"),
        (
            result(_meta={"io.modelcontextprotocol/serverInfo": {"name": "s"}}),
            "$._meta['io.modelcontextprotocol/serverInfo'].version",
        ),
        (result(7), "$.content[0]"),
        (result(TEXT, {}), "$.content[1].type"),
        (result({"type": "hologram"}), "$.content[0].type"),
        (result({"type": "text"}), "$.content[0].text"),
        (result({"type": "text", "text": None}), "$.content[0].text"),
        (result(TEXT | {"_meta": 1}), "$.content[0]._meta"),
        (result(TEXT | {"_meta": {"!": 1}}), "$.content[0]._meta['!']"),
        (result(TEXT | {"annotations": None}), "$.content[0].annotations"),
        (result(TEXT | {"annotations": {"priority": 1.01}}), "$.content[0].annotations.priority"),
        (result(TEXT | {"annotations": {"priority": -1}}), "$.content[0].annotations.priority"),
        (result(TEXT | {"annotations": {"priority": True}}), "$.content[0].annotations.priority"),
        (result(TEXT | {"annotations": {"priority": float("nan")}}), "$.content[0].annotations.priority"),
        (result(TEXT | {"annotations": {"audience": "user"}}), "$.content[0].annotations.audience"),
        (
            result(TEXT | {"annotations": {"audience": ["user", "model"]}}),
            "$.content[0].annotations.audience[1]",
        ),
        (result(TEXT | {"annotations": {"lastModified": "today"}}), "$.content[0].annotations.lastModified"),
        (
            result(TEXT | {"annotations": {"lastModified": "2025-13-01"}}),
            "$.content[0].annotations.lastModified",
        ),
        (result(TEXT | {"annotations": {"_meta": {}}}), "$.content[0].annotations._meta"),
        (result(AUDIO | {"data": "AAE"}), "$.content[0].data"),
        (result(AUDIO | {"data": "AA E="}), "$.content[0].data"),
        (result(AUDIO | {"data": "AAF="}), "$.content[0].data"),
        (result(AUDIO | {"data": "ÄÄÄÄ"}), "$.content[0].data"),
        (result(AUDIO | {"mimeType": "audio"}), "$.content[0].mimeType"),
        (result(AUDIO | {"mimeType": "audio/mp3 or so"}), "$.content[0].mimeType"),
        (result({"type": "image", "data": "AAE="}), "$.content[0].mimeType"),
        (result({"type": "resource_link", "uri": "x:1"}), "$.content[0].name"),
        (result(LINK | {"uri": "song.mp3"}), "$.content[0].uri"),
        (result(LINK | {"uri": "x:a b"}), "$.content[0].uri"),
        (result(LINK | {"uri": "http://[::1"}), "$.content[0].uri"),
        (result(LINK | {"uri": "x:%zz"}), "$.content[0].uri"),
        (result(LINK | {"size": "3"}), "$.content[0].size"),
        (result(LINK | {"size": 3.5}), "$.content[0].size"),
        (result(LINK | {"size": -3}), "$.content[0].size"),
        (result(LINK | {"size": True}), "$.content[0].size"),
        (result(LINK | {"title": 1}), "$.content[0].title"),
        (result(LINK | {"icons": {}}), "$.content[0].icons"),
        (result(LINK | {"icons": [{}]}), "$.content[0].icons[0].src"),
        (result(LINK | {"icons": ["x:"]}), "$.content[0].icons[0]"),
        (result(LINK | {"icons": [{"src": "x:", "sizes": ["48"]}]}), "$.content[0].icons[0].sizes[0]"),
        (result(LINK | {"icons": [{"src": "x:", "theme": "pink"}]}), "$.content[0].icons[0].theme"),
        (result({"type": "resource", "resource": {"uri": "x:"}}), "$.content[0].resource"),
        (
            result({"type": "resource", "resource": {"uri": "x:", "text": "", "blob": ""}}),
            "$.content[0].resource",
        ),
        (result({"type": "resource", "resource": {"text": ""}}), "$.content[0].resource.uri"),
        (result({"type": "resource", "resource": {"uri": "x:", "blob": "A"}}), "$.content[0].resource.blob"),
        (
            result({"type": "resource", "resource": {"uri": "x:", "text": "", "_meta": 1}}),
            "$.content[0].resource._meta",
        ),
    ],
)
def test_each_fault_is_found_where_it_is(raw: object, path: str) -> None:
    assert places(raw) == [path]


@pytest.mark.parametrize(
    "raw",
    [
        result(),
        result(TEXT, LINK, AUDIO),
        result(TEXT | {"unknown": None}, unknown=[1]),
        result(TEXT | {"annotations": {"priority": 1, "audience": [], "lastModified": "2025-01-12"}}),
        result(TEXT | {"annotations": {"lastModified": "2025-01-12T15:00:58.123+02:00"}}),
        result(
            LINK | {"size": 3.0, "icons": [{"src": "data:image/png;base64,AA==", "sizes": ["any", "4x4"]}]}
        ),
        result(_meta={"": 1, "a": 1, "a.b-c_d": 1, "com.example/": 1, "com.ex-ample/n": 1}),
        result(AUDIO | {"mimeType": 'audio/ogg; codecs="vorbis, opus"'}),
        result(AUDIO | {"data": ""}),
        result(structuredContent=None),
        result(structuredContent=[1]),
    ],
)
def test_what_is_right_has_no_findings(raw: object) -> None:
    assert validate_tool_response(raw) == []


@pytest.mark.requirement("TR-21", "TR-22", "TR-23")
@pytest.mark.parametrize(
    ("raw", "path", "since"),
    [
        (result(AUDIO), "$.content[0].type", "2025-03-26"),
        (result(LINK), "$.content[0].type", "2025-06-18"),
        (result(structuredContent={}), "$.structuredContent", "2025-06-18"),
        (result(structuredContent=[]), "$.structuredContent", "2026-07-28"),
        (result(TEXT | {"_meta": {}}), "$.content[0]._meta", "2025-06-18"),
        (
            result(TEXT | {"annotations": {"lastModified": "2025-01-12"}}),
            "$.content[0].annotations.lastModified",
            "2025-06-18",
        ),
    ],
)
def test_what_a_revision_does_not_have_is_a_finding_before_it_came(
    raw: object, path: str, since: str
) -> None:
    assert {revision: places(raw, revision) for revision in REVISION_NAMES} == {
        revision: [] if revision >= since else [path] for revision in REVISION_NAMES
    }


def test_icons_came_in_2025_11_25() -> None:
    raw = result(LINK | {"icons": []})
    assert places(raw, "2025-06-18") == ["$.content[0].icons"]
    assert places(raw, "2025-11-25") == []


def test_a_result_without_its_type_is_right_before_2026_07_28() -> None:
    assert places({"content": []}, "2025-11-25") == []


@pytest.mark.requirement("TR-13")
def test_a_finding_says_what_was_expected_and_what_came() -> None:
    [finding] = validate_tool_response(result(AUDIO | {"data": "c2VjcmV0c2VjcmV0!"}))
    assert str(finding) == (
        "$.content[0].data: expected base64 (RFC 4648, padded, no whitespace), "
        "got a character outside the base64 alphabet at character 16 of 17"
    )


def test_findings_quote_no_binary_and_nothing_long_or_raw() -> None:
    long = "\x1b[31m" + "é" * 10_000
    raw = result(
        AUDIO | {"mimeType": long, "data": long}, LINK | {"uri": long}, {"type": long}, _meta={long: 1}
    )
    for finding in validate_tool_response(raw):
        assert len(str(finding)) < 400
        assert str(finding).replace("…", "").isascii()
        assert "\x1b" not in str(finding)


def test_a_number_that_cannot_be_written_is_only_called_huge() -> None:
    huge = 10**5000
    found = validate_tool_response(
        result(LINK | {"size": -huge}, TEXT | {"annotations": {"priority": huge}}), output_schema={}
    )
    assert [finding.got for finding in found[:2]] == ["a huge number"] * 2


def test_the_findings_are_bounded_and_say_so() -> None:
    found = validate_tool_response(result(*[{}] * 10_000))
    assert len(found) == MAX_FINDINGS + 1
    assert found[-1].got == "more, which are not listed"


def test_an_unknown_revision_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="expected a protocol revision, one of 2024-11-05"):
        validate_tool_response({}, "1999-01-01")
