"""Anthropic's Messages API: the model, its requests, and the decoder of its streamed replies.

`encode` is pure, and so is the decoder. The API has rules for requests that a neutral conversation doesn't
have:

* user and assistant alternate, so adjacent messages of one role become one message;
* no content and no text block is empty or blank;
* the results of one reply's calls are in one user message, before anything else in it;
* the result of an error holds only text, so its images follow the results;
* thinking goes back unchanged, with its signature; another provider's thinking can't be sent;
* call ids match `[a-zA-Z0-9_-]+`, including the ids that another provider made.

A request without `tools` may contain calls and results, as for the last answer of a turn whose budget is used
up. The API has accepted that since 27 February 2025 (release notes; issue 849 of anthropic-sdk-python).

`encode` never sends `temperature`, because the API's types no longer have it and newer models refuse it.

A reply is a list of content blocks. Events start the block with an index, extend it by deltas, and stop it.
The decoder stores the blocks unchanged for the next request.

Source: the `Message…` and `Raw…Event` types of the official SDK, 2.12.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, assert_never

from playhead.agent.conversation import (
    AssistantMessage,
    Attachment,
    CallReady,
    CallStarted,
    Message,
    ModelRequest,
    ReplyEnd,
    ReplyPiece,
    StopReason,
    Text,
    TextPiece,
    Thinking,
    ThinkingPiece,
    TokenUsage,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from playhead.agent.models.attachments import GIF, JPEG, PNG, WEBP, MediaPolicy, fit_media
from playhead.agent.models.http_model import HttpModel
from playhead.agent.models.http_reply import ReplyDecoder
from playhead.agent.models.json_fields import (
    UNNAMED,
    count_at,
    mapping_at,
    parse_arguments,
    stream_error,
    text_at,
    tool_call,
    wire_name,
)
from playhead.agent.models.tool_schema import object_schema
from playhead.errors import ModelError, UsageError
from playhead.limits import MIB

__all__ = ["MAX_TOKENS", "AnthropicDecoder", "AnthropicModel", "encode"]

MAX_TOKENS: Final = 8192
"""The default of `max_tokens`. The API requires a number, and every model since 3.5 supports this one."""

API_VERSION: Final = "2026-10-21"
"""The version of the API. The official SDK 2.12, whose types the codec follows, requests the same one."""

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
ANTHROPIC: Final = MediaPolicy(
    images=frozenset({JPEG, PNG, GIF, WEBP}),
    item_chars=5 * MIB,  # the API counts the base64 and refuses more
    request_chars=24 * MIB,  # of the 32 MB allowed for a request: the rest is for text
    items=100,  # the limit of the models with the smallest window
)


class AnthropicModel(HttpModel):
    """A model behind Anthropic's Messages API."""

    _provider = "anthropic"
    _default_url = "https://api.anthropic.com"
    _path = "/v1/messages"
    _default_media = ANTHROPIC
    _fixed_headers: ClassVar = {"anthropic-version": API_VERSION}

    def _encode(self, request: ModelRequest) -> dict[str, Any]:
        return encode(request, model=self._model, media=self._media)

    def _decoder(self) -> AnthropicDecoder:
        return AnthropicDecoder()


def encode(request: ModelRequest, *, model: str, media: MediaPolicy = ANTHROPIC) -> dict[str, Any]:
    """Encode the body of `POST /v1/messages`, streaming.

    Raises:
        UsageError: the conversation holds nothing to send (yours).
    """
    messages: list[dict[str, Any]] = []
    for message in fit_media(request.messages, media):
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        content = _content_blocks(message)
        if not content:
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(content)
        else:
            messages.append({"role": role, "content": content})
    if not messages:
        raise UsageError("messages: expected text or attachments to answer, got none")
    for each in messages:
        each["content"].sort(key=lambda block: 0 if block["type"] == "tool_result" else 1)
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
        body["tools"] = [_encoded_tool(tool) for tool in request.tools]
    return body


def _encoded_tool(tool: ToolSpec) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": object_schema(tool.parameters)}


def _content_blocks(message: Message) -> list[dict[str, Any]]:
    match message:
        case UserMessage():
            return [block for part in message.parts if (block := _user_block(part))]
        case AssistantMessage():
            if message.provider == "anthropic" and message.raw and _has_original_calls(message):
                return [_with_valid_name(block) for block in message.raw if not _is_unsendable(block)]
            return [block for part in message.parts if (block := _assistant_block(part))]
        case ToolMessage():
            blocks = [_result_block(result) for result in message.results]
            images = (media for result in message.results if result.is_error for media in result.media)
            return [*blocks, *map(_image_block, images)]
        case _:
            assert_never(message)


def _has_original_calls(message: AssistantMessage) -> bool:
    """Return True unless middleware has removed calls of the original blocks, or added some."""
    original_ids = [text_at(block, "id") for block in message.raw if block.get("type") == "tool_use"]
    return original_ids == [call.id for call in message.calls]


def _with_valid_name(block: Mapping[str, Any]) -> dict[str, Any]:
    if block.get("type") != "tool_use":
        return dict(block)
    return {**block, "name": wire_name(text_at(block, "name"))}


def _is_unsendable(block: Mapping[str, Any]) -> bool:
    """Return True for blocks that the API refuses: blank text, and thinking cut off before its signature."""
    if block.get("type") == "thinking":
        return not text_at(block, "signature")
    return block.get("type") == "text" and not text_at(block, "text").strip()


def _user_block(part: Text | Attachment) -> dict[str, Any] | None:
    if isinstance(part, Attachment):
        return _image_block(part)
    return _text_block(part.text) if part.text.strip() else None


def _assistant_block(part: Text | Thinking | ToolCall) -> dict[str, Any] | None:
    match part:
        case Text():
            return _text_block(part.text) if part.text.strip() else None
        case Thinking():
            return None
        case ToolCall():
            arguments = unreadable(part.arguments_text) if part.arguments is None else dict(part.arguments)
            return {
                "type": "tool_use",
                "id": _valid_id(part.id),
                "name": wire_name(part.name),
                "input": arguments,
            }
        case _:
            assert_never(part)


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image_block(media: Attachment) -> dict[str, Any]:
    source = {"type": "base64", "media_type": media.mime_type, "data": media.base64}
    return {"type": "image", "source": source}


def _result_block(result: ToolResult) -> dict[str, Any]:
    content = [_text_block(result.text)] if result.text.strip() else []
    if not result.is_error:
        content.extend(map(_image_block, result.media))
    return {
        "type": "tool_result",
        "tool_use_id": _valid_id(result.call_id),
        "content": content or [_text_block("[the tool returned no content]")],
        "is_error": result.is_error,
    }


def _valid_id(call_id: str) -> str:
    if _ID.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _end_without_space(last: dict[str, Any]) -> None:
    """Strip the end of a partial reply, because the API refuses one that ends in white space."""
    block = last["content"][-1]
    if last["role"] == "assistant" and block["type"] == "text":
        last["content"][-1] = {**block, "text": text_at(block, "text").rstrip()}


# --- the reply ----------------------------------------------------------------------------------------------


_STOP_REASONS: Final[Mapping[str, StopReason]] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
    # Only a server's own long-running tools pause a turn, and `encode` offers none of these.
    "pause_turn": "other",
}


def unreadable(text: str) -> dict[str, Any]:
    """Wrap arguments that aren't an object, as the API's documentation suggests, because it accepts only
    objects."""
    return {"INVALID_JSON": text}


@dataclass(slots=True)
class _ContentBlock:
    """One content block while it streams. `stop` joins its deltas."""

    start: Mapping[str, Any]
    text: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    signature: list[str] = field(default_factory=list)
    json: list[str] = field(default_factory=list)
    citations: list[Any] = field(default_factory=list)
    raw: dict[str, Any] | None = None
    """The whole block, once it has stopped."""
    call: ToolCall | None = None

    @property
    def type(self) -> str:
        return text_at(self.start, "type")

    def stop(self) -> None:
        raw = dict(self.start)
        for key, deltas in (("text", self.text), ("thinking", self.thinking), ("signature", self.signature)):
            if deltas:
                raw[key] = text_at(self.start, key) + "".join(deltas)
        if self.citations:
            raw["citations"] = [*(self.start.get("citations") or ()), *self.citations]
        if self.json or self.type == "tool_use":
            raw["input"] = self._arguments()
        self.raw = raw

    def _arguments(self) -> Any:
        text = "".join(self.json)
        if not text.strip():
            text = json.dumps(mapping_at(self.start, "input"), ensure_ascii=False)
        if self.type == "tool_use":
            self.call = tool_call(text_at(self.start, "id"), text_at(self.start, "name"), text)
        arguments, _ = parse_arguments(text)
        return unreadable(text) if arguments is None else arguments


class AnthropicDecoder(ReplyDecoder):
    """Decodes the events of one reply. Ignores unknown events and deltas, as the API requires."""

    def __init__(self) -> None:
        self._blocks: dict[int, _ContentBlock] = {}
        self._usage: dict[str, int] = {}
        self._stop = ""
        self._reason = ""

    def feed(self, event: Mapping[str, Any]) -> list[ReplyPiece]:
        match event.get("type"):
            case "message_start":
                self._count_tokens(mapping_at(mapping_at(event, "message"), "usage"))
            case "content_block_start":
                return list(self._on_block_start(event))
            case "content_block_delta":
                return list(self._on_block_delta(event))
            case "content_block_stop":
                return list(self._on_block_stop(event))
            case "message_delta":
                delta = mapping_at(event, "delta")
                self._stop = text_at(delta, "stop_reason") or self._stop
                self.ended = bool(self._stop)
                self._reason = text_at(mapping_at(delta, "stop_details"), "explanation") or self._reason
                self._count_tokens(mapping_at(event, "usage"))
            case "error":
                raise stream_error(event.get("error"), provider="anthropic")
            case "message_stop":
                self.complete = True
            case _:
                pass  # a ping, or an addition of a later version
        return []

    def finish(self) -> list[ReplyPiece]:
        unfinished = [index for index, block in self._blocks.items() if block.raw is None]
        if unfinished or not self._stop:
            where = f"in block {unfinished[0]}" if unfinished else "without a stop reason"
            raise ModelError(
                f"the reply of anthropic ended {where}: expected content_block_stop and message_delta",
                provider="anthropic",
            )
        blocks = [block for _, block in sorted(self._blocks.items())]
        message = AssistantMessage(
            parts=tuple(part for block in blocks if (part := _neutral_part(block))),
            provider="anthropic",
            raw=tuple(block.raw for block in blocks if block.raw is not None),
        )
        reason = self._reason or ("" if self._stop in ("end_turn", "tool_use") else self._stop)
        stop = _STOP_REASONS.get(self._stop, "other")
        return [ReplyEnd(message=message, stop=stop, usage=self._total_usage(), reason=reason)]

    def _on_block_start(self, event: Mapping[str, Any]) -> Iterator[ReplyPiece]:
        index = _index(event)
        if index in self._blocks:
            raise ModelError(f"anthropic started block {index} twice in one reply", provider="anthropic")
        block = self._blocks[index] = _ContentBlock(start=mapping_at(event, "content_block"))
        if block.type == "tool_use":
            yield CallStarted(id=text_at(block.start, "id"), name=text_at(block.start, "name") or UNNAMED)
        elif block.type == "text" and (text := text_at(block.start, "text")):
            yield TextPiece(text=text)
        elif block.type == "thinking" and (text := text_at(block.start, "thinking")):
            yield ThinkingPiece(text=text)

    def _on_block_delta(self, event: Mapping[str, Any]) -> Iterator[ReplyPiece]:
        block, delta = self._open_block(event), mapping_at(event, "delta")
        match delta.get("type"):
            case "text_delta":
                if text := text_at(delta, "text"):
                    block.text.append(text)
                    yield TextPiece(text=text)
            case "thinking_delta":
                if text := text_at(delta, "thinking"):
                    block.thinking.append(text)
                    yield ThinkingPiece(text=text)
            case "signature_delta":
                block.signature.append(text_at(delta, "signature"))
            case "input_json_delta":
                block.json.append(text_at(delta, "partial_json"))
            case "citations_delta":
                block.citations.append(delta.get("citation"))
            case _:
                pass

    def _on_block_stop(self, event: Mapping[str, Any]) -> Iterator[ReplyPiece]:
        block = self._open_block(event)
        block.stop()
        if block.call is not None:
            yield CallReady(call=block.call)

    def _open_block(self, event: Mapping[str, Any]) -> _ContentBlock:
        index = _index(event)
        block = self._blocks.get(index)
        if block is None or block.raw is not None:
            raise ModelError(
                f"anthropic sent {event.get('type')} for block {index}, which is not open",
                provider="anthropic",
            )
        return block

    def _count_tokens(self, usage: Mapping[str, Any]) -> None:
        for key in (
            "input_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
            "output_tokens",
        ):
            # Counts are cumulative, and an event may omit those of an earlier event.
            if (count := count_at(usage, key)) is not None:
                self._usage[key] = count

    def _total_usage(self) -> TokenUsage:
        counts = dict(self._usage)
        output = counts.pop("output_tokens", None)
        return TokenUsage(input_tokens=sum(counts.values()) if counts else None, output_tokens=output)


def _index(event: Mapping[str, Any]) -> int:
    index = count_at(event, "index")
    if index is None:
        raise ModelError(f"anthropic sent {event.get('type')} without a block index", provider="anthropic")
    return index


def _neutral_part(block: _ContentBlock) -> Text | Thinking | ToolCall | None:
    raw = block.raw or {}
    if block.type == "text" and text_at(raw, "text"):
        return Text(text=text_at(raw, "text"))
    if block.type == "thinking" and text_at(raw, "thinking"):
        return Thinking(text=text_at(raw, "thinking"))
    return block.call
