"""Anthropic's wire shapes, held against the official SDK's own types, and the model over HTTP."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, cast

from anthropic import types
from pydantic import TypeAdapter

from playhead.agent.conversation import (
    AssistantMessage,
    Attachment,
    Message,
    ModelRequest,
    ReplyEnd,
    ReplyPiece,
    Text,
    TokenUsage,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
)
from playhead.agent.models.anthropic import MAX_TOKENS, AnthropicDecoder, encode
from tests.loop_kit import user
from tests.servers.providers.validate import check_types

Json = dict[str, Any]
EVENTS: TypeAdapter[Any] = TypeAdapter(types.RawMessageStreamEvent)
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n".ljust(30, b"\0")).decode()
PICTURE = Attachment(kind="image", mime_type="image/png", base64=PNG)
SOUND = Attachment(kind="audio", mime_type="audio/mpeg", base64="SUQzAAAA")
WEATHER = ToolSpec(
    name="weather",
    description="The weather.",
    parameters={
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)


def call(call_id: str, name: str = "weather", **arguments: Any) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments, arguments_text=json.dumps(arguments))


def encoded(*messages: Message, **more: Any) -> Json:
    """The body, valid by the official types."""
    body = encode(ModelRequest(messages=messages, **more), model="claude-x")
    check_types("anthropic", body)
    return body


def start(index: int, block: Json) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


def begun(**usage: Any) -> Json:
    message: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 20, "cache_read_input_tokens": 5, "output_tokens": 1, **usage},
    }
    return {"type": "message_start", "message": message}


def ended(reason: str, **details: Any) -> list[Json]:
    return [
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None, **details},
            "usage": {"output_tokens": 30},
        },
        {"type": "message_stop"},
    ]


def tool_use(index: int, call_id: str, *json_deltas: str) -> list[Json]:
    block = {"type": "tool_use", "id": call_id, "name": "weather", "input": {}}
    deltas = [delta(index, "input_json_delta", partial_json=each) for each in json_deltas]
    return [start(index, block), *deltas, stop(index)]


REPLY: list[Json] = [
    begun(),
    {"type": "ping"},
    start(0, {"type": "thinking", "thinking": "", "signature": ""}),
    delta(0, "thinking_delta", thinking="Two "),
    delta(0, "thinking_delta", thinking="cities."),
    delta(0, "signature_delta", signature="c2ln"),
    stop(0),
    start(1, {"type": "redacted_thinking", "data": "b3BhcXVl"}),
    stop(1),
    start(2, {"type": "text", "text": ""}),
    delta(2, "text_delta", text="Let me "),
    delta(2, "text_delta", text="look."),
    stop(2),
    *tool_use(3, "toolu_1", "", '{"ci', 'ty": "Bern"', "}"),
    *tool_use(4, "toolu_2", ""),
    *ended("tool_use"),
]
RAW: tuple[Json, ...] = (
    {"type": "thinking", "thinking": "Two cities.", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "b3BhcXVl"},
    {"type": "text", "text": "Let me look."},
    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bern"}},
    {"type": "tool_use", "id": "toolu_2", "name": "weather", "input": {}},
)


def decoded(events: Sequence[Json]) -> list[ReplyPiece]:
    """The pieces of `events`, which are such as the official types allow."""
    decoder = AnthropicDecoder()
    pieces: list[ReplyPiece] = []
    for event in events:
        if event["type"] not in ("ping", "error"):
            EVENTS.validate_json(json.dumps(event))
        pieces += decoder.feed(event)
    return pieces + decoder.finish()


def end_of(events: Sequence[Json]) -> ReplyEnd:
    return cast("ReplyEnd", decoded(events)[-1])


# --- requests ----------------------------------------------------------------------------------------


def test_a_request_has_the_model_its_system_and_its_tools_with_optional_arguments_left_optional() -> None:
    body = encoded(user("Hello"), system="Be brief.", tools=(WEATHER,))
    assert body == {
        "model": "claude-x",
        "max_tokens": MAX_TOKENS,
        "stream": True,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
        "tools": [
            {
                "name": "weather",
                "description": "The weather.",
                "input_schema": {**WEATHER.parameters, "type": "object"},
            }
        ],
    }


def test_the_temperature_is_never_sent_and_a_bound_of_tokens_is() -> None:
    body = encoded(user("Hello"), temperature=0.5, max_tokens=7)
    assert "temperature" not in body
    assert body["max_tokens"] == 7


def test_a_reply_of_anthropics_goes_back_block_by_block_as_it_came() -> None:
    message = end_of(REPLY).message
    results = ToolMessage(
        results=(
            ToolResult(call_id="toolu_1", name="weather", text="sun"),
            *([ToolResult(call_id="toolu_2", name="weather", text="no city", status="error")]),
        )
    )
    body = encoded(user("Weather?"), message, results)
    assert body["messages"][1] == {"role": "assistant", "content": list(RAW)}
    assert body["messages"][2] == {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [{"type": "text", "text": "sun"}],
                "is_error": False,
            },
            {
                "type": "tool_result",
                "tool_use_id": "toolu_2",
                "content": [{"type": "text", "text": "no city"}],
                "is_error": True,
            },
        ],
    }


def test_roles_alternate_with_the_results_first_and_nothing_empty() -> None:
    result = ToolMessage(results=(ToolResult(call_id="a", name="weather", text=""),))
    body = encoded(
        user("one"),
        user(" "),
        user("two"),
        AssistantMessage(parts=(call("a"),)),
        user("wait"),
        result,
        user("go"),
    )
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "text", "text"]
    assert body["messages"][2]["content"][0]["content"] == [
        {"type": "text", "text": "[the tool returned no content]"}
    ]


def test_a_reply_to_be_continued_does_not_end_in_white_space() -> None:
    body = encoded(user("Say"), AssistantMessage(parts=(Text(text="The answer is \n"),)))
    assert body["messages"][-1]["content"] == [{"type": "text", "text": "The answer is"}]


def test_images_stand_in_their_result_and_sound_is_named() -> None:
    result = ToolResult(call_id="a", name="weather", text="a map", media=(PICTURE, SOUND))
    body = encoded(user("?"), AssistantMessage(parts=(call("a"),)), ToolMessage(results=(result,)))
    text, image = body["messages"][2]["content"][0]["content"]
    assert text["text"].startswith("a map\n[audio, audio/mpeg, 6 bytes: not attached")
    assert image == {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def test_the_image_of_an_error_follows_the_results_because_an_error_is_text_alone() -> None:
    results = (
        ToolResult(call_id="a", name="weather", text="broken", media=(PICTURE,), status="error"),
        ToolResult(call_id="b", name="weather", text="sun"),
    )
    message = AssistantMessage(parts=(call("a"), call("b")))
    content = encoded(user("?"), message, ToolMessage(results=results))["messages"][2]["content"]
    assert [block["type"] for block in content] == ["tool_result", "tool_result", "image"]
    assert [block["type"] for block in content[0]["content"]] == ["text"]


# --- streams -----------------------------------------------------------------------------------------


def test_tokens_that_were_read_from_the_cache_count_as_input() -> None:
    assert end_of(REPLY).usage == TokenUsage(input_tokens=25, output_tokens=30)


def test_blocks_that_come_at_once_are_kept_apart_by_their_index() -> None:
    one, two = tool_use(0, "toolu_1", '{"a":', "1}"), tool_use(1, "toolu_2", '{"b":', "2}")
    mixed = [each for pair in zip(one, two, strict=True) for each in pair]
    end = end_of([begun(), *mixed, *ended("tool_use")])
    assert [each.arguments for each in end.message.calls] == [{"a": 1}, {"b": 2}]


def test_a_refusal_has_its_explanation() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "This could do harm."}
    end = end_of([begun(), *ended("refusal", stop_details=details)])
    assert (end.stop, end.reason) == ("refused", "This could do harm.")
    assert encoded(user("one"), end.message, user("two"))["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}
    ]


def test_events_and_deltas_that_a_later_version_adds_are_passed_over() -> None:
    decoder = AnthropicDecoder()
    later: list[Json] = [{"type": "news"}, {}, {"type": 5}, delta(2, "glow_delta", glow=1)]
    found = [piece for event in [*REPLY[:10], *later, *REPLY[10:]] for piece in decoder.feed(event)]
    assert found + decoder.finish() == decoded(REPLY)


def test_thinking_that_was_cut_off_before_its_signature_does_not_go_back() -> None:
    raw = (
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Well"},
        {"type": "thinking", "thinking": "and", "signature": ""},
    )
    message = AssistantMessage(parts=(Text(text="Well"),), provider="anthropic", raw=raw)
    assert encoded(user("?"), message, user("And?"))["messages"][1]["content"] == list(raw[:2])
