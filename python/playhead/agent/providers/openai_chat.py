"""OpenAI's Chat Completions: the request, in the wire's shapes. Its stream is read in openai_chat_stream.

Pure functions over dictionaries. What follows here is what OpenAI's own API wants; where compatible servers
are known to want more, they get it, because OpenAI takes it too:

* a tool's `parameters` is an object with `properties`, whatever the MCP server wrote (`tool_schema`);
* an assistant turn without text has `content: null`, which some servers miss;
* arguments that are no JSON are wrapped in an object: servers that fill a chat template parse them.

Source: the OpenAPI description behind the `openai` package (types/chat/completion_create_params.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, Literal, assert_never

from playhead.agent.conversation import (
    AssistantMessage,
    Media,
    Message,
    ModelRequest,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from playhead.agent.providers.media import OPENAI, MediaPolicy, fit_media
from playhead.agent.providers.openai_chat_stream import Decoder
from playhead.agent.providers.tool_schema import object_schema
from playhead.agent.providers.wire import sendable, wire_name

__all__ = ["Decoder", "audio", "encode", "result_text"]

MaxTokensField = Literal["max_completion_tokens", "max_tokens"]

_AUDIO_FORMATS: Final = {"audio/mpeg": "mp3"}
"""What `input_audio` calls a type; the others by the second half of their name."""


def encode(
    request: ModelRequest,
    *,
    model: str,
    max_tokens_field: MaxTokensField = "max_completion_tokens",
    media: MediaPolicy = OPENAI,
) -> dict[str, Any]:
    """The body of `POST /chat/completions`, with `stream` on.

    Args:
        max_tokens_field: what `request.max_tokens` is called. OpenAI's reasoning models refuse the old name
            (`max_tokens`), many compatible servers know no other.
        media: what is sent natively; a line of text stands where something is not.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": [*_system(request.system), *_messages(fit_media(request.messages, media))],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    if request.max_tokens is not None:
        body[max_tokens_field] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    fit: dict[str, Any] = sendable(body)
    return fit


def result_text(result: ToolResult) -> str:
    """A result's text for a provider whose wire has no place for "this is an error", and none for nothing."""
    text = result.text or ("(no text; its media follow)" if result.media else "(no content)")
    return f"Error: {text}" if result.is_error and not text.lower().startswith("error") else text


def audio(media: Media) -> dict[str, Any]:
    kind = _AUDIO_FORMATS.get(media.mime_type) or media.mime_type.partition("/")[2]
    return {"type": "input_audio", "input_audio": {"data": media.base64, "format": kind}}


def _system(text: str) -> Iterator[dict[str, Any]]:
    # Not `developer`: OpenAI reads `system` as that where a model wants it, and other servers know only this.
    if text:
        yield {"role": "system", "content": text}


def _messages(messages: tuple[Message, ...]) -> Iterator[dict[str, Any]]:
    for message in messages:
        match message:
            case UserMessage():
                yield {"role": "user", "content": _content(message.parts)}
            case AssistantMessage():
                yield _assistant(message)
            case ToolMessage():
                yield from _results(message)
            case _:
                assert_never(message)


def _tool(spec: ToolSpec) -> dict[str, Any]:
    # No `strict`: it would make every optional argument a required one.
    function: dict[str, Any] = {"name": spec.name, "parameters": object_schema(spec.parameters)}
    if spec.description:
        function["description"] = spec.description
    return {"type": "function", "function": function}


def _content(parts: tuple[Text | Media, ...]) -> str | list[dict[str, Any]]:
    # A plain string where it can be one: not every server reads lists.
    if all(isinstance(part, Text) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    return [_part(part) for part in parts]


def _part(part: Text | Media) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if part.kind == "image":
        url = f"data:{part.mime_type};base64,{part.base64}"
        return {"type": "image_url", "image_url": {"url": url}}
    return audio(part)


def _assistant(message: AssistantMessage) -> dict[str, Any]:
    calls = message.calls
    encoded: dict[str, Any] = {"role": "assistant", "content": message.text or (None if calls else "")}
    if not calls:
        return encoded
    raw = message.raw[0] if message.provider == "openai" and message.raw else {}
    extras = raw.get("tool_calls", {})
    encoded["tool_calls"] = [{**extras.get(call.id, {}), **_call(call)} for call in calls]
    # Models that think between calls want their thoughts back there, and only there.
    encoded.update({name: value for name, value in raw.items() if name != "tool_calls"})
    return encoded


def _call(call: ToolCall) -> dict[str, Any]:
    text = call.arguments_text
    if call.arguments is None:
        text = json.dumps({"unreadable": text})
    elif not text.strip():
        text = "{}"
    return {"id": call.id, "type": "function", "function": {"name": wire_name(call.name), "arguments": text}}


def _results(message: ToolMessage) -> Iterator[dict[str, Any]]:
    for result in message.results:
        yield {"role": "tool", "tool_call_id": result.call_id, "content": result_text(result)}
    # A tool message holds text only, and all must follow the calls at once: media come after the last.
    parts: list[Text | Media] = []
    for result in message.results:
        if result.media:
            parts.append(Text(text=f"From the result of {result.name} ({result.call_id}):"))
            parts.extend(result.media)
    if parts:
        yield {"role": "user", "content": _content(tuple(parts))}
