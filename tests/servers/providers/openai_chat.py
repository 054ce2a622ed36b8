"""Chat Completions as OpenAI streams it, made of the official SDK's types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, assert_never

from openai.types.chat.chat_completion_chunk import (
    ChatCompletionChunk,
    Choice,
    ChoiceDelta,
    ChoiceDeltaToolCall,
    ChoiceDeltaToolCallFunction,
)
from openai.types.completion_usage import CompletionUsage

from tests.servers.providers.script import Ask, Broken, Frame, Hold, Reply, Say, Think, interleaved

Finish = Literal["stop", "tool_calls"]


def frames(reply: Reply, *, model: str, number: int) -> Iterator[Frame]:
    """The body of the answer. The reason to finish comes before a trailing `Hold`: only with it are calls
    complete in this format."""
    finish: Finish = "tool_calls" if reply.calls else "stop"

    def event(delta: ChoiceDelta | None, **more: Any) -> bytes:
        choices = []
        if delta is not None:
            choices = [Choice(index=0, delta=delta, finish_reason=more.pop("finish_reason", None))]
        chunk = ChatCompletionChunk(
            id=f"chatcmpl-{number}",
            object="chat.completion.chunk",
            created=1_790_000_000,
            model=model,
            choices=choices,
            **more,
        )
        return _sse(chunk.model_dump(mode="json", exclude_unset=True))

    yield event(ChoiceDelta(role="assistant", content=""))
    is_finished, calls = False, 0
    for part in reply.groups():
        match part:
            case Say():
                for text in part.deltas:
                    yield event(ChoiceDelta(content=text))
            case Think():
                # No field of OpenAI's: what DeepSeek, vLLM and others add to the type.
                yield event(ChoiceDelta.model_validate({"reasoning_content": part.text}))
            case tuple():
                yield from (event(delta) for delta in _calls(part, calls))
                calls += len(part)
            case Hold():
                if part is reply.parts[-1] and calls:
                    is_finished = True
                    yield event(ChoiceDelta(), finish_reason=finish)
                yield part
            case Broken(how="error"):
                yield _sse({"error": {"message": "overloaded", "type": "server_error", "code": None}})
                return
            case Broken():
                yield part
                return
            case _:
                assert_never(part)
    if not is_finished:
        yield event(ChoiceDelta(), finish_reason=finish)
    total = reply.input_tokens + reply.output_tokens
    yield event(
        None,
        usage=CompletionUsage(
            prompt_tokens=reply.input_tokens, completion_tokens=reply.output_tokens, total_tokens=total
        ),
    )
    yield b"data: [DONE]\n\n"


def _calls(calls: tuple[Ask, ...], first: int) -> Iterator[ChoiceDelta]:
    def delta(index: int, **more: Any) -> ChoiceDelta:
        return ChoiceDelta(tool_calls=[ChoiceDeltaToolCall(index=first + index, **more)])

    for index, call in enumerate(calls):
        yield delta(
            index,
            id=call.id,
            type="function",
            function=ChoiceDeltaToolCallFunction(name=call.name, arguments=""),
        )
    for index, text in interleaved(calls):
        yield delta(index, function=ChoiceDeltaToolCallFunction(arguments=text))


def _sse(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"
