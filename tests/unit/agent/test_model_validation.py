"""The check of captured requests finds what it is for: it would be worth nothing if it passed everything."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from playhead.agent.conversation import (
    AssistantMessage,
    ModelRequest,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
)
from playhead.agent.models import anthropic, gemini, openai_chat, openai_responses
from tests.loop_kit import user
from tests.servers.providers.script import ProviderName
from tests.servers.providers.validate import check_request, results
from tests.servers.providers.wire_server import Captured

Json = dict[str, Any]
PROVIDERS: tuple[ProviderName, ...] = ("openai", "openai-responses", "anthropic", "gemini")


def body_of(provider: ProviderName, *, answered: tuple[str, ...] = ("a", "b")) -> Json:
    """Two calls, and results for those that are named, in this order."""
    calls = tuple(ToolCall(id=name, name=name, arguments={}, arguments_text="{}") for name in ("a", "b"))
    told = tuple(ToolResult(call_id=name, name=name, text="ok") for name in answered)
    messages: list[Any] = [user("go"), AssistantMessage(parts=calls)]
    if told:
        messages.append(ToolMessage(results=told))
    request = ModelRequest(
        messages=(*messages, user("and?")),
        system="Be brief.",
        tools=(ToolSpec(name="a", description="A", parameters={"type": "object", "properties": {}}),),
    )
    encode: dict[ProviderName, Callable[..., Json]] = {
        "openai": openai_chat.encode,
        "openai-responses": openai_responses.encode,
        "anthropic": anthropic.encode,
        "gemini": gemini.encode,
    }
    body: Json = json.loads(json.dumps(encode[provider](request, model="m")))
    return body


def check(provider: ProviderName, body: Json) -> None:
    check_request(Captured(provider, "m", "/", {}, body))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_whole_request_passes(provider: ProviderName) -> None:
    body = body_of(provider)
    check(provider, body)
    assert len(results(provider, body)) == 2


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "answered", [("b", "a"), ("a",), ("b",), (), ("a", "a", "b"), ("a", "b", "b"), ("a", "b", "c")], ids=str
)
def test_orphaned_doubled_and_unordered_results_are_found(
    provider: ProviderName, answered: tuple[str, ...]
) -> None:
    with pytest.raises(AssertionError):
        check(provider, body_of(provider, answered=answered))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of objects in a body, except free-form ones: schemas, arguments and results."""
    if isinstance(value, dict):
        free = ("parameters", "input_schema", "parametersJsonSchema", "args", "response")
        inside = [
            place for key, each in value.items() if key not in free for place in places(each, (*path, key))
        ]
        is_arguments = path and path[-1] == "input" and "type" not in value
        return inside if is_arguments else [path, *inside]
    if isinstance(value, list):
        return [place for index, each in enumerate(value) for place in places(each, (*path, index))]
    return []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_field_that_the_types_do_not_have_is_found_wherever_it_is(provider: ProviderName) -> None:
    found = places(body_of(provider))
    assert len(found) > 5
    for place in found:
        body = body_of(provider)
        target: Any = body
        for step in place:
            target = target[step]
        target["nobodysField"] = 1
        with pytest.raises((ValidationError, AssertionError)):
            check(provider, body)
