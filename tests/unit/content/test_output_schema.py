"""Structured content against an outputSchema, where both are hostile."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from playhead.content import Finding, validate_tool_response, validation_schema
from playhead.content.findings import Notes
from playhead.content.validation_schema import check_output

DOUBLING: dict[str, Any] = {
    "$ref": "#/$defs/d0",
    "$defs": {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(60)
    }
    | {"d60": {}},
}


def found(value: object, schema: object, revision: str = "2026-07-28") -> list[Finding]:
    raw = {"content": [], "resultType": "complete", "structuredContent": value}
    return validate_tool_response(raw, revision, output_schema=schema)


@pytest.mark.requirement("TR-20")
@pytest.mark.parametrize(
    ("value", "schema", "said"),
    [
        (
            {"a": "secret"},
            {"properties": {"a": {"type": "integer"}}},
            "$.structuredContent.a: expected outputSchema type 'integer', got a string of 6 characters",
        ),
        (
            {},
            {"required": ["a"]},
            """$.structuredContent: expected outputSchema required: "'a' is a required property", """
            "got an object",
        ),
        (
            {"a b": 1},
            {"additionalProperties": False},
            """$.structuredContent: expected outputSchema additionalProperties: "no property 'a b'", """
            "got an object",
        ),
        (
            [1, 1],
            {"uniqueItems": True},
            "$.structuredContent: expected outputSchema uniqueItems, got an array",
        ),
        ([5], {"items": {"maximum": 4}}, "$.structuredContent[0]: expected outputSchema maximum 4, got 5"),
        ("ab", {"pattern": "^b"}, "expected outputSchema pattern '^b', got a string of 2 characters"),
        ("no", {"format": "date-time"}, "expected outputSchema format 'date-time'"),
        ("no", {"format": "uri"}, "expected outputSchema format 'uri'"),
        ("no", {"format": "email"}, "expected outputSchema format 'email'"),
        ({"xa": 1}, {"patternProperties": {"^x": {"type": "null"}}}, "$.structuredContent.xa"),
        ({"a": 1}, {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array"}, "type 'array'"),
        ({"a": 1}, {"$ref": "#/$defs/x", "$defs": {"x": {"type": "array"}}}, "type 'array'"),
        ({"a": 1}, {"properties": {"b": {}}, "unevaluatedProperties": False}, "unevaluatedProperties"),
        (1, False, "$.structuredContent"),
    ],
)
def test_what_the_schema_does_not_allow_is_found(value: object, schema: object, said: str) -> None:
    [finding] = found(value, schema)
    assert said in str(finding)


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ({"a": 1}, {"type": "object", "properties": {"a": {"type": "number"}}}),
        ("ab@c", {"pattern": r"^(?!\.)(?!.*\.\.)[^@]+@[^@]+$"}),
        ("2025-01-12T15:00:58Z", {"format": "date-time"}),
        ("x", {"format": "no-such-format"}),
        ({"xa": 1}, {"patternProperties": {"^x": {}}, "additionalProperties": False}),
        ({"type": "object"}, {"$ref": "https://json-schema.org/draft/2020-12/schema"}),
        (1, {"$schema": "https://example.org/no-such-dialect"}),
        ([{"a": 1}, {"a": 2}], {"uniqueItems": True}),
        (1, True),
        (1, {}),
    ],
)
def test_what_the_schema_allows_has_no_findings(value: object, schema: object) -> None:
    assert found(value, schema) == []


DEEP: Any = {}
for _ in range(2000):
    DEEP = {"not": DEEP}


@pytest.mark.parametrize(
    ("value", "schema", "said"),
    [
        (1, [], "expected a JSON Schema: an object or a boolean, got an array"),
        (1, {"type": 3}, "outputSchema.type: expected a valid JSON Schema"),
        (1, {"$ref": "http://127.0.0.1:1/x"}, "'http://127.0.0.1:1/x'; nothing is fetched"),
        (1, {"$ref": "file:///etc/passwd"}, "nothing is fetched"),
        (1, {"$id": "http://127.0.0.1:1/", "$ref": "y"}, "nothing is fetched"),
        (1, {"$ref": "#/nowhere"}, "references within the schema"),
        (1, {"$ref": "#"}, "nested too deeply, or recursive"),
        (1, DEEP, "nested too deeply, or recursive"),
        (1, DOUBLING, "more than 200,000 steps"),
        (1, {"enum": list(range(6000))}, "more than 5,000 values"),
        ("a" * 40 + "!", {"pattern": "^(a|a)*$"}, "a regular expression that takes too long"),
        (
            {"a" * 40 + "!": 1},
            {"patternProperties": {"^(a|aa)+$": {}}},
            "a regular expression that takes too long",
        ),
        (
            {"a" * 40 + "!": 1},
            {"patternProperties": {"^(a|aa)+$": {}}, "additionalProperties": False},
            "a regular expression that takes too long",
        ),
        ("a", {"pattern": "("}, "the invalid regular expression '('"),
        ("a", {"pattern": "a" * 2001}, "a regular expression of more than 2,000 characters"),
        (
            {"a": 1},
            {"unevaluatedProperties": False, "patternProperties": {"^(a|aa)+$": {}}},
            "unevaluatedProperties together with patternProperties",
        ),
        ([{"n": n} for n in range(20_000)], {"uniqueItems": True}, "steps for this content"),
        (1, {"$id": "http://[", "$ref": "x"}, "outputSchema"),
    ],
)
def test_a_hostile_schema_is_a_finding(
    value: object, schema: object, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation_schema, "PATTERN_SECONDS", 0.1)
    [finding] = found(value, schema)
    assert said in str(finding)


CYCLES: tuple[Any, ...] = (
    {"$ref": "#"},
    {"anyOf": [{"type": "integer"}, {"$ref": "#"}]},
    {"unevaluatedProperties": False, "allOf": [{"$ref": "#"}]},
    {"unevaluatedItems": False, "anyOf": [{"$ref": "#"}]},
)


@pytest.mark.parametrize("schema", CYCLES, ids=range(len(CYCLES)))
def test_a_schema_without_end_is_a_finding_however_deep_the_caller_stands(schema: object) -> None:
    # Where Python's frames end inside of a library in Rust, that panics: no `Exception`, and no finding.
    def at(depth: int) -> list[Finding]:
        return at(depth - 1) if depth else found({"a": 1}, schema)

    for depth in range(12):
        [finding] = at(depth)
        assert "nested too deeply, or recursive" in str(finding)


def test_patterns_share_one_bound() -> None:
    clock = itertools.count(step=0.4)
    notes = Notes()
    check_output(notes, "$", ["a"] * 10, {"items": {"pattern": "a"}}, clock=lambda: next(clock))
    assert [finding.got for finding in notes.all()] == ["regular expressions that take too long"]


def test_structured_content_is_due_where_the_tool_promises_it() -> None:
    raw = {"content": [], "resultType": "complete"}
    [finding] = validate_tool_response(raw, output_schema={"type": "object"})
    assert finding.path == "$.structuredContent"
    assert validate_tool_response(raw | {"isError": True}, output_schema={"type": "object"}) == []
    assert validate_tool_response({"content": []}, "2025-03-26", output_schema={"type": "object"}) == []
