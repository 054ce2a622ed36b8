"""OpenAI's events, made of the official SDK's own types."""

from __future__ import annotations

from functools import cache
from typing import Any

from openai.types.chat.chat_completion_chunk import ChatCompletionChunk, ChoiceDelta
from openai.types.completion_usage import CompletionUsage
from openai.types.responses.response_stream_event import ResponseStreamEvent
from pydantic import TypeAdapter

Json = dict[str, Any]


def chunk(
    delta: Json | None = None, *, finish: str | None = None, usage: tuple[int, int] | None = None
) -> Json:
    """A chunk as OpenAI sends it: `delta` as the SDK's type has it, and what is absent left out."""
    choices: list[Json] = []
    if delta is not None or finish is not None:
        checked = ChoiceDelta.model_validate(delta or {}).model_dump(mode="json", exclude_unset=True)
        choices = [{"index": 0, "delta": checked, "finish_reason": finish, "logprobs": None}]
    counts = None
    if usage is not None:
        given, made = usage
        counts = CompletionUsage(prompt_tokens=given, completion_tokens=made, total_tokens=given + made)
    made_chunk = ChatCompletionChunk.model_validate(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": choices,
            "usage": counts,
        }
    )
    return made_chunk.model_dump(mode="json", exclude_unset=True)


def call_delta(**fields: Any) -> Json:
    """A part of a call, as Chat Completions streams it."""
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return {**fields, **({"function": function} if function else {})}


def chunk_of(*deltas: Json) -> Json:
    """A chunk of a compatible server: not what the SDK's types would let through."""
    return {"choices": [{"index": 0, "delta": {"tool_calls": list(deltas)}}]}


def event(type_: str, **fields: Any) -> Json:
    """A Responses event, held against the SDK's type of it."""
    made = {"type": type_, "sequence_number": 0, **fields}
    _adapter(ResponseStreamEvent).validate_python(made)
    return made


@cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    return TypeAdapter(type_)
