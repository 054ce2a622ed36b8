"""The Messages API as Anthropic streams it, made of the official SDK's types.

One block after the other: the format has an index for each delta, but the API never interleaves blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, assert_never

from anthropic import types
from anthropic.types.raw_message_delta_event import Delta
from pydantic import BaseModel

from tests.servers.providers.script import Ask, Broken, Frame, Hold, Reply, Say, Think


def frames(reply: Reply, *, model: str, number: int) -> Iterator[Frame]:
    """The body of the answer."""
    yield _event(
        types.RawMessageStartEvent(
            type="message_start",
            message=types.Message(
                id=f"msg_{number}",
                content=[],
                model=model,
                role="assistant",
                stop_reason=None,
                stop_sequence=None,
                type="message",
                usage=types.Usage(input_tokens=reply.input_tokens, output_tokens=1),
            ),
        )
    )
    yield b'event: ping\ndata: {"type": "ping"}\n\n'
    index = 0
    for part in reply.parts:
        match part:
            case Hold():
                yield part
                continue
            case Broken(how="error"):
                error = {"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}}
                yield f"event: error\ndata: {json.dumps(error)}\n\n".encode()
                return
            case Broken():
                yield part
                return
            case Say() | Think() | Ask():
                yield from _block(part, index)
                index += 1
            case _:
                assert_never(part)
    yield _event(
        types.RawMessageDeltaEvent(
            type="message_delta",
            delta=Delta(stop_reason="tool_use" if reply.calls else "end_turn", stop_sequence=None),
            usage=types.MessageDeltaUsage(output_tokens=reply.output_tokens),
        )
    )
    yield _event(types.RawMessageStopEvent(type="message_stop"))


def _block(part: Say | Think | Ask, index: int) -> Iterator[bytes]:
    start: Any
    deltas: list[Any]
    match part:
        case Say():
            start = types.TextBlock(text="", type="text", citations=None)
            deltas = [types.TextDelta(text=text, type="text_delta") for text in part.deltas]
        case Think():
            start = types.ThinkingBlock(thinking="", signature="", type="thinking")
            deltas = [
                types.ThinkingDelta.model_validate({"thinking": part.text, "type": "thinking_delta"}),
                types.SignatureDelta(signature=part.signature, type="signature_delta"),
            ]
        case Ask():
            start = types.ToolUseBlock(id=part.id, name=part.name, input={}, type="tool_use")
            # The API begins with an empty delta.
            deltas = [
                types.InputJSONDelta(partial_json=text, type="input_json_delta")
                for text in ["", *part.deltas]
            ]
        case _:
            assert_never(part)
    yield _event(
        types.RawContentBlockStartEvent(type="content_block_start", index=index, content_block=start)
    )
    for delta in deltas:
        yield _event(types.RawContentBlockDeltaEvent(type="content_block_delta", index=index, delta=delta))
    yield _event(types.RawContentBlockStopEvent(type="content_block_stop", index=index))


def _event(event: BaseModel) -> bytes:
    data = event.model_dump(mode="json", exclude_unset=True)
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()
