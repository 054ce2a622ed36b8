"""Gemini's wire shapes, held against google-genai's own types, and the model over HTTP."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from playhead.agent.conversation import (
    AssistantMessage,
    Attachment,
    Message,
    ModelRequest,
    ReplyEnd,
    ReplyPiece,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from playhead.agent.models.gemini import GeminiDecoder, encode
from playhead.agent.models.tool_schema import gemini_parameters
from tests.loop_kit import user
from tests.servers.providers.validate import check_types

Json = dict[str, Any]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n".ljust(30, b"\0")).decode()
PICTURE = Attachment(kind="image", mime_type="image/png", base64=PNG)
SOUND = Attachment(kind="audio", mime_type="audio/mpeg", base64="SUQzAAAA")


def call(call_id: str, name: str = "weather", **arguments: Any) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments, arguments_text=json.dumps(arguments))


def encoded(*messages: Message, model: str = "gemini-3-pro", **more: Any) -> Json:
    """The body, valid by the official types."""
    body = encode(ModelRequest(messages=messages, **more), model=model)
    check_types("gemini", body)
    return body


def chunk(*parts: Json, stop: str | None = None, **more: Any) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if stop is not None:
        candidate["finishReason"] = stop
    return {"candidates": [candidate], "modelVersion": "gemini-3-pro", "responseId": "r1", **more}


def asks(name: str = "weather", *, signature: str | None = None, **made: Any) -> Json:
    part: Json = {"functionCall": {"name": name, **made}}
    return part if signature is None else {**part, "thoughtSignature": signature}


USED = {
    "promptTokenCount": 20,
    "candidatesTokenCount": 9,
    "thoughtsTokenCount": 4,
    "totalTokenCount": 33,
}
REPLY = [
    chunk({"text": "Two ", "thought": True}),
    chunk({"text": "cities.", "thought": True}),
    chunk({"text": "Let me "}, usageMetadata={"promptTokenCount": 20}),
    chunk({"text": "look."}),
    chunk(asks(args={"city": "Bern"}, signature="c2ln"), asks(id="theirs", args={"city": "Thun"})),
    chunk({"text": ""}, stop="STOP", usageMetadata=USED),
]
RAW: tuple[Json, ...] = (
    {"text": "Two cities.", "thought": True},
    {"text": "Let me look."},
    asks(args={"city": "Bern"}, signature="c2ln"),
    asks(id="theirs", args={"city": "Thun"}),
)


def decoded(events: Sequence[Json]) -> list[ReplyPiece]:
    """The pieces of `events`, which are such as the official types allow."""
    decoder = GeminiDecoder(call_prefix="p")
    pieces: list[ReplyPiece] = []
    for event in events:
        types.GenerateContentResponse.model_validate_json(json.dumps(event))
        pieces += decoder.feed(event)
    return pieces + decoder.finish()


def end_of(events: Sequence[Json]) -> ReplyEnd:
    return cast("ReplyEnd", decoded(events)[-1])


# --- requests ----------------------------------------------------------------------------------------


def test_a_request_has_its_system_its_tools_and_its_settings() -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": ["string", "null"]}},
        "additionalProperties": False,
    }
    tools = (
        ToolSpec(name="weather", description="The weather.", parameters=schema),
        ToolSpec(name="stop", description="", parameters={"type": "object", "properties": {}}),
    )
    assert encoded(user("Hello"), system="Be brief.", tools=tools, max_tokens=7, temperature=0.5) == {
        "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "weather", "description": "The weather.", "parametersJsonSchema": schema},
                    {"name": "stop", "description": "stop"},
                ]
            }
        ],
        "generationConfig": {"maxOutputTokens": 7, "temperature": 0.5},
    }


def test_a_reply_of_geminis_goes_back_part_by_part_with_its_signatures_and_ids_of_its_own_alone() -> None:
    message = end_of(REPLY).message
    results = ToolMessage(
        results=(
            ToolResult(call_id="p-1", name="weather", text="sun"),
            ToolResult(call_id="theirs", name="weather", text="no city", status="error"),
        )
    )
    contents = encoded(user("?"), message, results)["contents"]
    assert contents[1] == {"role": "model", "parts": list(RAW)}
    assert contents[2] == {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": "weather", "response": {"output": "sun"}}},
            {"functionResponse": {"id": "theirs", "name": "weather", "response": {"error": "no city"}}},
        ],
    }


@pytest.mark.parametrize(("model", "signed"), [("gemini-2.5-flash", False), ("gemini-3-pro", True)])
def test_calls_of_another_model_carry_the_mark_that_newer_models_want(model: str, signed: bool) -> None:
    foreign = AssistantMessage(
        parts=(Thinking(text="hm"), call("a", city="Bern")), provider="anthropic", raw=({"type": "text"},)
    )
    result = ToolMessage(results=(ToolResult(call_id="a", name="weather", text="sun"),))
    contents = encoded(user("?"), foreign, result, model=model)["contents"]
    (part,) = contents[1]["parts"]
    assert part["functionCall"] == {"id": "a", "name": "weather", "args": {"city": "Bern"}}
    assert ("thoughtSignature" in part) is signed
    assert contents[2]["parts"][0]["functionResponse"]["id"] == "a"


def test_a_users_media_are_inline() -> None:
    (content,) = encoded(UserMessage(parts=(PICTURE, SOUND, Text(text="?"))))["contents"]
    assert content["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": PNG}},
        {"inlineData": {"mimeType": "audio/mp3", "data": "SUQzAAAA"}},
        {"text": "?"},
    ]


@pytest.mark.parametrize(("model", "within", "beside"), [("gemini-3-pro", 1, 2), ("gemini-2.0-flash", 0, 3)])
def test_a_results_media_never_make_more_parts_than_there_were_calls(
    model: str, within: int, beside: int
) -> None:
    results = (
        ToolResult(call_id="a", name="weather", text="a map", media=(PICTURE, SOUND)),
        ToolResult(call_id="b", name="weather", text="sun"),
    )
    reply = AssistantMessage(parts=(call("a"), call("b")))
    _, _, answers, after = encoded(user("?"), reply, ToolMessage(results=results), model=model)["contents"]
    assert [part["functionResponse"]["id"] for part in answers["parts"]] == ["a", "b"]
    assert len(answers["parts"][0]["functionResponse"].get("parts", ())) == within
    assert after["role"] == "user"
    assert len(after["parts"]) == beside


# --- schemas -----------------------------------------------------------------------------------------


def test_references_are_written_out_with_what_stands_beside_them() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {
            "from": {"$ref": "#/definitions/place", "description": "Where from"},
            "to": {"$ref": "#/properties/from"},
            "$ref": {"type": "string"},
        },
        "definitions": {"place": {"type": "string", "enum": ["Bern", "$ref"]}},
    }
    place = {"type": "string", "enum": ["Bern", "$ref"], "description": "Where from"}
    assert gemini_parameters(schema) == {
        "type": "object",
        "properties": {"from": place, "to": place, "$ref": {"type": "string"}},
    }


def test_a_type_that_holds_itself_stays_a_reference_alone() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node", "description": "after"}}}
    schema = {"type": "object", "properties": {"list": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}
    alone = {"type": "object", "properties": {"next": {"$ref": "#/$defs/d0"}}}
    assert gemini_parameters(schema) == {
        "type": "object",
        "properties": {"list": alone},
        "$defs": {"d0": alone},
    }


def test_a_reference_that_leads_elsewhere_leaves_what_stands_beside_it() -> None:
    schema = {
        "properties": {"a": {"$ref": "https://example.com/x", "description": "some x"}, "b": {"$ref": "#/no"}}
    }
    found = gemini_parameters(schema)
    assert found == {"type": "object", "properties": {"a": {"description": "some x"}, "b": {}}}


@pytest.mark.parametrize("width", [2, 30])
def test_definitions_that_double_with_each_level_stay_small(width: int) -> None:
    definitions: Json = {
        f"t{level}": {"properties": {f"p{each}": {"$ref": f"#/$defs/t{level + 1}"} for each in range(width)}}
        for level in range(40)
    }
    definitions["t40"] = {"type": "string"}
    found = gemini_parameters({"properties": {"a": {"$ref": "#/$defs/t0"}}, "$defs": definitions})
    assert len(json.dumps(found)) < 3_000_000
    names = set(cast("Json", found)["$defs"])
    assert {f"#/$defs/{name}" for name in names} >= references(found)


def references(value: object) -> set[str]:
    if isinstance(value, list):
        return {found for each in value for found in references(each)}
    if not isinstance(value, dict):
        return set()
    return (
        {value["$ref"]}
        if "$ref" in value
        else {found for each in value.values() for found in references(each)}
    )


# --- streams -----------------------------------------------------------------------------------------


def test_tokens_of_thoughts_count_as_output() -> None:
    assert end_of(REPLY).usage == TokenUsage(input_tokens=20, output_tokens=13)


@given(
    words=st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=8), cuts=st.sets(st.integers(0, 8))
)
def test_how_parts_are_spread_over_events_changes_nothing(words: list[str], cuts: set[int]) -> None:
    parts: list[Json] = [{"text": word} for word in words]
    edges = [0, *sorted(min(cut, len(parts)) for cut in cuts), len(parts)]
    events = [chunk(*parts[low:high]) for low, high in pairwise(edges)]
    end = end_of([*events, chunk(stop="STOP")])
    assert end.message.raw == ({"text": "".join(words)},)
    assert end.message.text == "".join(words)


def test_a_part_with_a_signature_stays_a_part_of_its_own() -> None:
    signed = {"text": "", "thoughtSignature": "c2ln"}
    end = end_of([chunk({"text": "a"}), chunk(signed), chunk({"text": "b"}, stop="STOP")])
    assert end.message.raw == ({"text": "a"}, signed, {"text": "b"})
    assert encoded(user("?"), end.message)["contents"][1]["parts"] == [{"text": "a"}, signed, {"text": "b"}]


def test_a_finish_message_is_told_too() -> None:
    candidate = {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Malformed: print(x)"}
    assert end_of([{"candidates": [candidate]}]).reason == "MALFORMED_FUNCTION_CALL: Malformed: print(x)"


def test_a_blocked_prompt_is_a_refusal_that_leaves_nothing_in_the_conversation() -> None:
    end = end_of([{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": USED}])
    assert (end.stop, end.reason) == ("refused", "the prompt was blocked: PROHIBITED_CONTENT")
    assert encoded(user("one"), end.message)["contents"] == [{"role": "user", "parts": [{"text": "one"}]}]
