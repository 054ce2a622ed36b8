"""Google's Gemini over HTTP: the model, its requests, and the decoder of its streamed replies.

`encode` and the decoder are pure. The API has rules for requests that a neutral conversation does not have:

* The parts of Gemini's own reply go back with their `thoughtSignature`. From Gemini 3 on, the API refuses a
  call without one, so a call that another model made carries its marker for "not signed".
* The results of a reply's calls are in one content: one result for each call, and nothing else.
* From Gemini 3 on, the images of a result are inside it. Audio, and images for older models, follow in a
  separate content.
* A call needs no id. A call without one gets a generated id, which is never sent back.

Each event of a reply is a whole `GenerateContentResponse` with the next parts of the only candidate. Calls
arrive whole.

Source: the types of google-genai 3.4.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, assert_never
from urllib.parse import quote

import httpx2

from playhead.agent.conversation import (
    AssistantMessage,
    Attachment,
    CallReady,
    CallStarted,
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
from playhead.agent.models.attachments import JPEG, PNG, WEBP, MediaPolicy, fit_media
from playhead.agent.models.http_model import HttpModel
from playhead.agent.models.http_reply import ReplyDecoder
from playhead.agent.models.json_fields import (
    count_at,
    mapping_at,
    mappings_at,
    stream_error,
    text_at,
    tool_call,
    wire_name,
)
from playhead.agent.models.tool_schema import gemini_parameters
from playhead.content.audio import AudioFormat
from playhead.errors import ModelError, UsageError
from playhead.limits import MIB

__all__ = ["GeminiDecoder", "GeminiModel", "encode"]

_BEFORE_GEMINI_3: Final = re.compile(r"gemini-[12](?![0-9])")
"""Matches the models before Gemini 3. Names without a number (`gemini-flash-latest`) mean the newest."""
_VALID_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_UNSIGNED: Final = "skip_thought_signature_validator"
"""The API's documented marker for a call without a signature."""
_TYPES_IN_RESULTS: Final = frozenset({JPEG, PNG, WEBP})
"""The media types that `functionResponse.parts` accepts."""
GEMINI: Final = MediaPolicy(
    images=frozenset({JPEG, PNG, WEBP, "image/heic", "image/heif"}),
    audio=(
        (AudioFormat.WAV, "audio/wav"),
        (AudioFormat.MP3, "audio/mp3"),
        (AudioFormat.FLAC, "audio/flac"),
        (AudioFormat.VORBIS, "audio/ogg"),
        (AudioFormat.AAC, "audio/aac"),
        (AudioFormat.AIFF, "audio/aiff"),
    ),
    item_chars=14 * MIB,  # leaves room for text within the 20 MB of a request
    request_chars=16 * MIB,  # a request with inline data may have 20 MB; more needs uploading
    items=100,  # far below the API's 3,600 images; the size limit applies first
)


class GeminiModel(HttpModel):
    """A model behind Gemini's `streamGenerateContent`; its name is Google's, with or without `models/`."""

    _provider = "gemini"
    _default_url = "https://generativelanguage.googleapis.com/v1beta"
    _default_media = GEMINI
    _key_header = "x-goog-api-key"
    _key_prefix = ""

    def _request_url(self, base: httpx2.URL) -> httpx2.URL:
        name = quote(self._model if "/" in self._model else f"models/{self._model}")
        path = f"{base.path.rstrip('/')}/{name}:streamGenerateContent"
        return base.copy_with(path=path).copy_merge_params({"alt": "sse"})

    def _encode(self, request: ModelRequest) -> dict[str, Any]:
        return encode(request, model=self._model, media=self._media)

    def _decoder(self) -> GeminiDecoder:
        # Generated ids must be unique among all replies.
        return GeminiDecoder(call_prefix=f"call-{secrets.token_hex(8)}")


def encode(request: ModelRequest, *, model: str, media: MediaPolicy = GEMINI) -> dict[str, Any]:
    """Encode the body of `POST …/models/{model}:streamGenerateContent?alt=sse`; the model is in the URL.

    Raises:
        UsageError: the conversation holds nothing to send (yours).
    """
    # An old model accepts no images in results, and needs no signatures.
    old = _BEFORE_GEMINI_3.search(model) is not None
    contents: list[dict[str, Any]] = []
    wire_ids: dict[str, str] = {}
    for message in fit_media(request.messages, media):
        match message:
            case UserMessage():
                parts = [part for each in message.parts if (part := _user_part(each))]
                contents.append({"role": "user", "parts": parts})
            case AssistantMessage():
                contents.append({"role": "model", "parts": _model_parts(message, wire_ids, old=old)})
            case ToolMessage():
                contents.extend(_result_contents(message, wire_ids, old=old))
            case _:
                assert_never(message)
    contents = [content for content in contents if content["parts"]]
    if not contents:
        raise UsageError("messages: expected text or attachments to answer, got none")
    body: dict[str, Any] = {"contents": contents}
    if request.system.strip():
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in request.tools]}]
    settings = {"maxOutputTokens": request.max_tokens, "temperature": request.temperature}
    if config := {key: value for key, value in settings.items() if value is not None}:
        body["generationConfig"] = config
    return body


def _declaration(tool: ToolSpec) -> dict[str, Any]:
    declared: dict[str, Any] = {"name": tool.name, "description": tool.description or tool.name}
    parameters = gemini_parameters(tool.parameters)
    if parameters is not None:
        declared["parametersJsonSchema"] = parameters
    return declared


def _user_part(part: Text | Attachment) -> dict[str, Any] | None:
    if isinstance(part, Attachment):
        return _inline_data(part)
    return {"text": part.text} if part.text else None


def _inline_data(media: Attachment) -> dict[str, Any]:
    return {"inlineData": {"mimeType": media.mime_type, "data": media.base64}}


def _model_parts(message: AssistantMessage, wire_ids: dict[str, str], *, old: bool) -> list[dict[str, Any]]:
    raw_calls = [mapping_at(part, "functionCall") for part in message.raw if "functionCall" in part]
    # If middleware removed or added calls, the original parts don't match the results.
    if message.provider == "gemini" and message.raw and len(raw_calls) == len(message.calls):
        for call, made in zip(message.calls, raw_calls, strict=True):
            if isinstance(made.get("id"), str):
                wire_ids[call.id] = made["id"]
            else:
                wire_ids.pop(call.id, None)
        return [_with_valid_name(part) for part in message.raw]
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case Text():
                if part.text:
                    parts.append({"text": part.text})
            case Thinking():
                pass  # thinking of another model has no signature
            case ToolCall():
                wire_ids[part.id] = part.id
                made = {"id": part.id, "name": _valid_name(part.name), "args": dict(part.arguments or {})}
                parts.append(
                    {"functionCall": made} if old else {"functionCall": made, "thoughtSignature": _UNSIGNED}
                )
            case _:
                assert_never(part)
    return parts


def _with_valid_name(part: Mapping[str, Any]) -> dict[str, Any]:
    if "functionCall" not in part:
        return dict(part)
    made = mapping_at(part, "functionCall")
    return {**part, "functionCall": {**made, "name": _valid_name(text_at(made, "name"))}}


def _valid_name(name: str) -> str:
    """Return a valid function name: Gemini allows dots and colons, and first only a letter or `_`."""
    if _VALID_NAME.fullmatch(name):
        return name
    cleaned = wire_name(name)
    return cleaned if cleaned[0].isalpha() or cleaned[0] == "_" else f"_{cleaned[:63]}"


def _result_contents(
    message: ToolMessage, wire_ids: Mapping[str, str], *, old: bool
) -> Iterator[dict[str, Any]]:
    responses: list[dict[str, Any]] = []
    media_parts: list[dict[str, Any]] = []
    for result in message.results:
        inside = [] if old else [media for media in result.media if media.mime_type in _TYPES_IN_RESULTS]
        outside = [media for media in result.media if media not in inside]
        responses.append(
            _function_response(replace(result, media=tuple(inside)), wire_ids.get(result.call_id))
        )
        if outside:
            media_parts.append({"text": f"[media of the result of {result.name}]"})
            media_parts.extend(map(_inline_data, outside))
    yield {"role": "user", "parts": responses}
    # The API refuses a content with more parts than there were calls, so media need a separate one.
    yield {"role": "user", "parts": media_parts}


def _function_response(result: ToolResult, wire_id: str | None) -> dict[str, Any]:
    response: dict[str, Any] = {
        "name": _valid_name(result.name),
        "response": {"error" if result.is_error else "output": result.text},
    }
    if wire_id is not None:
        response = {"id": wire_id, **response}
    if result.media:
        response["parts"] = [_inline_data(media) for media in result.media]
    return {"functionResponse": response}


# --- the reply ----------------------------------------------------------------------------------------------


_STOP_REASONS: Final[Mapping[str, StopReason]] = {
    "STOP": "end",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "ESCALATION",
            "PUP_LIMITED_DISABLED",
            "MODEL_ARMOR",
        ),
        "refused",
    ),
}
"""Translates `finishReason`. Any other value (`MALFORMED_FUNCTION_CALL`, …) becomes `other`, and
`ReplyEnd.reason` names it."""


class GeminiDecoder(ReplyDecoder):
    """Decodes the events of one reply. `complete` stays False, because token counts may follow the last part.

    Ids generated for calls begin with `call_prefix`. For unique ids in a conversation, give each reply its
    own prefix.
    """

    def __init__(self, *, call_prefix: str = "call") -> None:
        self._call_prefix = call_prefix
        self._parts: list[dict[str, Any]] = []
        self._texts: list[str] = []
        """The pieces of the last part's text, joined once the part ends."""
        self._calls: dict[int, ToolCall] = {}
        """Maps the index of a part to its call."""
        self._stop = ""
        self._reason = ""
        self._usage: Mapping[str, Any] = {}

    def feed(self, event: Mapping[str, Any]) -> list[ReplyPiece]:
        if "error" in event:
            raise stream_error(event["error"], provider="gemini")
        self._usage = mapping_at(event, "usageMetadata") or self._usage
        if blocked := text_at(mapping_at(event, "promptFeedback"), "blockReason"):
            self._stop, self._reason = "SAFETY", f"the prompt was blocked: {blocked}"
        candidate = next(iter(mappings_at(event, "candidates")), {})
        pieces = [
            piece
            for part in mappings_at(mapping_at(candidate, "content"), "parts")
            for piece in self._add_part(part)
        ]
        if stop := text_at(candidate, "finishReason"):
            message = text_at(candidate, "finishMessage")
            self._stop = stop
            self._reason = "" if stop == "STOP" else f"{stop}: {message}" if message else stop
        self.ended = bool(self._stop)
        return pieces

    def finish(self) -> list[ReplyPiece]:
        if not self._stop:
            raise ModelError(
                "the reply of gemini ended without a reason: expected a finishReason",
                provider="gemini",
            )
        self._end_text()
        message = AssistantMessage(
            parts=tuple(part for index in range(len(self._parts)) if (part := self._neutral_part(index))),
            provider="gemini",
            raw=tuple(self._parts),
        )
        stop = _STOP_REASONS.get(self._stop, "other")
        if stop == "end" and self._calls:
            stop = "calls"
        return [ReplyEnd(message=message, stop=stop, usage=self._total_usage(), reason=self._reason)]

    def _add_part(self, part: Mapping[str, Any]) -> Iterator[ReplyPiece]:
        if "functionCall" in part:
            made = mapping_at(part, "functionCall")
            arguments = {} if made.get("args") is None else made["args"]  # omitted, or null
            text = json.dumps(arguments, ensure_ascii=False)
            call_id = text_at(made, "id") or f"{self._call_prefix}-{len(self._calls) + 1}"
            call = tool_call(call_id, text_at(made, "name"), text)
            # The API accepts only objects as arguments, even if its model wrote something else.
            self._store_part(
                part if call.arguments is not None else {**part, "functionCall": {**made, "args": {}}}
            )
            self._calls[len(self._parts) - 1] = call
            yield CallStarted(id=call.id, name=call.name)
            yield CallReady(call=call)
            return
        self._store_part(part)
        if text := text_at(part, "text"):
            yield ThinkingPiece(text=text) if part.get("thought") is True else TextPiece(text=text)

    def _store_part(self, part: Mapping[str, Any]) -> None:
        """Store a part, or add its text to the part before it, because otherwise each word would be a part.

        Text is added to text, and thinking to thinking. A part with a signature has a further key, and stays
        separate: the signature is for that part only.
        """
        if part == {"text": ""}:
            return  # the API refuses such a part in a request
        last = self._parts[-1] if self._parts else {}
        is_text_alone = isinstance(part.get("text"), str) and set(part) <= {"text", "thought"}
        is_of_last_kind = set(last) == set(part) and last.get("thought") == part.get("thought")
        if is_text_alone and is_of_last_kind:
            self._texts.append(part["text"])
            return
        self._end_text()
        self._parts.append(dict(part))
        self._texts = [text_at(part, "text")]

    def _end_text(self) -> None:
        if len(self._texts) > 1:
            self._parts[-1]["text"] = "".join(self._texts)
        self._texts = []

    def _neutral_part(self, index: int) -> Text | Thinking | ToolCall | None:
        if index in self._calls:
            return self._calls[index]
        part = self._parts[index]
        if not (text := text_at(part, "text")):
            return None
        return Thinking(text=text) if part.get("thought") is True else Text(text=text)

    def _total_usage(self) -> TokenUsage:
        return TokenUsage(
            input_tokens=self._sum_of_counts("promptTokenCount", "toolUsePromptTokenCount"),
            output_tokens=self._sum_of_counts("candidatesTokenCount", "thoughtsTokenCount"),
        )

    def _sum_of_counts(self, *keys: str) -> int | None:
        counts = [count for key in keys if (count := count_at(self._usage, key)) is not None]
        return sum(counts) if counts else None
