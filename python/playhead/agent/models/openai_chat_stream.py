"""The decoder of Chat Completions streams, OpenAI's own and the variants of compatible servers.

`feed` takes a chunk and returns the pieces that it completes; `finish` returns the last ones. The decoder
announces a call as soon as its name is known. The call is ready when its arguments are a whole object and the
next call begins, or else when the reply ends. The start of another call alone does not end it, because calls
may be interleaved.

The `index` names the call that a delta belongs to. The decoder handles these mistakes of servers:

* no index: a delta with a known id belongs to that call, one with a name begins a call, and any other
  continues the last call;
* the same index for every call: another id together with a name begins a call;
* an id that is new in every delta: without a name it does not begin a call;
* id and name repeated in every delta: the first ones count;
* no id, or the same id for two calls: the decoder generates an id, because a result needs its call's id;
* arguments as an object instead of a string, or complete in one delta, or empty for none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from playhead.agent.conversation import (
    AssistantMessage,
    CallReady,
    CallStarted,
    ReplyEnd,
    ReplyPiece,
    StopReason,
    Text,
    TextPiece,
    Thinking,
    ThinkingPiece,
    TokenUsage,
    ToolCall,
)
from playhead.agent.models.http_reply import ReplyDecoder
from playhead.agent.models.json_fields import (
    count_at,
    is_object,
    mapping_at,
    stream_error,
    text_at,
    tool_call,
)
from playhead.errors import ModelError
from playhead.escaping import shortened

_THINKING_FIELDS: Final = ("reasoning_content", "reasoning")
"""The fields in which compatible servers send thinking: DeepSeek, Moonshot, vLLM; OpenRouter, Groq."""

_CALL_KEYS: Final = frozenset({"index", "id", "type", "function"})


@dataclass(slots=True, eq=False)
class _StreamedCall:
    """A call that may still be streaming."""

    wire_id: str
    """The first id that the server sent; empty if none."""
    id: str
    name: str = ""
    written: list[str] = field(default_factory=list)
    ready: ToolCall | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.written)

    @property
    def is_whole(self) -> bool:
        """True if the arguments are a whole object, so that none can follow."""
        return bool(self.written) and self.written[-1].endswith("}") and is_object(self.text)


@dataclass(slots=True, eq=False)
class _TextRun:
    """A run of consecutive text or thinking."""

    kind: type[Text | Thinking]
    written: list[str]


class ChatDecoder(ReplyDecoder):
    """Decodes the chunks of one reply. Never `complete`: token counts may follow, and `[DONE]` marks the end.

    If a server sends no ids, `seed` is part of the generated ones. A new seed for each reply makes the ids
    unique in a conversation; the same seed gives the same ids.
    """

    def __init__(self, *, seed: str = "") -> None:
        self._seed = seed
        self._reply_parts: list[_TextRun | _StreamedCall] = []
        self._calls: list[_StreamedCall] = []
        self._by_index: dict[int, _StreamedCall] = {}
        self._by_id: dict[str, _StreamedCall] = {}
        self._thoughts: dict[str, list[str]] = {}
        self._reasoning_details: list[Any] = []
        self._refusal: list[str] = []
        self._finish_reason: str | None = None
        self._usage = TokenUsage()

    def feed(self, event: Mapping[str, Any]) -> list[ReplyPiece]:
        if event.get("error"):
            raise stream_error(event["error"], provider="openai")
        self._store_usage(event.get("usage"))
        pieces: list[ReplyPiece] = []
        for choice in _mappings(event, "choices"):
            if choice.get("index") not in (0, None):
                continue  # only one reply was requested
            delta = choice.get("delta")
            if isinstance(delta, Mapping):
                pieces += self._add_delta(delta)
            reason = choice.get("finish_reason")
            if isinstance(reason, str) and reason:
                self._finish_reason = reason
                self.ended = True
                pieces += self._end_calls()
        return pieces

    def finish(self) -> list[ReplyPiece]:
        """Return the last pieces. Raises `ModelError` if nothing arrived at all."""
        if self._finish_reason is None and not self._reply_parts:
            raise ModelError(
                "openai ended its stream without a reply: expected chunks with choices, got none",
                provider="openai",
            )
        pieces = self._end_calls()
        parts: list[Text | Thinking | ToolCall] = []
        for run in self._reply_parts:
            if isinstance(run, _TextRun):
                parts.append(run.kind(text="".join(run.written)))
            elif run.ready is not None:
                parts.append(run.ready)
        message = AssistantMessage(parts=tuple(parts), provider="openai", raw=self._raw())
        stop = self._stop_reason(message)
        words = "".join(self._refusal) or (self._finish_reason or "") if stop in ("refused", "other") else ""
        return [*pieces, ReplyEnd(message=message, stop=stop, usage=self._usage, reason=words)]

    # --- deltas ----------------------------------------------------------------------------------------

    def _add_delta(self, delta: Mapping[str, Any]) -> list[ReplyPiece]:
        pieces: list[ReplyPiece] = []
        for name in _THINKING_FIELDS:
            thought = text_at(delta, name)
            if thought:
                self._thoughts.setdefault(name, []).append(thought)
                # Some servers send both, with the same text.
                if name == next(iter(self._thoughts)):
                    pieces.append(self._add_text(Thinking, thought))
        self._reasoning_details += _mappings(delta, "reasoning_details")
        content = delta.get("content")
        for kind, text in [(Text, content)] if isinstance(content, str) else _text_blocks(content):
            if text:
                pieces.append(self._add_text(kind, text))
        refusal = text_at(delta, "refusal")
        if refusal:
            self._refusal.append(refusal)
            pieces.append(self._add_text(Text, refusal))
        touched: list[_StreamedCall] = []
        for part in _mappings(delta, "tool_calls"):
            pieces += self._add_to_call(part, touched)
        return pieces

    def _add_text(self, kind: type[Text | Thinking], text: str) -> ReplyPiece:
        last = self._reply_parts[-1] if self._reply_parts else None
        if isinstance(last, _TextRun) and last.kind is kind:
            last.written.append(text)
        else:
            self._reply_parts.append(_TextRun(kind, [text]))
        return TextPiece(text=text) if kind is Text else ThinkingPiece(text=text)

    def _add_to_call(self, part: Mapping[str, Any], touched: list[_StreamedCall]) -> list[ReplyPiece]:
        function = mapping_at(part, "function")
        wire_id, name = text_at(part, "id"), text_at(function, "name")
        pieces: list[ReplyPiece] = []
        call = self._find_call(part.get("index"), wire_id, name, touched)
        if call is None:
            previous = self._calls[-1] if self._calls else None
            if previous is not None and previous.ready is None and previous.is_whole:
                pieces += self._end_call(previous)
            call = self._begin_call(part.get("index"), wire_id)
        touched.append(call)
        if call.ready is not None:
            return pieces  # after complete arguments, nothing relevant can follow
        if name and not call.name:
            call.name = name
            pieces.append(CallStarted(id=call.id, name=name))
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping):
            arguments = json.dumps(arguments)
        if isinstance(arguments, str) and arguments:
            call.written.append(arguments)
        call.extra.update({key: value for key, value in part.items() if key not in _CALL_KEYS and value})
        return pieces

    def _find_call(
        self, index: Any, wire_id: str, name: str, touched: list[_StreamedCall]
    ) -> _StreamedCall | None:
        """Find the call that a delta continues. None means that the delta begins one."""
        # Look by index, else by id, else take the latest call.
        if isinstance(index, int):
            call = self._by_index.get(index)
        elif wire_id and (wire_id in self._by_id or name):
            call = self._by_id.get(wire_id)
        else:
            call = self._calls[-1] if self._calls else None
        if call is None or not name or not call.name:
            return call
        # The delta has a name although the call has one: it repeats that name, or begins another call.
        if wire_id and call.wire_id and wire_id != call.wire_id:
            return None
        if wire_id and isinstance(index, int):
            return call
        # Without ids, the same name continues the call, unless the call is complete or this chunk already
        # had a part of it.
        is_new = name != call.name or call in touched or call.is_whole
        return None if is_new else call

    def _begin_call(self, index: Any, wire_id: str) -> _StreamedCall:
        call_id = wire_id
        if not wire_id or wire_id in self._by_id:
            # OpenAI accepts at most 40 characters.
            call_id = f"call_{sha256(f'{self._seed}/{len(self._calls)}'.encode()).hexdigest()[:24]}"
        call = _StreamedCall(wire_id, call_id)
        self._calls.append(call)
        self._reply_parts.append(call)
        self._by_id.setdefault(wire_id or call_id, call)
        if isinstance(index, int):
            self._by_index[index] = call
        return call

    # --- ends ------------------------------------------------------------------------------------------

    def _end_calls(self) -> list[ReplyPiece]:
        return [piece for call in self._calls if call.ready is None for piece in self._end_call(call)]

    def _end_call(self, call: _StreamedCall) -> list[ReplyPiece]:
        cut_off = "the reply reached its maximum length before the arguments were complete"
        call.ready = tool_call(
            call.id, call.name, call.text, cut_off=cut_off if self._finish_reason == "length" else ""
        )
        ready = CallReady(call=call.ready)
        return [ready] if call.name else [CallStarted(id=call.id, name=call.ready.name), ready]

    def _stop_reason(self, message: AssistantMessage) -> StopReason:
        match self._finish_reason:
            case "length":
                return "length"
            case "content_filter":
                return "refused"
            case _ if message.calls:
                return "calls"  # some servers send "stop" here
            case _ if self._refusal:
                return "refused"
            case "stop" | None:
                return "end"
            case _:
                return "other"

    def _raw(self) -> tuple[Mapping[str, Any], ...]:
        """Return the data to send back with the parts: thoughts under their own name, signatures of calls."""
        raw: dict[str, Any] = {name: "".join(written) for name, written in self._thoughts.items()}
        if self._reasoning_details:
            raw["reasoning_details"] = self._reasoning_details
        extras = {call.id: call.extra for call in self._calls if call.extra}
        if extras:
            raw["tool_calls"] = extras
        return (raw,) if raw else ()

    def _store_usage(self, usage: Any) -> None:
        # Servers that report usage in every chunk report the sum so far, so the last report counts.
        if isinstance(usage, Mapping):
            self._usage = TokenUsage(
                input_tokens=count_at(usage, "prompt_tokens"),
                output_tokens=count_at(usage, "completion_tokens"),
            )


def _text_blocks(content: Any) -> list[tuple[type[Text | Thinking], str]]:
    """Read content in blocks, as Mistral's reasoning models write it."""
    parts: list[tuple[type[Text | Thinking], str]] = []
    for block in content if isinstance(content, list) else []:
        if not isinstance(block, Mapping):
            continue
        if block.get("type") == "text":
            parts.append((Text, text_at(block, "text")))
        elif block.get("type") == "thinking":
            thinking = block.get("thinking")
            parts.append((Thinking, thinking if isinstance(thinking, str) else _join_text_blocks(thinking)))
    return parts


def _join_text_blocks(blocks: Any) -> str:
    return "".join(text for _, text in _text_blocks(blocks))


def _mappings(event: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    value = event.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise ModelError(
            f"expected {name} in a chunk of openai's stream to be a list of objects, got"
            f" {shortened(json.dumps(value))}",
            provider="openai",
        )
    return value
