"""Check captured requests: valid by the official SDK's own types, and without an orphaned call.

`check_request` raises `pydantic.ValidationError` for the first and `AssertionError` for the second. Fields
that the types don't have are refused too. A result must come directly after the reply that made its call,
once, and in the order of the calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, assert_never

from anthropic import types as anthropic_types
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from google.genai import types as gemini_types
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import ConfigDict, TypeAdapter

from tests.servers.providers.script import ProviderName
from tests.servers.providers.wire_server import Captured

Json = dict[str, Any]

_ANTHROPIC_BLOCKS = {
    "text": anthropic_types.TextBlockParam,
    "image": anthropic_types.ImageBlockParam,
    "thinking": anthropic_types.ThinkingBlockParam,
    "tool_use": anthropic_types.ToolUseBlockParam,
    "tool_result": anthropic_types.ToolResultBlockParam,
}
_GEMINI_FIELDS = {"contents", "systemInstruction", "tools", "generationConfig"}


def check_request(captured: Captured, *, is_openai: bool = True) -> None:
    """Hold one request against the types and the rules of its provider. A server that is only compatible
    with OpenAI gets back the field for thinking that it has on top."""
    provider, body = captured.provider, captured.body
    check_types(provider, body if is_openai or provider != "openai" else _without_thinking(body))
    match provider:
        case "openai":
            _chat_calls(body["messages"])
        case "openai-responses":
            _responses_calls(body["input"])
        case "anthropic":
            _anthropic_calls(body["messages"])
        case "gemini":
            _gemini_calls(body["contents"])
        case _:
            assert_never(provider)


def check_types(provider: ProviderName, body: Json) -> None:
    """Hold one request against the types alone."""
    match provider:
        case "openai":
            _valid(CompletionCreateParamsStreaming, body)
        case "openai-responses":
            _valid(ResponseCreateParamsStreaming, body)
        case "anthropic":
            _valid(MessageCreateParamsStreaming, body)
        case "gemini":
            _valid_gemini(body)
        case _:
            assert_never(provider)


def _without_thinking(body: Json) -> Json:
    return {
        **body,
        "messages": [
            {key: value for key, value in message.items() if key != "reasoning_content"}
            for message in body["messages"]
        ],
    }


def results(provider: ProviderName, body: Json) -> list[Any]:
    """Return the provider's own object for each call of the request, in order."""
    match provider:
        case "openai":
            return [message for message in body["messages"] if message["role"] == "tool"]
        case "openai-responses":
            return [item for item in body["input"] if item.get("type") == "function_call_output"]
        case "anthropic":
            blocks = [block for message in body["messages"] for block in message["content"]]
            return [block for block in blocks if block["type"] == "tool_result"]
        case "gemini":
            parts = [part for content in body["contents"] for part in content["parts"]]
            return [part["functionResponse"] for part in parts if "functionResponse" in part]
        case _:
            assert_never(provider)


# --- the SDKs' types ---------------------------------------------------------------------------------


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    # A list, because a dictionary's type takes no configuration from outside; what is in it takes the list's.
    return TypeAdapter(list[kind], config=ConfigDict(extra="forbid"))


def _valid(kind: Any, value: Any) -> None:
    _walk(_adapter(kind).validate_python([value]))


def _walk(value: Any) -> None:
    # An `Iterable` of the types is validated only where somebody iterates.
    if isinstance(value, Mapping):
        for item in value.values():
            _walk(item)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for item in value:
            _walk(item)


def _valid_gemini(body: Json) -> None:
    assert set(body) <= _GEMINI_FIELDS, set(body) - _GEMINI_FIELDS
    system = body.get("systemInstruction")
    for content in [*body["contents"], *([system] if system else [])]:
        gemini_types.Content.model_validate_json(json.dumps(content))
    for tool in body.get("tools", ()):
        gemini_types.Tool.model_validate_json(json.dumps(tool))
    gemini_types.GenerationConfig.model_validate_json(json.dumps(body.get("generationConfig", {})))


# --- calls and their results -------------------------------------------------------------------------


def _chat_calls(messages: list[Json]) -> None:
    due: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert due, "a result without a call"
            assert message["tool_call_id"] == due.pop(0)
            assert message["content"]
            continue
        assert not due, f"calls without results: {due}"
        due = [call["id"] for call in message.get("tool_calls", ())]
        for call in message.get("tool_calls", ()):
            json.loads(call["function"]["arguments"])  # chat templates parse them
    assert not due, f"calls without results: {due}"
    assert messages[-1]["role"] in ("user", "tool")


def _responses_calls(items: list[Json]) -> None:
    due: list[str] = []
    answering = False
    for item in items:
        if item.get("type") == "function_call":
            assert not answering or not due, f"calls without results: {due}"
            answering = False
            due.append(item["call_id"])
        elif item.get("type") == "function_call_output":
            assert due, "a result without a call"
            answering = True
            assert item["call_id"] == due.pop(0)
        else:
            assert not due, f"calls without results: {due}"
    assert not due, f"calls without results: {due}"
    assert items[-1].get("role") == "user" or items[-1].get("type") == "function_call_output"


def _anthropic_calls(messages: list[Json]) -> None:
    due: list[str] = []
    for number, message in enumerate(messages):
        assert message["role"] == ("assistant" if number % 2 else "user"), "roles alternate, the user first"
        blocks = message["content"]
        for block in blocks:
            # The parameters' types take a reply's blocks too, with any field: those for requests don't.
            _valid(_ANTHROPIC_BLOCKS[block["type"]], block)
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert answered == due
        assert [block["type"] for block in blocks[: len(due)]] == ["tool_result"] * len(due)
        due = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert message["role"] == "assistant" or not due
    assert not due, f"calls without results: {due}"
    assert messages[-1]["role"] == "user"


def _gemini_calls(contents: list[Json]) -> None:
    due: list[tuple[str | None, str]] = []
    for content in contents:
        parts = content["parts"]
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        assert [(answer.get("id"), answer["name"]) for answer in answers] == due
        assert not answers or len(parts) == len(answers), "results stand alone"
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        due = [(call.get("id"), call["name"]) for call in calls]
        assert content["role"] == "model" or not due
    assert not due, f"calls without results: {due}"
    assert contents[-1]["role"] == "user"
