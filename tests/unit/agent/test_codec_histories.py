"""Histories that a provider would refuse whole, if they went back as they came about."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from playhead.agent.conversation import (
    AssistantMessage,
    Message,
    ModelRequest,
    Provider,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from playhead.agent.models import anthropic, gemini, openai_chat, openai_responses

ASK = UserMessage(parts=(Text(text="Play"),))


def request(*messages: Message) -> ModelRequest:
    return ModelRequest(messages=(ASK, *messages))


def call(call_id: str, name: str = "f") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments={}, arguments_text="{}")


def results(*ids: str, name: str = "f") -> ToolMessage:
    return ToolMessage(results=tuple(ToolResult(call_id=each, name=name, text="ok") for each in ids))


def values_of(body: Any, key: str) -> list[Any]:
    """All that stands under `key`, in order."""
    if isinstance(body, list):
        return [found for each in body for found in values_of(each, key)]
    if not isinstance(body, dict):
        return []
    own = [body[key]] if key in body else []
    return own + [found for each in body.values() for found in values_of(each, key)]


RAW: dict[Provider, Any] = {
    "anthropic": lambda name: {"type": "tool_use", "id": "a", "name": name, "input": {}},
    "openai-responses": lambda name: {
        "type": "function_call",
        "call_id": "a",
        "name": name,
        "arguments": "{}",
    },
    "gemini": lambda name: {"functionCall": {"id": "a", "name": name, "args": {}}},
    "openai": lambda name: {"tool_calls": {}},
}
ENCODE: dict[Provider, Any] = {
    "anthropic": anthropic.encode,
    "openai-responses": openai_responses.encode,
    "gemini": gemini.encode,
    "openai": openai_chat.encode,
}


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("name", ["functions read/ü", "x" * 70, ""])
@pytest.mark.parametrize("provider", ENCODE)
def test_a_name_that_a_model_made_up_goes_back_as_one_that_is_taken(
    provider: Provider, name: str, own: bool
) -> None:
    message = AssistantMessage(parts=(call("a", name),), provider=provider if own else None)
    message = replace(message, raw=(RAW[provider](name),) if own else ())
    body = ENCODE[provider](request(message, results("a", name=name)), model="m")
    names = values_of(body, "name")
    assert names
    assert len(set(names)) == 1
    assert 0 < len(names[0]) <= 64
    assert set(names[0]) <= set("_xfunctionsread")


def test_gemini_gets_names_that_begin_with_a_letter_and_its_own_dots_back() -> None:
    message = AssistantMessage(parts=(call("a", "2fast"), call("b", "default_api.read")))
    body = gemini.encode(request(message, results("a", name="2fast")), model="m")
    assert values_of(body, "name") == ["_2fast", "default_api.read", "_2fast"]


@pytest.mark.parametrize("kept", [("a", "late"), ()])
@pytest.mark.parametrize("provider", ENCODE)
def test_calls_that_a_middleware_added_or_took_away_match_their_results(
    provider: Provider, kept: tuple[str, ...]
) -> None:
    parts: tuple[Text | ToolCall, ...] = (Text(text="Yes."), *map(call, kept))
    message = AssistantMessage(parts=parts, provider=provider, raw=(RAW[provider]("f"),))
    history = [message, results(*kept)] if kept else [message]
    body = ENCODE[provider](request(*history), model="m")
    text = json.dumps(body)
    found = {
        "anthropic": (text.count('"tool_use"'), text.count('"tool_result"')),
        "openai-responses": (text.count('"function_call"'), text.count('"function_call_output"')),
        "gemini": (text.count('"functionCall"'), text.count('"functionResponse"')),
        "openai": (text.count('"arguments"'), text.count('"tool"')),
    }
    assert found[provider] == (len(kept), len(kept))


def test_thinking_that_was_cut_off_before_its_signature_does_not_go_back() -> None:
    raw = (
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Well"},
        {"type": "thinking", "thinking": "and", "signature": ""},
    )
    message = AssistantMessage(parts=(Text(text="Well"),), provider="anthropic", raw=raw)
    assert anthropic.encode(request(message, ASK), model="m")["messages"][1]["content"] == list(raw[:2])


def test_reasoning_that_was_cut_off_before_what_it_led_to_does_not_go_back() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    said = {"type": "message", "role": "assistant", "content": "Well"}
    message = AssistantMessage(
        parts=(Text(text="Well"),), provider="openai-responses", raw=(reasoning, said, reasoning)
    )
    kinds = [item["type"] for item in openai_responses.encode(request(message, ASK), model="m")["input"]]
    assert kinds == ["message", "reasoning", "message", "message"]
