"""Schemas that fail a whole request at OpenAI or Anthropic, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from playhead.agent.conversation import ModelRequest, Text, ToolSpec, UserMessage
from playhead.agent.models import anthropic, openai_chat, openai_responses
from playhead.agent.models.tool_schema import object_schema

TEXT, COUNT = {"type": "string"}, {"type": "integer"}


def test_a_root_that_both_take_stays_as_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {"when": {"anyOf": [TEXT, COUNT]}},
        "required": ["when"],
        "additionalProperties": False,
    }
    assert object_schema(schema) == schema


@pytest.mark.parametrize("odd", [{}, {"type": None}, {"type": ["object", "null"]}, {"properties": None}])
def test_a_root_without_type_or_properties_gets_both(odd: dict[str, Any]) -> None:
    assert object_schema(odd) == {"type": "object", "properties": {}}


def test_a_choice_of_what_is_required_is_left_to_the_server() -> None:
    choice = [{"required": ["file"]}, {"required": ["url"]}]
    schema = {"type": "object", "properties": {"file": TEXT, "url": TEXT, "id": COUNT}, "required": ["id"]}
    assert object_schema({**schema, "oneOf": choice}) == schema


def test_arguments_of_every_choice_are_offered_and_none_of_them_required() -> None:
    found = object_schema(
        {
            "anyOf": [
                {"properties": {"kind": {"const": "a"}, "x": TEXT}, "required": ["kind", "x"]},
                {"properties": {"kind": {"const": "b"}, "y": COUNT}, "required": ["kind"]},
            ]
        }
    )
    assert found == {
        "type": "object",
        "properties": {"kind": {"anyOf": [{"const": "a"}, {"const": "b"}]}, "x": TEXT, "y": COUNT},
    }


def test_what_must_hold_together_is_put_together_also_behind_references() -> None:
    base = {"type": "object", "properties": {"id": COUNT}, "required": ["id"]}
    found = object_schema(
        {"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"name": TEXT}}], "$defs": {"base": base}}
    )
    assert found["properties"] == {"id": COUNT, "name": TEXT}
    assert found["required"] == ["id"]
    assert "allOf" not in found


@pytest.mark.parametrize(
    "odd",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/$defs/none"},
        {"allOf": True},
        {"anyOf": [True, False, None, {"properties": True, "required": True}]},
        {"enum": [{}], "not": {}},
    ],
)
def test_roots_that_lead_nowhere_give_a_tool_without_named_arguments(odd: dict[str, Any]) -> None:
    found = object_schema(odd)
    assert (found["type"], found["properties"]) == ("object", {})
    assert not found.keys() & {"anyOf", "allOf", "enum", "not", "$ref"}


def test_definitions_that_name_each_other_many_times_cost_no_more_than_their_size() -> None:
    # Without the rule of one visit these are 10 ** 40 branches: the test would not end.
    definitions: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 10} for n in range(40)
    }
    definitions["d40"] = {"properties": {"a": TEXT}, "required": ["a"]}
    found = object_schema({"$ref": "#/$defs/d0", "$defs": definitions})
    assert (found["properties"], found["required"]) == ({"a": TEXT}, ["a"])


def test_every_codec_that_needs_it_does_so() -> None:
    spec = ToolSpec(name="t", description="", parameters={"anyOf": [{"properties": {"a": TEXT}}]})
    request = ModelRequest(messages=(UserMessage(parts=(Text(text="Hi"),)),), tools=(spec,))
    expected = {"type": "object", "properties": {"a": TEXT}}
    assert anthropic.encode(request, model="m")["tools"][0]["input_schema"] == expected
    assert openai_chat.encode(request, model="m")["tools"][0]["function"]["parameters"] == expected
    assert openai_responses.encode(request, model="m")["tools"][0]["parameters"] == expected
