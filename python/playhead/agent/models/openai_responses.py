"""OpenAI's Responses: the model, and requests in its wire format. openai_responses_stream reads the reply.

`encode` is pure. Nothing is stored at OpenAI (`store` is false), so each request holds the whole
conversation: a reply's own items go back unchanged, including its reasoning, which only the encrypted form
can carry. A reasoning item with neither that nor open text is omitted: the API would look it up in its store
and refuse the request.

Source: the OpenAPI description behind the `openai` package (types/responses/response_create_params.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, assert_never

from playhead.agent.conversation import (
    AssistantMessage,
    Attachment,
    Message,
    ModelRequest,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from playhead.agent.models.attachments import OPENAI_RESPONSES, MediaPolicy, fit_media
from playhead.agent.models.http_model import SdkModel
from playhead.agent.models.json_fields import sendable, text_at, wire_name
from playhead.agent.models.openai_chat import OPENAI_SDK, OPENAI_URL, arguments_text, audio, result_text
from playhead.agent.models.openai_responses_stream import ResponsesDecoder
from playhead.agent.models.tool_schema import object_schema

__all__ = ["OpenAIResponsesModel", "ResponsesDecoder", "encode", "reasons"]

_UNREASONING: Final = ("gpt-3", "gpt-4", "chatgpt-4")


class OpenAIResponsesModel(SdkModel):
    """A model behind OpenAI's Responses. Needs the extra `openai`.

    Nothing is stored at OpenAI: each request holds the whole conversation.
    """

    _provider = "openai-responses"
    _label = "OpenAI"
    _default_url = OPENAI_URL
    _default_media = OPENAI_RESPONSES
    _sdk = OPENAI_SDK

    def _encode(self, request: ModelRequest) -> dict[str, Any]:
        return encode(request, model=self._model, media=self._media)

    def _decoder(self) -> ResponsesDecoder:
        return ResponsesDecoder()

    def _create(self, client: Any) -> Any:
        return client.responses.with_streaming_response.create


def reasons(model: str) -> bool:
    """Tell by its name if an OpenAI model reasons. One that doesn't refuses to encrypt its reasoning."""
    return not model.removeprefix("ft:").startswith(_UNREASONING)


def encode(
    request: ModelRequest,
    *,
    model: str,
    encrypted_reasoning: bool | None = None,
    media: MediaPolicy = OPENAI_RESPONSES,
) -> dict[str, Any]:
    """Encode the body of `POST /responses`, with `stream` on and `store` off.

    Args:
        encrypted_reasoning: request the reply's reasoning in encrypted form, to send it back in the next
            round. None: decided by the model's name (`reasons`).
        media: images that are sent natively; a line of text replaces the others. This API takes no audio.
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
                # Explicit: this API's default is strict, which makes every optional argument required.
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
    """Send the items back unchanged; a call only if it is still in the message, and so has a result."""
    if not message.raw:
        yield from _foreign(message)
        return
    wanted = {call.id for call in message.calls}
    items = [
        item for item in message.raw if item.get("type") != "function_call" or item.get("call_id") in wanted
    ]
    sent = {item.get("call_id") for item in items}
    while items and items[-1].get("type") == "reasoning":
        # Cut off before the item it led to: "provided without its required following item".
        items.pop()
    for item in items:
        match item.get("type"):
            case "reasoning" if not item.get("encrypted_content") and not item.get("content"):
                continue
            case "function_call":
                yield {**_without_nulls(item), "name": wire_name(text_at(item, "name"))}
            case "reasoning" | "message":
                # An absent value arrives as null, which the request's types don't allow.
                yield _without_nulls(item)
            case _:
                yield dict(item)
    # Calls that middleware added have results too.
    yield from (_call(call) for call in message.calls if call.id not in sent)


def _foreign(message: AssistantMessage) -> Iterator[dict[str, Any]]:
    """Write a reply of another provider, or of a script."""
    if message.text:
        yield {"type": "message", "role": "assistant", "content": message.text}
    yield from map(_call, message.calls)


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": wire_name(call.name),
        "arguments": arguments_text(call),
    }


def _part(part: Text | Attachment) -> dict[str, Any]:
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
