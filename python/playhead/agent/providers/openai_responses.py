"""OpenAI's Responses: the request, in the wire's shapes. Its stream is read in openai_responses_stream.

Pure functions over dictionaries. Nothing is stored at OpenAI (`store` is false), so the conversation goes
there whole each time: a reply's own items as they came, among them the reasoning, which only its encrypted
form can carry. A reasoning item that has neither that nor open text is left out: the API would look for it in
its store and refuse the request.

Source: the OpenAPI description behind the `openai` package (types/responses/response_create_params.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, assert_never

from playhead.agent.conversation import (
    AssistantMessage,
    Media,
    Message,
    ModelRequest,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from playhead.agent.providers.media import OPENAI_RESPONSES, MediaPolicy, fit_media
from playhead.agent.providers.openai_chat import audio, result_text
from playhead.agent.providers.openai_responses_stream import Decoder
from playhead.agent.providers.tool_schema import object_schema
from playhead.agent.providers.wire import sendable, text_at, wire_name

__all__ = ["Decoder", "encode", "reasons"]

_UNREASONING: Final = ("gpt-3", "gpt-4", "chatgpt-4")


def reasons(model: str) -> bool:
    """Whether a model of OpenAI's reasons, by its name. One that doesn't refuses to encrypt its reasoning."""
    return not model.removeprefix("ft:").startswith(_UNREASONING)


def encode(
    request: ModelRequest,
    *,
    model: str,
    encrypted_reasoning: bool | None = None,
    media: MediaPolicy = OPENAI_RESPONSES,
) -> dict[str, Any]:
    """The body of `POST /responses`, with `stream` on and `store` off.

    Args:
        encrypted_reasoning: whether the reply's reasoning is asked for in encrypted form, to give it back in
            the next round. None: by the model's name (`reasons`).
        media: what is sent natively; a line of text stands where something is not. This API takes no sound.
    """
    body: dict[str, Any] = {
        "model": model,
        "input": [item for message in fit_media(request.messages, media) for item in _items(message)],
        "stream": True,
        "store": False,
    }
    if reasons(model) if encrypted_reasoning is None else encrypted_reasoning:
        body["include"] = ["reasoning.encrypted_content"]
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": spec.name,
                "description": spec.description,
                "parameters": object_schema(spec.parameters),
                # Said aloud: this API's default is strict, which makes every optional argument required.
                "strict": False,
            }
            for spec in request.tools
        ]
    if request.max_tokens is not None:
        body["max_output_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    fit: dict[str, Any] = sendable(body)
    return fit


def _items(message: Message) -> Iterator[dict[str, Any]]:
    match message:
        case UserMessage():
            yield {"type": "message", "role": "user", "content": [_part(part) for part in message.parts]}
        case AssistantMessage():
            yield from _own(message) if message.provider == "openai-responses" else _foreign(message)
        case ToolMessage():
            for result in message.results:
                yield {
                    "type": "function_call_output",
                    "call_id": result.call_id,
                    "output": _output(result),
                }
        case _:
            assert_never(message)


def _own(message: AssistantMessage) -> Iterator[dict[str, Any]]:
    """The items as they came; a call only where it is still in the message, and so has a result."""
    if not message.raw:
        yield from _foreign(message)
        return
    kept = {call.id for call in message.calls}
    items = [
        item for item in message.raw if item.get("type") != "function_call" or item.get("call_id") in kept
    ]
    told = {item.get("call_id") for item in items}
    while items and items[-1].get("type") == "reasoning":
        # Cut off before what it led to: "provided without its required following item".
        items.pop()
    for item in items:
        match item.get("type"):
            case "reasoning" if not item.get("encrypted_content") and not item.get("content"):
                continue
            case "function_call":
                yield {**_without_nulls(item), "name": wire_name(text_at(item, "name"))}
            case "reasoning" | "message":
                # An absent value comes as null, which the request's own types don't take.
                yield _without_nulls(item)
            case _:
                yield dict(item)
    # Calls that a middleware added have their results too.
    yield from (_call(call) for call in message.calls if call.id not in told)


def _foreign(message: AssistantMessage) -> Iterator[dict[str, Any]]:
    """A reply of another provider's, or of a script's."""
    if message.text:
        yield {"type": "message", "role": "assistant", "content": message.text}
    yield from map(_call, message.calls)


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": wire_name(call.name),
        "arguments": _arguments(call),
    }


def _arguments(call: ToolCall) -> str:
    if call.arguments is None:
        return json.dumps({"unreadable": call.arguments_text})
    return call.arguments_text if call.arguments_text.strip() else "{}"


def _part(part: Text | Media) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if part.kind == "image":
        url = f"data:{part.mime_type};base64,{part.base64}"
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return audio(part)


def _output(result: ToolResult) -> str | list[dict[str, Any]]:
    text = result_text(result)
    if not result.media:
        return text
    return [{"type": "input_text", "text": text}, *(_part(media) for media in result.media)]


def _without_nulls(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _cleaned(value) for name, value in item.items() if value is not None}


def _cleaned(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _without_nulls(value)
    return [_cleaned(item) for item in value] if isinstance(value, list) else value
