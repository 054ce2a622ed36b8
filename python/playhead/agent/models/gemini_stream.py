"""Decode Gemini's stream into pieces of a reply. Pure.

Each event is a whole `GenerateContentResponse` with the next parts of the only candidate. Calls arrive whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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
from playhead.agent.models.json_fields import (
    count_at,
    mapping_at,
    mappings_at,
    parse_arguments,
    shortened,
    text_at,
)
from playhead.errors import ModelError

_STOPS: Final[Mapping[str, StopReason]] = {
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
"""Any other reason (`MALFORMED_FUNCTION_CALL`, …) is reported by its name, as `other`."""


class GeminiDecoder:
    """Decodes the events of one reply, in order. `finish` returns the last piece.

    Args:
        call_prefix: begins the ids of calls that arrive without one. Give each reply its own if ids must
            differ within a conversation.

    Both methods raise `ModelError` if the provider reports an error or sends invalid events; the reply is
    then lost.
    """

    def __init__(self, *, call_prefix: str = "call") -> None:
        self._prefix = call_prefix
        self._parts: list[dict[str, Any]] = []
        self._texts: list[str] = []
        """The text of the last part, while more is added."""
        self._calls: dict[int, ToolCall] = {}
        """By the index of their part."""
        self._ids: set[str] = set()
        self._stop = ""
        self._reason = ""
        self._usage: Mapping[str, Any] = {}

    @property
    def ended(self) -> bool:
        """The reply is complete, so the stream may end."""
        return bool(self._stop)

    @property
    def complete(self) -> bool:
        """Never: token counts may follow, and only the end of the stream marks the end."""
        return False

    def feed(self, event: Mapping[str, Any]) -> list[ReplyPiece]:
        """Take an event, and return the pieces it completes; often none."""
        if "error" in event:
            error = mapping_at(event, "error")
            message = f"{text_at(error, 'status') or error.get('code')}: {text_at(error, 'message')}"
            raise ModelError(
                f"gemini broke off its reply: {shortened(message)}",
                provider="gemini",
                status=count_at(error, "code"),
            )
        self._usage = mapping_at(event, "usageMetadata") or self._usage
        if blocked := text_at(mapping_at(event, "promptFeedback"), "blockReason"):
            self._stop, self._reason = "SAFETY", f"the prompt was blocked: {blocked}"
        candidate = next(iter(mappings_at(event, "candidates")), {})
        pieces = [
            piece
            for part in mappings_at(mapping_at(candidate, "content"), "parts")
            for piece in self._part(part)
        ]
        if stop := text_at(candidate, "finishReason"):
            message = text_at(candidate, "finishMessage")
            self._stop = stop
            self._reason = "" if stop == "STOP" else f"{stop}: {message}" if message else stop
        return pieces

    def finish(self) -> list[ReplyPiece]:
        """Return the end of the reply; call it once, after the last event."""
        if not self._stop:
            raise ModelError(
                "the reply of gemini ended before it said why it stops: expected a finishReason",
                provider="gemini",
            )
        self._end_text()
        message = AssistantMessage(
            parts=tuple(part for index in range(len(self._parts)) if (part := self._neutral(index))),
            provider="gemini",
            raw=tuple(self._parts),
        )
        stop = _STOPS.get(self._stop, "other")
        if stop == "end" and self._calls:
            stop = "calls"
        return [ReplyEnd(message=message, stop=stop, usage=self._total(), reason=self._reason)]

    def _part(self, part: Mapping[str, Any]) -> Iterator[ReplyPiece]:
        if "functionCall" in part:
            made = mapping_at(part, "functionCall")
            call = self._call(made)
            # The API accepts only objects, even where it sent something else itself.
            self._keep(part if call.arguments is not None else {**part, "functionCall": {**made, "args": {}}})
            self._calls[len(self._parts) - 1] = call
            yield CallStarted(id=call.id, name=call.name)
            yield CallReady(call=call)
            return
        self._keep(part)
        if text := text_at(part, "text"):
            yield ThinkingPiece(text=text) if part.get("thought") is True else TextPiece(text=text)

    def _keep(self, part: Mapping[str, Any]) -> None:
        """Store a part unchanged, but append bare text to the text before it, or each word would be a part.

        A part with a signature stays alone: the signature covers that part."""
        if part == {"text": ""}:
            return  # the API refuses it in a request
        last = self._parts[-1] if self._parts else {}
        if (
            set(part) <= {"text", "thought"}
            and set(last) == set(part)
            and last.get("thought") == part.get("thought")
            and isinstance(part.get("text"), str)
        ):
            self._texts.append(part["text"])
            return
        self._end_text()
        self._parts.append(dict(part))
        self._texts = [text_at(part, "text")]

    def _end_text(self) -> None:
        if len(self._texts) > 1:
            self._parts[-1]["text"] = "".join(self._texts)
        self._texts = []

    def _call(self, made: Mapping[str, Any]) -> ToolCall:
        name = text_at(made, "name")
        if not name:
            raise ModelError("gemini sent a call without a name", provider="gemini")
        call_id = text_at(made, "id") or f"{self._prefix}-{len(self._calls) + 1}"
        if call_id in self._ids:
            raise ModelError(f"gemini sent two calls with the id {call_id[:100]!r}", provider="gemini")
        self._ids.add(call_id)
        found = made.get("args")
        if found is None:
            found = {}  # omitted, or null
        text = json.dumps(found, ensure_ascii=False)
        arguments, problem = (found, "") if isinstance(found, Mapping) else parse_arguments(text)
        return ToolCall(
            id=call_id,
            name=name,
            arguments=arguments,
            arguments_text=text,
            problem=problem,
        )

    def _neutral(self, index: int) -> Text | Thinking | ToolCall | None:
        if index in self._calls:
            return self._calls[index]
        part = self._parts[index]
        if not (text := text_at(part, "text")):
            return None
        return Thinking(text=text) if part.get("thought") is True else Text(text=text)

    def _total(self) -> TokenUsage:
        return TokenUsage(
            input_tokens=self._sum("promptTokenCount", "toolUsePromptTokenCount"),
            output_tokens=self._sum("candidatesTokenCount", "thoughtsTokenCount"),
        )

    def _sum(self, *keys: str) -> int | None:
        counts = [count for key in keys if (count := count_at(self._usage, key)) is not None]
        return sum(counts) if counts else None
