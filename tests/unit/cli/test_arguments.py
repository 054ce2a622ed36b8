"""Arguments on the command line follow the tool's input schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from playhead.cli.app import run
from playhead.cli.parameters import GivenArguments, parse_arguments, parse_pairs
from playhead.errors import UsageError


def typed(text: str, schema: object) -> Any:
    root = {"type": "object", "properties": {"it": schema}, "$defs": {"Name": {"type": "string"}}}
    return parse_arguments([f"it={text}"], None).for_tool("t", root)["it"]


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "1", "1"),
        ({"type": "string"}, "007", "007"),
        ({"type": "string"}, "1e5", "1e5"),
        ({"type": "string"}, "true", "true"),
        ({"type": "string"}, "null", "null"),
        ({"type": "string"}, "[1]", "[1]"),
        ({"type": "string"}, '{"a": 1}', '{"a": 1}'),
        ({"type": "string"}, '"1"', "1"),
        ({"type": "string"}, "NaN", "NaN"),
        ({"type": "number"}, "1e999", "1e999"),
        ({"type": "string"}, "", ""),
        ({"type": "string", "enum": ["1", "2"]}, "2", "2"),
        ({"type": "string", "enum": ["1", "2"]}, "3", "3"),
        ({"enum": ["1", 2]}, "1", "1"),
        ({"enum": ["1", 2]}, "2", 2),
        ({"const": "1"}, "1", "1"),
        ({"$ref": "#/$defs/Name"}, "1", "1"),
        ({"allOf": [{"$ref": "#/$defs/Name"}]}, "1", "1"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "1", "1"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
        ({"type": ["string", "null"]}, "1", "1"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "1", 1),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "1.5", "1.5"),
        ({"oneOf": [{"type": "string"}, {"type": "boolean"}]}, "true", True),
        ({"type": "number"}, "1", 1),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "number"}, "loud", "loud"),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "integer"}, "5.0", 5.0),
        ({"type": "integer"}, "5.5", 5.5),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "False", False),
        ({"type": "boolean"}, "1", 1),
        ({"type": "array", "items": {"type": "string"}}, '["a"]', ["a"]),
        ({"type": "array"}, "a", "a"),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({}, "1", 1),
        (True, "1", 1),
        ({}, "one", "one"),
        ({"type": "file"}, "1", 1),
    ],
)
def test_a_value_has_the_type_that_its_property_allows(schema: object, text: str, value: object) -> None:
    found = typed(text, schema)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 10_000])
def test_a_value_that_python_cannot_read_is_a_string(text: str) -> None:
    assert typed(text, {}) == text


OPEN: list[object] = [
    None,
    {"type": "object"},
    {"type": "object", "properties": {"query": {}}, "additionalProperties": True},
    {"type": "object", "properties": {"query": {}}, "additionalProperties": {"type": "string"}},
    {"type": "object", "properties": {"query": {}}, "patternProperties": {"^x-": {}}},
    {"type": "object", "properties": {"query": {}}, "unevaluatedProperties": {}},
    {"type": "object", "properties": {"query": {}}, "allOf": [{"$ref": "https://example.org/more.json"}]},
    {"type": "object", "anyOf": [{"properties": {f"p{n}": {}}} for n in range(20)]},
]


@pytest.mark.parametrize("schema", OPEN)
def test_a_schema_that_allows_other_names_gets_them(schema: object) -> None:
    assert parse_arguments(["other=1"], None).for_tool("t", schema) == {"other": 1}


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ({"properties": {"query": {}, "volume": {}}}, "did you mean 'query'?"),
        ({"properties": {"Query": {}}}, "did you mean 'Query'?"),
        ({"properties": {"volume": {}, "title": {}}}, "it takes 'volume', 'title'"),
        ({"properties": {}}, "it takes no arguments"),
        ({"additionalProperties": False}, "it takes no arguments"),
        ({"properties": {"query": {}}, "additionalProperties": False}, "did you mean 'query'?"),
        ({"allOf": [{"properties": {"query": {}}}]}, "did you mean 'query'?"),
        ({"anyOf": [{"properties": {"query": {}}}, {"properties": {"uri": {}}}]}, "did you mean 'query'?"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_name_that_the_schema_does_not_list_is_an_error(
    schema: dict[str, object], hint: str, *, as_json: bool
) -> None:
    pairs, whole = (None, json.dumps({"qurey": 1})) if as_json else (["qurey=1"], None)
    given = parse_arguments(pairs, whole)
    with pytest.raises(UsageError) as caught:
        given.for_tool("find", {"type": "object", **schema}, advice="; --force")
    assert str(caught.value) == f"tool 'find' has no argument 'qurey'; {hint}; --force"
    assert given.for_tool("find", schema, force=True) == {"qurey": 1}


def test_args_are_sent_as_they_are() -> None:
    given = parse_arguments(None, '{"it": 1}')
    assert given.for_tool("t", {"properties": {"it": {"type": "string"}}}) == {"it": 1}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_json_cannot_carry_is_refused(number: str) -> None:
    """It would be sent as null."""
    with pytest.raises(UsageError, match=r"--args: expected a JSON object, .*(not a JSON number|too large)"):
        parse_arguments(None, f'{{"it": {number}}}')


def test_nothing_given_is_false_and_needs_no_schema() -> None:
    assert not parse_arguments(None, None)
    assert not parse_arguments([], "{}")
    assert parse_arguments(["a="], None)
    assert GivenArguments().for_tool("t", None) == {}


def test_without_a_schema_a_value_is_json_if_it_parses() -> None:
    assert parse_pairs(["a=1", "b=x", "c=[1]", "d="], option="--arg") == {"a": 1, "b": "x", "c": [1], "d": ""}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("check --level shall x", "'--level': expected must or should, got 'shall'; did you mean should?"),
        ("check x fulll", "'DEPTH': expected quick or full, got 'fulll'; did you mean full?"),
        ("check x 9", "'DEPTH': expected quick or full, got '9'"),
        ("schema show x", "'DOCUMENT': expected messages or openapi, got 'x'"),
        ("check --seed 1.5 x", "'--seed': expected an integer, got '1.5'"),
        ("read --timeout x a b", "'--timeout': expected a number, got 'x'"),
        ("read --timeout -1 a b", "'--timeout': expected at least 0.001, got '-1'"),
        ("serve audio --port 65536", "'--port': expected at most 65535, got '65536'"),
    ],
)
def test_a_value_that_an_option_does_not_accept_is_named_with_those_that_it_does(
    command: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command.split()) == 2
    assert capsys.readouterr().err.endswith(f"Error: Invalid value for {message}\n")
