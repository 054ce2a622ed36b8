"""Replies that are odd in the same way at every provider."""

from __future__ import annotations

import json
from typing import Any

import pytest

from playhead.agent.conversation import (
    AssistantMessage,
    CallReady,
    ModelRequest,
    Text,
    TextPiece,
    ToolCall,
    UserMessage,
)
from playhead.agent.models import anthropic, gemini, openai_chat, openai_responses
from playhead.agent.models.json_fields import parse_arguments
from playhead.errors import ModelError


def anthropic_call(index: int, call_id: str) -> dict[str, Any]:
    block = {"type": "tool_use", "id": call_id, "name": "f", "input": {}}
    return {"type": "content_block_start", "index": index, "content_block": block}


def responses_call(index: int, call_id: str, name: str = "f") -> dict[str, Any]:
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def test_two_calls_with_one_id_are_the_providers_fault() -> None:
    claude = anthropic.AnthropicDecoder()
    claude.feed(anthropic_call(0, "a"))
    with pytest.raises(ModelError, match="two calls with the id 'a'"):
        claude.feed(anthropic_call(1, "a"))
    responses = openai_responses.ResponsesDecoder()
    responses.feed(responses_call(0, "a"))
    with pytest.raises(ModelError, match="two calls with the id 'a'"):
        responses.feed(responses_call(1, "a"))


@pytest.mark.parametrize(("call_id", "name"), [("", "f"), ("a", "")])
def test_a_call_without_id_or_name_is_never_dropped_in_silence(call_id: str, name: str) -> None:
    with pytest.raises(ModelError, match="without id or name"):
        openai_responses.ResponsesDecoder().feed(responses_call(0, call_id, name))


def test_null_for_the_arguments_of_gemini_are_none() -> None:
    part = {"functionCall": {"name": "f", "args": None}}
    pieces = gemini.GeminiDecoder().feed({"candidates": [{"content": {"parts": [part]}}]})
    assert [piece.call.arguments for piece in pieces if isinstance(piece, CallReady)] == [{}]


def test_null_for_the_index_of_a_choice_is_the_first() -> None:
    chunk = {"choices": [{"index": None, "delta": {"content": "Hi"}}]}
    assert openai_chat.ChatDecoder().feed(chunk) == [TextPiece(text="Hi")]


@pytest.mark.parametrize("depth", [200, 700, 900, 5000])
@pytest.mark.parametrize("codec", [anthropic, gemini, openai_chat, openai_responses])
def test_arguments_nested_too_deeply_to_be_given_back_are_told_and_fail_no_later_request(
    codec: Any, depth: int
) -> None:
    text = '{"a":' + "[" * depth + "]" * depth + "}"
    arguments, problem = parse_arguments(text)
    assert (arguments, problem) == (None, "the arguments are nested too deeply, or hold too many values")
    made = ToolCall(id="a", name="f", arguments=arguments, arguments_text=text, problem=problem)
    history = (UserMessage(parts=(Text(text="Hi"),)), AssistantMessage(parts=(made,)))
    assert json.dumps(codec.encode(ModelRequest(messages=history), model="m"))


@pytest.mark.parametrize(
    ("decoder", "event"),
    [
        (anthropic.AnthropicDecoder(), {"type": "error", "error": {"type": "e", "message": "x" * 10_000}}),
        (gemini.GeminiDecoder(), {"error": {"status": "E", "message": "x" * 10_000}}),
        (openai_chat.ChatDecoder(), {"error": {"message": "x" * 10_000}}),
        (openai_responses.ResponsesDecoder(), {"type": "error", "message": "x" * 10_000}),
    ],
)
def test_an_error_in_the_stream_is_quoted_only_at_its_beginning(decoder: Any, event: dict[str, Any]) -> None:
    with pytest.raises(ModelError) as caught:
        decoder.feed(event)
    assert len(str(caught.value)) < 400
