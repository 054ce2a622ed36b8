"""Chat Completions: OpenAI's own models and compatible servers. `openai_chat_stream` reads the reply.

`encode` is pure and follows OpenAI's own API. It also does what some compatible servers require, and OpenAI
accepts:

* a tool's `parameters` is an object with `properties`, whatever the MCP server wrote (`tool_schema`);
* an assistant message without text has `content: null`;
* arguments that aren't JSON are wrapped in an object, because servers that fill a chat template parse them.

Source: the OpenAPI description behind the `openai` package (types/chat/completion_create_params.py).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, assert_never

from playhead.agent.conversation import (
    AssistantMessage,
    Attachment,
    Message,
    ModelRequest,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from playhead.agent.models.attachments import GIF, JPEG, PNG, WEBP, MediaPolicy, fit_media
from playhead.agent.models.http_model import (
    MAX_RETRIES,
    NO_FIELDS,
    TIMEOUT_SECONDS,
    HttpModel,
    checked_key,
)
from playhead.agent.models.json_fields import wire_name
from playhead.agent.models.openai_chat_stream import ChatDecoder
from playhead.agent.models.tool_schema import object_schema
from playhead.content.audio import AudioFormat
from playhead.limits import DEFAULT_LIMITS, MIB, Limits

__all__ = [
    "ChatDecoder",
    "CompatibleModel",
    "OpenAIChatModel",
    "arguments_text",
    "audio",
    "encode",
    "result_text",
]

OPENAI_URL: Final = "https://api.openai.com/v1"

MaxTokensField = Literal["max_completion_tokens", "max_tokens"]

_AUDIO_FORMATS: Final = {"audio/mpeg": "mp3"}
"""The names of formats in `input_audio` that differ from the second half of the MIME type."""
OPENAI: Final = MediaPolicy(
    images=frozenset({JPEG, PNG, GIF, WEBP}),
    audio=((AudioFormat.WAV, "audio/wav"), (AudioFormat.MP3, "audio/mpeg")),
    item_chars=20 * MIB,  # the documented limit of one image; also what most compatible servers allow
    request_chars=40 * MIB,  # of the 50 MB allowed for all images of a request
    items=100,  # 500 are allowed; compatible servers allow far fewer
)


class OpenAIChatModel(HttpModel):
    """A model behind OpenAI's Chat Completions."""

    _provider = "openai"
    _default_url = OPENAI_URL
    _path = "/chat/completions"
    _default_media = OPENAI
    _max_tokens_field: MaxTokensField = "max_completion_tokens"

    def _encode(self, request: ModelRequest) -> dict[str, Any]:
        return encode(request, model=self._model, max_tokens_field=self._max_tokens_field, media=self._media)

    def _decoder(self) -> ChatDecoder:
        return ChatDecoder(seed=secrets.token_hex(8))


class CompatibleModel(OpenAIChatModel):
    """A model behind any server that speaks Chat Completions.

    Ollama, vLLM, llama.cpp, LM Studio, OpenRouter, Groq, Mistral, DeepSeek and others.
    """

    _default_url = "http://localhost:11434/v1"
    _needs_key = False

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        headers: Mapping[str, str] = NO_FIELDS,
        extra_body: Mapping[str, Any] = NO_FIELDS,
        max_tokens_field: MaxTokensField = "max_tokens",
        media: MediaPolicy | None = None,
        max_retries: int = MAX_RETRIES,
        timeout_seconds: float = TIMEOUT_SECONDS,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """
        Args (`HttpModel` describes the others):
            base_url: the part before `/chat/completions`: `http://localhost:11434/v1`.
            api_key: None sends no key, as for a local server.
            extra_body: `{"stream_options": None}` for a server that refuses this field.
            max_tokens_field: the server's name for the longest reply. The default is the old name, which all
                servers but OpenAI know.
            media: `TEXT_ONLY` for a model that neither sees nor hears.

        Raises `UsageError` if `base_url` is not an http(s) URL, or `api_key` can't be sent in a header.
        """
        if api_key is not None:
            checked_key(api_key, provider=f"the model {model}")
        super().__init__(
            model,
            api_key=api_key or "",
            base_url=base_url,
            headers=headers,
            extra_body=extra_body,
            media=media,
            max_retries=max_retries,
            timeout_seconds=timeout_seconds,
            limits=limits,
        )
        self._max_tokens_field = max_tokens_field

    def __repr__(self) -> str:
        return f"CompatibleModel({self._model!r}, base_url={self._url.host!r})"


def encode(
    request: ModelRequest,
    *,
    model: str,
    max_tokens_field: MaxTokensField = "max_completion_tokens",
    media: MediaPolicy = OPENAI,
) -> dict[str, Any]:
    """Encode the body of `POST /chat/completions`, with `stream` on.

    Args:
        max_tokens_field: the name for `request.max_tokens`. OpenAI's reasoning models refuse the old one
            (`max_tokens`); many compatible servers know no other.
        media: images and audio to send natively; a line of text replaces the others.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            *_system_message(request.system),
            *_encoded_messages(fit_media(request.messages, media)),
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_encoded_tool(spec) for spec in request.tools]
    if request.max_tokens is not None:
        body[max_tokens_field] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    return body


def result_text(result: ToolResult) -> str:
    """Return a result's text for a wire format that has no error flag and no empty content."""
    text = result.text or ("(no text content; media follow)" if result.media else "(no content)")
    return f"Error: {text}" if result.is_error and not text.lower().startswith("error") else text


def audio(media: Attachment) -> dict[str, Any]:
    kind = _AUDIO_FORMATS.get(media.mime_type) or media.mime_type.partition("/")[2]
    return {"type": "input_audio", "input_audio": {"data": media.base64, "format": kind}}


def _system_message(text: str) -> Iterator[dict[str, Any]]:
    # Not `developer`: OpenAI converts `system` for models that need it, and other servers know only `system`.
    if text:
        yield {"role": "system", "content": text}


def _encoded_messages(messages: tuple[Message, ...]) -> Iterator[dict[str, Any]]:
    for message in messages:
        match message:
            case UserMessage():
                yield {"role": "user", "content": _content(message.parts)}
            case AssistantMessage():
                yield _assistant_message(message)
            case ToolMessage():
                yield from _result_messages(message)
            case _:
                assert_never(message)


def _encoded_tool(spec: ToolSpec) -> dict[str, Any]:
    # `strict` is not sent, because it would make every optional argument required.
    function: dict[str, Any] = {"name": spec.name, "parameters": object_schema(spec.parameters)}
    if spec.description:
        function["description"] = spec.description
    return {"type": "function", "function": function}


def _content(parts: tuple[Text | Attachment, ...]) -> str | list[dict[str, Any]]:
    # The content is a plain string if possible, because not every server reads lists.
    if all(isinstance(part, Text) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    return [_content_part(part) for part in parts]


def _content_part(part: Text | Attachment) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if part.kind == "image":
        url = f"data:{part.mime_type};base64,{part.base64}"
        return {"type": "image_url", "image_url": {"url": url}}
    return audio(part)


def _assistant_message(message: AssistantMessage) -> dict[str, Any]:
    calls = message.calls
    encoded: dict[str, Any] = {"role": "assistant", "content": message.text or (None if calls else "")}
    if not calls:
        return encoded
    raw = message.raw[0] if message.provider == "openai" and message.raw else {}
    extras = raw.get("tool_calls", {})
    encoded["tool_calls"] = [{**extras.get(call.id, {}), **_encoded_call(call)} for call in calls]
    # Models that think between calls need the thoughts of messages with calls back, and of no others.
    encoded.update({name: value for name, value in raw.items() if name != "tool_calls"})
    return encoded


def arguments_text(call: ToolCall) -> str:
    """Return a call's arguments as the JSON object that the wire format requires."""
    if call.arguments is None:
        return json.dumps({"unreadable": call.arguments_text})
    return call.arguments_text if call.arguments_text.strip() else "{}"


def _encoded_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": wire_name(call.name), "arguments": arguments_text(call)}
    return {"id": call.id, "type": "function", "function": function}


def _result_messages(message: ToolMessage) -> Iterator[dict[str, Any]]:
    for result in message.results:
        yield {"role": "tool", "tool_call_id": result.call_id, "content": result_text(result)}
    # A tool message holds only text, and all tool messages directly follow the calls. So media follow the
    # last.
    parts: list[Text | Attachment] = []
    for result in message.results:
        if result.media:
            parts.append(Text(text=f"From the result of {result.name} ({result.call_id}):"))
            parts.extend(result.media)
    if parts:
        yield {"role": "user", "content": _content(tuple(parts))}
