"""Gemini's `generateContent`: a request in its wire shape, and its stream as pieces of a reply. Pure.

What the API insists on, and a neutral conversation doesn't:

* a reply's parts go back as they came, with their `thoughtSignature`; calls that another model made carry the
  API's own mark for "not signed", from Gemini 3 on, which refuses calls without either;
* the results of one reply stand in one content, as many as there were calls, and nothing else beside them;
* images of a result stand within it from Gemini 3 on; for older models, and for sound, a content of their own
  follows;
* a call needs no id. One without gets an id of ours, which never goes back.

Source: the types of google-genai 3.4, which is not used to speak: it runs under asyncio only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, assert_never

from playhead.agent.conversation import (
    AssistantMessage,
    Media,
    ModelRequest,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from playhead.agent.providers.gemini_schema import gemini_parameters
from playhead.agent.providers.gemini_stream import Decoder
from playhead.agent.providers.media import GEMINI, MediaPolicy, fit_media
from playhead.agent.providers.wire import mapping_at, sendable, text_at, wire_name
from playhead.errors import UsageError

__all__ = ["Decoder", "encode"]

_OLD: Final = re.compile(r"gemini-[12](?![0-9])")
"""Models before Gemini 3. Names without a number (`gemini-flash-latest`) are the newest."""
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_UNSIGNED: Final = "skip_thought_signature_validator"
"""What the API's documentation gives for calls that carry no signature of its own."""
_IN_RESULTS: Final = frozenset({"image/jpeg", "image/png", "image/webp"})
"""What `functionResponse.parts` takes, of what we send."""


def encode(request: ModelRequest, *, model: str, media: MediaPolicy = GEMINI) -> dict[str, Any]:
    """The body of `POST …/models/{model}:streamGenerateContent?alt=sse`; the model's name is in the URL.

    Raises:
        UsageError: the conversation holds nothing that could be sent (yours).
    """
    old = _OLD.search(model) is not None
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
                contents.extend(_results(message, wire_ids, old=old))
            case _:
                assert_never(message)
    contents = [content for content in contents if content["parts"]]
    if not contents:
        raise UsageError(
            "a model needs something to answer: expected a message with text or media, none came"
        )
    body: dict[str, Any] = {"contents": contents}
    if request.system.strip():
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in request.tools]}]
    settings = {"maxOutputTokens": request.max_tokens, "temperature": request.temperature}
    if given := {key: value for key, value in settings.items() if value is not None}:
        body["generationConfig"] = given
    cleaned: dict[str, Any] = sendable(body)
    return cleaned


def _declaration(tool: ToolSpec) -> dict[str, Any]:
    declared: dict[str, Any] = {"name": tool.name, "description": tool.description or tool.name}
    parameters = gemini_parameters(tool.parameters)
    if parameters is not None:
        declared["parametersJsonSchema"] = parameters
    return declared


def _user_part(part: Text | Media) -> dict[str, Any] | None:
    if isinstance(part, Media):
        return _inline(part)
    return {"text": part.text} if part.text else None


def _inline(media: Media) -> dict[str, Any]:
    return {"inlineData": {"mimeType": media.mime_type, "data": media.base64}}


def _model_parts(message: AssistantMessage, wire_ids: dict[str, str], *, old: bool) -> list[dict[str, Any]]:
    asked = [mapping_at(part, "functionCall") for part in message.raw if "functionCall" in part]
    # Where a middleware took calls away or added some, the parts as they came don't match the results.
    if message.provider == "gemini" and message.raw and len(asked) == len(message.calls):
        for call, made in zip(message.calls, asked, strict=True):
            if isinstance(made.get("id"), str):
                wire_ids[call.id] = made["id"]
            else:
                wire_ids.pop(call.id, None)
        return [_own(part) for part in message.raw]
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case Text():
                if part.text:
                    parts.append({"text": part.text})
            case Thinking():
                pass  # another model's, without a signature
            case ToolCall():
                wire_ids[part.id] = part.id
                made = {"id": part.id, "name": _name(part.name), "args": dict(part.arguments or {})}
                parts.append(
                    {"functionCall": made} if old else {"functionCall": made, "thoughtSignature": _UNSIGNED}
                )
            case _:
                assert_never(part)
    return parts


def _own(part: Mapping[str, Any]) -> dict[str, Any]:
    if "functionCall" not in part:
        return dict(part)
    made = mapping_at(part, "functionCall")
    return {**part, "functionCall": {**made, "name": _name(text_at(made, "name"))}}


def _name(name: str) -> str:
    """Dots and colons are allowed here, and in names that a model of Gemini's made up; the first character
    must be a letter or `_`."""
    if _NAME.fullmatch(name):
        return name
    taken = wire_name(name)
    return taken if taken[0].isalpha() or taken[0] == "_" else f"_{taken[:63]}"


def _results(message: ToolMessage, wire_ids: Mapping[str, str], *, old: bool) -> Iterator[dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    for result in message.results:
        within = [] if old else [media for media in result.media if media.mime_type in _IN_RESULTS]
        beside = [media for media in result.media if media not in within]
        answers.append(_response(replace(result, media=tuple(within)), wire_ids.get(result.call_id)))
        if beside:
            after.append({"text": f"[media of the result of {result.name}]"})
            after.extend(map(_inline, beside))
    yield {"role": "user", "parts": answers}
    # Beside the results they would make more parts than there were calls, which is refused.
    yield {"role": "user", "parts": after}


def _response(result: ToolResult, wire_id: str | None) -> dict[str, Any]:
    response: dict[str, Any] = {
        "name": _name(result.name),
        "response": {"error" if result.is_error else "output": result.text},
    }
    if wire_id is not None:
        response = {"id": wire_id, **response}
    if result.media:
        response["parts"] = [_inline(media) for media in result.media]
    return {"functionResponse": response}
