"""OpenAI's Responses: the model, its requests, and the decoder of its streamed replies.

`encode` is pure, and so is the decoder. OpenAI stores nothing (`store` is false), so each request holds the
whole conversation. The items of an earlier reply go back unchanged, with the reasoning in encrypted form.
`encode` omits a reasoning item with neither encrypted nor open content, because the API would look for it in
its store, and refuse the request.

A reply is a list of output items (reasoning, messages, calls), identified by their `output_index`. A call is
ready at the `done` event of its arguments or of its item, whichever is first. The decoder stores the items
unchanged for the next request.

Source: the OpenAPI description behind the `openai` package (types/responses/response_create_params.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, assert_never

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
    UserMessage,
)
from playhead.agent.models.attachments import MediaPolicy, fit_media
from playhead.agent.models.http_model import HttpModel
from playhead.agent.models.http_reply import ReplyDecoder
from playhead.agent.models.json_fields import (
    UNNAMED,
    count_at,
    mapping_at,
    stream_error,
    text_at,
    tool_call,
    wire_name,
)
from playhead.agent.models.openai_chat import OPENAI, OPENAI_URL, arguments_text, audio, result_text
from playhead.agent.models.tool_schema import object_schema
from playhead.errors import ModelError
from playhead.escaping import shortened

__all__ = ["OpenAIResponsesModel", "ResponsesDecoder", "encode", "reasons"]

_NOT_REASONING: Final = ("gpt-3", "gpt-4", "chatgpt-4")
"""The prefixes of the names of models that don't reason."""
OPENAI_RESPONSES: Final = replace(OPENAI, audio=())  # its input has no audio


class OpenAIResponsesModel(HttpModel):
    """A model behind OpenAI's Responses. OpenAI stores nothing: each request holds the whole conversation."""

    _provider = "openai-responses"
    _default_url = OPENAI_URL
    _path = "/responses"
    _default_media = OPENAI_RESPONSES

    def _encode(self, request: ModelRequest) -> dict[str, Any]:
        return encode(request, model=self._model, media=self._media)

    def _decoder(self) -> ResponsesDecoder:
        return ResponsesDecoder()


def reasons(model: str) -> bool:
    """Return True if an OpenAI model reasons, by its name. A model that doesn't refuses encrypted
    reasoning."""
    return not model.removeprefix("ft:").startswith(_NOT_REASONING)


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
        media: images to send natively; a line of text replaces the others. This API takes no audio.
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
                # The API's default is strict, which makes every optional argument required.
                "strict": False,
            }
            for spec in request.tools
        ]
    if request.max_tokens is not None:
        body["max_output_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    return body


def _items(message: Message) -> Iterator[dict[str, Any]]:
    match message:
        case UserMessage():
            yield {
                "type": "message",
                "role": "user",
                "content": [_content_part(part) for part in message.parts],
            }
        case AssistantMessage():
            yield from (
                _original_items(message) if message.provider == "openai-responses" else _new_items(message)
            )
        case ToolMessage():
            for result in message.results:
                yield {
                    "type": "function_call_output",
                    "call_id": result.call_id,
                    "output": _result_output(result),
                }
        case _:
            assert_never(message)


def _original_items(message: AssistantMessage) -> Iterator[dict[str, Any]]:
    """Yield the reply's own items unchanged, without calls that are no longer in the message."""
    if not message.raw:
        yield from _new_items(message)
        return
    wanted = {call.id for call in message.calls}
    items = [
        item for item in message.raw if item.get("type") != "function_call" or item.get("call_id") in wanted
    ]
    sent = {item.get("call_id") for item in items}
    while items and items[-1].get("type") == "reasoning":
        # The reply ended after this item. The API refuses reasoning "without its required following item".
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
    # Calls that middleware added have results, too.
    yield from (_encoded_call(call) for call in message.calls if call.id not in sent)


def _new_items(message: AssistantMessage) -> Iterator[dict[str, Any]]:
    """Yield items for a reply of another provider, or of a script."""
    if message.text:
        yield {"type": "message", "role": "assistant", "content": message.text}
    yield from map(_encoded_call, message.calls)


def _encoded_call(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": wire_name(call.name),
        "arguments": arguments_text(call),
    }


def _content_part(part: Text | Attachment) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if part.kind == "image":
        url = f"data:{part.mime_type};base64,{part.base64}"
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return audio(part)


def _result_output(result: ToolResult) -> str | list[dict[str, Any]]:
    text = result_text(result)
    if not result.media:
        return text
    return [{"type": "input_text", "text": text}, *(_content_part(media) for media in result.media)]


def _without_nulls(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _clean_value(value) for name, value in item.items() if value is not None}


def _clean_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _without_nulls(value)
    return [_clean_value(item) for item in value] if isinstance(value, list) else value


# --- the reply ----------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _OutputItem:
    """One output item so far."""

    written: list[str] = field(default_factory=list)
    """The deltas of a message's text, of thoughts, or of a call's arguments."""
    kind: type[Text | Thinking | ToolCall] | None = None
    call_id: str = ""
    name: str = ""
    ready: ToolCall | None = None
    raw: Mapping[str, Any] | None = None


class ResponsesDecoder(ReplyDecoder):
    """Decodes the events of one reply."""

    def __init__(self) -> None:
        self._items: dict[int, _OutputItem] = {}
        self._refusal: list[str] = []
        self._last_response: Mapping[str, Any] | None = None
        """The response object of the event that ended it."""

    def feed(self, event: Mapping[str, Any]) -> list[ReplyPiece]:
        match event.get("type"):
            case "response.output_item.added":
                return self._add_item(_field(event, "output_index", int), _field(event, "item", dict))
            case "response.output_item.done":
                return self._end_item(_field(event, "output_index", int), _field(event, "item", dict))
            case "response.function_call_arguments.delta":
                self._item_of(event).written.append(_field(event, "delta", str))
            case "response.function_call_arguments.done":
                return self._end_call(self._item_of(event), _field(event, "arguments", str))
            case "response.output_text.delta":
                return self._add_text(event, Text)
            case "response.refusal.delta":
                self._refusal.append(_field(event, "delta", str))
                return self._add_text(event, Text)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return self._add_text(event, Thinking)
            case "response.reasoning_summary_part.added" if self._item_of(event).written:
                return self._add_text({**event, "delta": "\n\n"}, Thinking)
            case "response.completed" | "response.incomplete":
                return self._end_response(_field(event, "response", dict))
            case "response.failed":
                raise stream_error(_field(event, "response", dict).get("error"), provider="openai-responses")
            case "error":
                raise stream_error(event.get("error") or event, provider="openai-responses")
            case None if event.get("error"):
                raise stream_error(event["error"], provider="openai-responses")
            case _:
                pass
        return []

    def finish(self) -> list[ReplyPiece]:
        """Return the last piece. Raises `ModelError` if the response has not ended."""
        if self._last_response is None:
            raise ModelError(
                "openai ended its stream without ending the reply: expected response.completed,"
                " response.incomplete or response.failed",
                provider="openai-responses",
            )
        items = [self._items[index] for index in sorted(self._items)]
        parts: list[Text | Thinking | ToolCall] = []
        for item in items:
            if item.ready is not None:
                parts.append(item.ready)
            elif item.kind in (Text, Thinking) and item.written:
                text = "".join(item.written)
                parts.append(Text(text=text) if item.kind is Text else Thinking(text=text))
        message = AssistantMessage(
            parts=tuple(parts),
            provider="openai-responses",
            raw=tuple(raw for item in items if (raw := _item_to_send_back(item)) is not None),
        )
        why = text_at(mapping_at(self._last_response, "incomplete_details"), "reason")
        stop = self._stop_reason(message, why)
        words = "".join(self._refusal) or why if stop in ("refused", "other") else ""
        return [ReplyEnd(message=message, stop=stop, usage=_usage(self._last_response), reason=words)]

    # --- items -----------------------------------------------------------------------------------------

    def _item_of(self, event: Mapping[str, Any]) -> _OutputItem:
        return self._items.setdefault(_field(event, "output_index", int), _OutputItem())

    def _add_text(self, event: Mapping[str, Any], kind: type[Text | Thinking]) -> list[ReplyPiece]:
        text = _field(event, "delta", str)
        if not text:
            return []
        item = self._item_of(event)
        item.kind = kind
        item.written.append(text)
        return [TextPiece(text=text) if kind is Text else ThinkingPiece(text=text)]

    def _add_item(self, index: int, raw: Mapping[str, Any]) -> list[ReplyPiece]:
        item = self._items.setdefault(index, _OutputItem())
        if raw.get("type") != "function_call" or item.kind is ToolCall:
            return []
        item.kind = ToolCall
        item.call_id, item.name = text_at(raw, "call_id"), text_at(raw, "name")
        return [CallStarted(id=item.call_id, name=item.name or UNNAMED)]

    def _end_item(self, index: int, raw: Mapping[str, Any]) -> list[ReplyPiece]:
        pieces = self._add_item(index, raw)
        item = self._items[index]
        item.raw = raw
        if raw.get("type") == "function_call":
            is_whole = raw.get("status") != "incomplete"
            pieces += self._end_call(item, _field(raw, "arguments", str), whole=is_whole)
        elif raw.get("type") == "message" and not item.written:
            pieces += self._add_text({"output_index": index, "delta": _text_of(raw)}, Text)
        return pieces

    def _end_call(self, item: _OutputItem, text: str, *, whole: bool = True) -> list[ReplyPiece]:
        if item.ready is not None or item.kind is not ToolCall:
            return []
        cut_off = "" if whole else "the reply was cut off before the arguments were complete"
        item.ready = tool_call(item.call_id, item.name, text, cut_off=cut_off)
        return [CallReady(call=item.ready)]

    # --- ends ------------------------------------------------------------------------------------------

    def _end_response(self, response: Mapping[str, Any]) -> list[ReplyPiece]:
        self._last_response = response
        self.ended = self.complete = True  # nothing follows this event
        pieces: list[ReplyPiece] = []
        output = response.get("output")
        for index, raw in enumerate(output if isinstance(output, list) else []):
            # A complete item had its own event. The last item of a reply that was cut off is only here.
            if isinstance(raw, Mapping) and (index not in self._items or self._items[index].raw is None):
                pieces += self._end_item(index, raw)
        for item in self._items.values():
            if item.kind is ToolCall:
                pieces += self._end_call(item, "".join(item.written), whole=False)
        return pieces

    def _stop_reason(self, message: AssistantMessage, why: str) -> StopReason:
        match why:
            case "max_output_tokens":
                return "length"
            case "content_filter":
                return "refused"
            case "" if message.calls:
                return "calls"
            case "":
                return "refused" if self._refusal else "end"
            case _:
                return "other"


def _item_to_send_back(item: _OutputItem) -> Mapping[str, Any] | None:
    if item.raw is not None:
        return item.raw
    if item.ready is not None:
        call = item.ready
        return {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments_text,
        }
    if item.kind is Text:
        return {"type": "message", "role": "assistant", "content": "".join(item.written)}
    return None


def _text_of(raw: Mapping[str, Any]) -> str:
    content = raw.get("content")
    blocks = [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
    return "".join(text_at(block, "text") or text_at(block, "refusal") for block in blocks)


def _usage(response: Mapping[str, Any]) -> TokenUsage:
    usage = mapping_at(response, "usage")
    return TokenUsage(
        input_tokens=count_at(usage, "input_tokens"), output_tokens=count_at(usage, "output_tokens")
    )


T = TypeVar("T", int, str, dict[str, Any])
_EXPECTED: Final[Mapping[type, str]] = {int: "an integer", str: "a string", dict: "an object"}


def _field(event: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return a required field of an event. Raises `ModelError` if it is not a `kind`."""
    value = event.get(name)
    if not isinstance(value, kind):
        raise ModelError(
            f"expected {name} of {event.get('type')!r} in openai's stream to be {_EXPECTED[kind]}, got"
            f" {shortened(json.dumps(value))}",
            provider="openai-responses",
        )
    return value
