"""Anthropic's Messages API: the model, and requests in its wire format. anthropic_stream reads the reply.

`encode` is pure. The API requires what a neutral conversation doesn't:

* user and assistant alternate, so adjacent messages of one role become one message;
* no content and no text block is empty or blank;
* the results of one reply's calls are in one user message, before anything else in it;
* an error's result holds only text, so its images follow the results;
* thinking goes back unchanged, with its signature; another provider's thinking can't be sent;
* call ids match `[a-zA-Z0-9_-]+`, including those that another provider made.

Calls and results may appear in a request without `tools`, as in the last answer of a turn whose budget is
used up: the API accepts that since 27 February 2025 (its release notes; `anthropic-sdk-python` 849).

`temperature` is never sent: the API's types no longer have it, and newer models refuse it.
Source: the `Message…` and `Raw…Event` types of the official SDK, 2.12.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, assert_never

from playhead.agent.conversation import (
    AssistantMessage,
    Attachment,
    Message,
    ModelRequest,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from playhead.agent.models.anthropic_stream import AnthropicDecoder, unreadable
from playhead.agent.models.attachments import ANTHROPIC, MediaPolicy, fit_media
from playhead.agent.models.http_model import ProviderSdk, SdkModel
from playhead.agent.models.json_fields import sendable, text_at, wire_name
from playhead.agent.models.tool_schema import object_schema
from playhead.errors import UsageError

__all__ = ["MAX_TOKENS", "AnthropicDecoder", "AnthropicModel", "encode"]

MAX_TOKENS: Final = 8192
"""The default: the API requires a number, and every model since 3.5 supports this one."""

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


class AnthropicModel(SdkModel):
    """A model behind Anthropic's Messages API. Needs the extra `anthropic`."""

    _provider = "anthropic"
    _label = "Anthropic"
    _default_url = "https://api.anthropic.com"
    _default_media = ANTHROPIC
    _sdk = ProviderSdk(
        module="anthropic",
        client="AsyncAnthropic",
        error="AnthropicError",
        missing="AnthropicModel needs anthropic, which is not installed: pip install 'playhead[anthropic]'",
    )

    def _encode(self, request: ModelRequest) -> dict[str, Any]:
        return encode(request, model=self._model, media=self._media)

    def _decoder(self) -> AnthropicDecoder:
        return AnthropicDecoder()

    def _create(self, client: Any) -> Any:
        return client.messages.with_streaming_response.create


def encode(request: ModelRequest, *, model: str, media: MediaPolicy = ANTHROPIC) -> dict[str, Any]:
    """Encode the body of `POST /v1/messages`, streaming.

    Raises:
        UsageError: the conversation holds nothing to send (yours).
    """
    messages: list[dict[str, Any]] = []
    for message in fit_media(request.messages, media):
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        content = _content(message)
        if not content:
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(content)
        else:
            messages.append({"role": role, "content": content})
    if not messages:
        raise UsageError("messages: expected text or attachments to answer, got none")
    for each in messages:
        each["content"].sort(key=lambda block: block["type"] != "tool_result")
    _end_without_space(messages[-1])
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": MAX_TOKENS if request.max_tokens is None else request.max_tokens,
        "messages": messages,
        "stream": True,
    }
    if request.system.strip():
        body["system"] = request.system
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    cleaned: dict[str, Any] = sendable(body)
    return cleaned


def _tool(tool: ToolSpec) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": object_schema(tool.parameters)}


def _content(message: Message) -> list[dict[str, Any]]:
    match message:
        case UserMessage():
            return [block for part in message.parts if (block := _user_part(part))]
        case AssistantMessage():
            if message.provider == "anthropic" and message.raw and _has_its_calls(message):
                return [_own(block) for block in message.raw if not _is_unsendable(block)]
            return [block for part in message.parts if (block := _assistant_part(part))]
        case ToolMessage():
            blocks = [_result(result) for result in message.results]
            late = (media for result in message.results if result.is_error for media in result.media)
            return [*blocks, *map(_image, late)]
        case _:
            assert_never(message)


def _has_its_calls(message: AssistantMessage) -> bool:
    """Tell if the original blocks match the results: middleware can remove calls and add some."""
    made = [text_at(block, "id") for block in message.raw if block.get("type") == "tool_use"]
    return made == [call.id for call in message.calls]


def _own(block: Mapping[str, Any]) -> dict[str, Any]:
    if block.get("type") != "tool_use":
        return dict(block)
    return {**block, "name": wire_name(text_at(block, "name"))}


def _is_unsendable(block: Mapping[str, Any]) -> bool:
    """Tell if the API refuses a block that its model wrote: blank text, or thinking cut off before its
    signature."""
    if block.get("type") == "thinking":
        return not text_at(block, "signature")
    return block.get("type") == "text" and not text_at(block, "text").strip()


def _user_part(part: Text | Attachment) -> dict[str, Any] | None:
    if isinstance(part, Attachment):
        return _image(part)
    return _text(part.text) if part.text.strip() else None


def _assistant_part(part: Text | Thinking | ToolCall) -> dict[str, Any] | None:
    match part:
        case Text():
            return _text(part.text) if part.text.strip() else None
        case Thinking():
            return None
        case ToolCall():
            arguments = unreadable(part.arguments_text) if part.arguments is None else dict(part.arguments)
            return {"type": "tool_use", "id": _id(part.id), "name": wire_name(part.name), "input": arguments}
        case _:
            assert_never(part)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(media: Attachment) -> dict[str, Any]:
    source = {"type": "base64", "media_type": media.mime_type, "data": media.base64}
    return {"type": "image", "source": source}


def _result(result: ToolResult) -> dict[str, Any]:
    content = [_text(result.text)] if result.text.strip() else []
    if not result.is_error:
        content.extend(map(_image, result.media))
    return {
        "type": "tool_result",
        "tool_use_id": _id(result.call_id),
        "content": content or [_text("[the tool returned no content]")],
        "is_error": result.is_error,
    }


def _id(given: str) -> str:
    if _ID.fullmatch(given):
        return given
    return f"call_{hashlib.sha256(given.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _end_without_space(last: dict[str, Any]) -> None:
    """Strip the end of a partial reply: the API refuses one that ends in white space."""
    block = last["content"][-1]
    if last["role"] == "assistant" and block["type"] == "text":
        last["content"][-1] = {**block, "text": text_at(block, "text").rstrip()}
