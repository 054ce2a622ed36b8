"""Arguments made for a schema: right ones conform, wrong ones don't, and no schema is too odd."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from playhead.check.arguments.generate import MAX_INVALID, MAX_VALID, ToolArguments, arguments_for
from playhead.check.arguments.patterns import of_pattern
from playhead.content.findings import Notes
from playhead.content.validation_schema import check_output

NAME: dict[str, Any] = {"type": "string"}


def an_object(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = an_object(["next"], next=schema)
    return schema


USABLE: dict[str, Any] = {
    "nothing": {},
    "true": True,
    "an object": {"type": "object"},
    "no properties allowed": {"type": "object", "additionalProperties": False},
    "a search": an_object(
        ["query"], query=NAME, max_results={"type": "integer", "minimum": 1, "maximum": 50, "default": 10}
    ),
    "a reference": {**an_object(["a"], a={"$ref": "#/$defs/a"}), "$defs": {"a": {"enum": ["x", "y"]}}},
    "definitions": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **an_object(["a"], a={"$ref": "#/definitions/a%20b"}),
        "definitions": {"a b": {"type": "integer", "exclusiveMinimum": 3}},
    },
    "an anchor": {**an_object(["a"], a={"$ref": "#it"}), "$defs": {"a": {"$anchor": "it", "type": "null"}}},
    "a tree": an_object(["v"], v={"type": "integer"}, children={"type": "array", "items": {"$ref": "#"}}),
    "anyOf": an_object(["a"], a={"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}),
    "oneOf at the root": {
        "type": "object",
        "oneOf": [an_object(["a"], a={"const": 1}), an_object(["b"], b={"type": "boolean"})],
    },
    "allOf": {"allOf": [an_object(["a"], a=NAME), an_object(["b"], b={"type": "number"})]},
    "allOf on one property": {
        "allOf": [an_object(["a"], a={"minimum": 3}), an_object(a={"type": "integer", "maximum": 4})]
    },
    "not": an_object(["a"], a={"type": "integer", "not": {"const": 1}}),
    "if and then": {
        **an_object(["kind"], kind={"enum": ["a", "b"]}, extra=NAME),
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"required": ["extra"]},
    },
    "lengths": an_object(["a"], a={"type": "string", "minLength": 3, "maxLength": 5}),
    "no room": an_object(["a"], a={"type": "string", "maxLength": 0}),
    "a pattern": an_object(["a"], a={"type": "string", "pattern": r"^[A-Z]{3}-\d{2,4}(x|y)?$"}),
    "a pattern and a length": an_object(["a"], a={"type": "string", "pattern": "^[a-z]+$", "minLength": 12}),
    "formats": an_object(
        ["d"], d={"type": "string", "format": "date-time"}, u={"type": "string", "format": "uri"}
    ),
    "an unknown format": an_object(["a"], a={"type": "string", "format": "colour"}),
    "steps": an_object(["a"], a={"type": "integer", "multipleOf": 7, "minimum": 15, "maximum": 21}),
    "fractions": an_object(["a"], a={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
    "huge numbers": an_object(["a"], a={"type": "integer", "minimum": 10**400}),
    "distinct": an_object(
        ["a"], a={"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "minItems": 3}
    ),
    "a tuple": an_object(
        ["a"],
        a={"type": "array", "prefixItems": [NAME, {"type": "integer"}], "items": False, "minItems": 2},
    ),
    "an old tuple": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **an_object(["a"], a={"type": "array", "items": [NAME], "additionalItems": False, "minItems": 1}),
    },
    "a map": an_object(["a"], a={"type": "object", "additionalProperties": NAME, "minProperties": 2}),
    "named by patterns": {
        "type": "object",
        "patternProperties": {"^x[0-9]$": {"type": "integer"}},
        "additionalProperties": False,
        "minProperties": 1,
    },
    "required, not declared": {"type": "object", "required": ["a"]},
    "many types": an_object(["a"], a={"type": ["string", "integer", "null"]}),
    "a wrong default": an_object(["a"], a={"type": "integer", "default": "ten"}),
    "a wrong example": an_object(["a"], a={"type": "string", "examples": [5]}),
    "examples": {**an_object(["a"], a=NAME), "examples": [{"a": "the very one"}]},
    "an enum of everything": an_object(["a"], a={"enum": [None, 1, True, "a", [1], {"b": 2}]}),
    "deep": deep(15),
    "wide": an_object([], **{f"p{index}": {"type": "integer"} for index in range(70)}),
    "odd names": an_object(["", "a.b", "世界"], **{"": NAME, "a.b": NAME, "世界": NAME}),
    "dependent": {**an_object(a=NAME, b=NAME), "dependentRequired": {"a": ["b"]}},
    "unevaluated": {"allOf": [an_object(["a"], a=NAME)], "unevaluatedProperties": False},
}

DOUBLING: dict[str, Any] = {
    "$defs": {f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 4} for level in range(12)}
    | {"d12": {"type": "integer"}},
    **an_object([], a={"$ref": "#/$defs/d0"}),
}

HOPELESS: dict[str, Any] = {
    "false": False,
    "an array": {"type": "array"},
    "a contradiction": an_object(["a"], a={"type": "integer", "minimum": 5, "maximum": 4}),
    "no value": an_object(["a"], a={"enum": []}),
    "two types": {"allOf": [an_object(["a"], a={"type": "string"}), an_object(a={"type": "integer"})]},
    "without end": an_object(["a"], a={"$ref": "#"}),
    "in a circle": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "elsewhere": an_object(["a"], a={"$ref": "https://example.com/schema.json"}),
    "nowhere": an_object(["a"], a={"$ref": "#/$defs/gone"}),
    "no schema": {"type": "nummer"},
    "a number": 7,
    "none": None,
    "too large": an_object([], **{f"p{index}": {"type": "integer"} for index in range(6000)}),
    "too long a string": an_object(["a"], a={"type": "string", "minLength": 10**9}),
    "too many items": an_object(["a"], a={"type": "array", "minItems": 10**9}),
    "too many repeats": an_object(["a"], a={"type": "string", "pattern": "^(a{999}){999}$"}),
    "too nested": deep(90),
    "a foreign pattern": an_object(["a"], a={"type": "string", "pattern": r"^\p{Lu}+$"}),
    "a pattern that backtracks": an_object(["a"], a={"type": "string", "pattern": "^(?=b)(a|a)*c$"}),
}


def conforms(schema: Any, value: Any) -> bool:
    notes = Notes()
    check_output(notes, "$", value, schema)
    return not notes.all()


def check(schema: Any, made: ToolArguments) -> None:
    for case in made.valid:
        assert case.kind != "invalid"
        assert isinstance(case.arguments, dict)
        assert conforms(schema, case.arguments), case
    for case in made.invalid:
        assert case.kind == "invalid"
        assert not isinstance(case.arguments, dict) or not conforms(schema, case.arguments), case
    everything = [*made.valid, *made.invalid]
    assert len({json.dumps(case.arguments, sort_keys=True) for case in everything}) == len(everything)
    assert all(len(case.title) < 300 for case in everything)


@pytest.mark.parametrize("name", USABLE)
def test_valid_arguments_conform_and_invalid_ones_do_not(name: str) -> None:
    schema = USABLE[name]
    made = arguments_for(schema, seed=3)
    assert made.valid, made.remarks
    check(schema, made)
    assert any(case.certain for case in made.invalid)  # at least the values that are not objects


@pytest.mark.parametrize("name", HOPELESS)
def test_a_schema_without_possible_arguments_is_a_remark(name: str) -> None:
    made = arguments_for(HOPELESS[name])
    assert made.valid == ()
    assert made.invalid == ()
    assert len(made.remarks) == 1
    assert "inputSchema" in made.remarks[0]


def test_cases_are_determined_by_the_seed() -> None:
    schema = USABLE["a search"]
    assert arguments_for(schema, seed=1) == arguments_for(schema, seed=1)
    random_ones = [
        [case.arguments for case in arguments_for(schema, seed=seed).valid if case.kind == "random"]
        for seed in (1, 2)
    ]
    assert random_ones[0] != random_ones[1]
    assert len(random_ones[0]) == 5


def test_a_search_gets_every_edge_and_every_breach() -> None:
    made = arguments_for(USABLE["a search"], examples=0)
    assert [case.title for case in made.valid] == [
        "the least",
        "everything declared",
        "`max_results` 1, its minimum",
        "`max_results` 50, its maximum",
        "`query` empty",
        "`query` of many scripts",
        "`query` of 2,000 characters",
    ]
    assert made.valid[0].arguments == {"query": "example"}
    assert made.valid[1].arguments == {"query": "example", "max_results": 10}
    certain = [case.title for case in made.invalid if case.certain]
    assert certain == [
        "without `query`",
        "`query` an object in place of string",
        "`max_results` an object in place of integer",
        "an array in place of an object",
        "a string in place of an object",
    ]
    doubtful = [case.title for case in made.invalid if not case.certain]
    assert doubtful == [
        "`max_results` 0, below its minimum 1",
        "`max_results` 51, above its maximum 50",
        "`max_results` 1.5 in place of a whole number",
    ]


def test_nested_properties_have_their_edges_and_breaches_too() -> None:
    schema = an_object(["filter"], filter=an_object(["limit"], limit={"type": "integer", "minimum": 1}))
    made = arguments_for(schema)
    assert "`filter.limit` 1, its minimum" not in [case.title for case in made.valid]  # what the least is
    titles = [case.title for case in made.invalid if case.certain]
    assert "without `filter.limit`" in titles
    assert "`filter.limit` an object in place of integer" in titles


def test_an_example_of_the_schema_or_the_description_is_taken_first() -> None:
    city = {"type": "string", "description": "The city, e.g. 'Lisbon'."}
    made = arguments_for(an_object(["a", "b"], a=city, b={"type": "string", "examples": ["it"]}))
    assert made.valid[0].arguments == {"a": "Lisbon", "b": "it"}


def test_a_cut_is_reported() -> None:
    made = arguments_for(USABLE["wide"])
    assert len([case for case in made.valid if case.kind != "random"]) == MAX_VALID
    assert len(made.invalid) == MAX_INVALID
    assert len(made.remarks) == 2


def test_references_that_double_at_each_level_come_to_an_end() -> None:
    made = arguments_for(DOUBLING)  # 4 ** 12 paths
    assert made.valid[0].arguments == {}


schemas: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.booleans(),
        st.builds(lambda kind: {"type": kind}, st.sampled_from(["string", "integer", "number", "null"])),
        st.builds(
            lambda low, room: {"type": "integer", "minimum": low, "maximum": low + room},
            st.integers(-5, 5),
            st.integers(-1, 5),
        ),
        st.builds(
            lambda low, room: {"type": "string", "minLength": low, "maxLength": low + room},
            st.integers(0, 5),
            st.integers(0, 5),
        ),
        st.builds(lambda values: {"enum": values}, st.lists(st.integers(0, 3), min_size=1, max_size=3)),
        st.just({"$ref": "#"}),
    ),
    lambda inner: st.one_of(
        st.builds(
            lambda properties, required: {"type": "object", "properties": properties, "required": required},
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            st.lists(st.sampled_from("abc"), unique=True, max_size=2),
        ),
        st.builds(
            lambda items, low: {"type": "array", "items": items, "minItems": low}, inner, st.integers(0, 3)
        ),
        st.builds(
            lambda key, parts: {key: parts},
            st.sampled_from(["anyOf", "allOf", "oneOf"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(lambda schema: {"not": schema}, inner),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(schemas)
def test_generated_arguments_are_valid_or_invalid_as_labelled(schema: Any) -> None:
    made = arguments_for(schema, examples=2)
    assert made.valid or made.remarks
    check(schema, made)


@pytest.mark.parametrize(
    "pattern",
    [r"^\d{4}-\d\d$", r"^[^a-z]$", r"^(foo|bar)+$", r"a{0}b", r"^\w+@\w+\.com$", r"[\s\S]", r"(?i)^X$"],
)
def test_a_string_generated_for_a_pattern_matches_it(pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern}
    assert conforms(schema, of_pattern(pattern))
