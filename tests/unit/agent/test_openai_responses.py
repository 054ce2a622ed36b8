"""OpenAI's Responses: requests and events by the official SDK's own types."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from playhead.agent.conversation import (
    AssistantMessage,
    Attachment,
    CallReady,
    CallStarted,
    ModelRequest,
    ReplyEnd,
    ReplyPiece,
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
from playhead.agent.models.openai_responses import ResponsesDecoder, encode
from tests.loop_kit import user
from tests.servers.providers.validate import check_types
from tests.unit.agent.openai_shapes import event

Json = dict[str, Any]
PNG = Attachment(
    kind="image", mime_type="image/png", base64=base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
)
MP3 = Attachment(kind="audio", mime_type="audio/mpeg", base64=base64.b64encode(b"ID3" + bytes(30)).decode())
ASK = user("Play")
REASONING: Json = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}


def encoded(*messages: Any, model: str = "gpt-5", **more: Any) -> Json:
    body = encode(ModelRequest(messages=(ASK, *messages), **more), model=model)
    check_types("openai-responses", body)
    return body


def function_call(call_id: str, text: str, *, status: str = "completed", name: str = "f") -> Json:
    return {
        "id": f"fc_{call_id}",
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": text,
        "status": status,
    }


def message(text: str) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}


def ended(*output: Json, type_: str = "response.completed", **more: Any) -> Json:
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1.0,
        "model": "m",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        },
        **more,
    }
    return event(type_, response=response)


def added(index: int, item: Json) -> Json:
    return event("response.output_item.added", output_index=index, item=item)


def done(index: int, item: Json) -> Json:
    return event("response.output_item.done", output_index=index, item=item)


def arguments(index: int, call_id: str, *parts: str) -> list[Json]:
    where = {"output_index": index, "item_id": f"fc_{call_id}"}
    whole = "".join(parts)
    return [
        *(event("response.function_call_arguments.delta", **where, delta=part) for part in parts),
        event("response.function_call_arguments.done", **where, arguments=whole, name="f"),
    ]


def said(index: int, *parts: str) -> list[Json]:
    where = {"output_index": index, "item_id": "msg_1", "content_index": 0}
    return [event("response.output_text.delta", **where, delta=part, logprobs=[]) for part in parts]


def decode(*events: Json) -> tuple[list[ReplyPiece], ReplyEnd]:
    decoder = ResponsesDecoder()
    pieces = [piece for one in events for piece in decoder.feed(one)]
    assert decoder.ended
    pieces += decoder.finish()
    end = pieces.pop()
    assert isinstance(end, ReplyEnd)
    return pieces, end


TWO_CALLS = [
    added(0, {**REASONING, "encrypted_content": None}),
    event(
        "response.reasoning_summary_text.delta", output_index=0, item_id="rs_1", summary_index=0, delta="hm"
    ),
    done(0, REASONING),
    added(1, function_call("a", "", status="in_progress")),
    added(2, function_call("b", "", status="in_progress")),
    *arguments(2, "b", '{"y"', ": 2}"),
    *arguments(1, "a", '{"x": 1}'),
    done(1, function_call("a", '{"x": 1}')),
    done(2, function_call("b", '{"y": 2}')),
    ended(REASONING, function_call("a", '{"x": 1}'), function_call("b", '{"y": 2}')),
]


# --- requests ------------------------------------------------------------------------------------------


def test_nothing_is_stored_and_optional_arguments_stay_optional() -> None:
    tool = ToolSpec(name="f", description="Does.", parameters={"type": "object"})
    assert encoded(system="Be brief.", tools=(tool,), max_tokens=9) == {
        "model": "gpt-5",
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Play"}]}],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {
                "type": "function",
                "name": "f",
                "description": "Does.",
                "parameters": {"type": "object", "properties": {}},
                "strict": False,
            }
        ],
        "max_output_tokens": 9,
    }


@pytest.mark.parametrize("model", ["gpt-4.1", "gpt-4o-mini", "ft:gpt-4o:me", "gpt-3.5-turbo"])
def test_a_model_that_does_not_reason_is_not_asked_for_its_reasoning(model: str) -> None:
    assert "include" not in encoded(model=model)


def test_a_replys_items_go_back_as_they_came() -> None:
    _, end = decode(*TWO_CALLS)
    results = ToolMessage(
        results=(
            ToolResult(call_id="a", name="f", text="", media=(PNG,)),
            ToolResult(call_id="b", name="f", text="no such file", status="error"),
        )
    )
    items = encoded(end.message, results)["input"][1:]
    assert items[:3] == [REASONING, function_call("a", '{"x": 1}'), function_call("b", '{"y": 2}')]
    assert items[3:] == [
        {
            "type": "function_call_output",
            "call_id": "a",
            "output": [
                {"type": "input_text", "text": "(no text content; media follow)"},
                {
                    "type": "input_image",
                    "image_url": f"data:image/png;base64,{PNG.base64}",
                    "detail": "auto",
                },
            ],
        },
        {"type": "function_call_output", "call_id": "b", "output": "Error: no such file"},
    ]


def test_a_call_that_left_the_message_does_not_go_back_without_its_result() -> None:
    _, end = decode(*TWO_CALLS)
    kept = AssistantMessage(parts=end.message.calls[:1], provider=end.message.provider, raw=end.message.raw)
    assert [item.get("call_id") for item in encoded(kept)["input"][1:]] == [None, "a"]


def test_reasoning_that_openai_could_not_read_back_is_left_out() -> None:
    bare = {"id": "rs_1", "type": "reasoning", "summary": []}
    _, end = decode(done(0, bare), done(1, message("Yes")), ended(bare, message("Yes")))
    assert [item["type"] for item in encoded(end.message)["input"][1:]] == ["message"]


def test_values_that_came_as_null_are_left_out_of_the_request() -> None:
    item = {**message("Yes"), "phase": None}
    item["content"][0]["logprobs"] = None
    _, end = decode(done(0, item), ended(item))
    assert encoded(end.message)["input"][1:] == [message("Yes")]


def test_a_sound_is_named_where_the_api_takes_none() -> None:
    [item] = encode(ModelRequest(messages=(UserMessage(parts=(MP3,)),)), model="m")["input"]
    assert "audio/mpeg" in item["content"][0]["text"]


# --- streams -------------------------------------------------------------------------------------------


def test_interleaved_calls_are_told_as_they_become_whole() -> None:
    pieces, end = decode(*TWO_CALLS)
    a = ToolCall(id="a", name="f", arguments={"x": 1}, arguments_text='{"x": 1}')
    b = ToolCall(id="b", name="f", arguments={"y": 2}, arguments_text='{"y": 2}')
    assert pieces == [
        ThinkingPiece(text="hm"),
        CallStarted(id="a", name="f"),
        CallStarted(id="b", name="f"),
        CallReady(call=b),
        CallReady(call=a),
    ]
    assert (end.stop, end.usage) == ("calls", TokenUsage(input_tokens=10, output_tokens=5))
    assert end.message.parts == (Thinking(text="hm"), a, b)


def test_parts_of_a_summary_are_paragraphs() -> None:
    where = {"output_index": 0, "item_id": "rs_1"}
    part = {"type": "summary_text", "text": ""}
    pieces, _ = decode(
        event("response.reasoning_summary_part.added", **where, summary_index=0, part=part),
        event("response.reasoning_summary_text.delta", **where, summary_index=0, delta="One."),
        event("response.reasoning_summary_part.added", **where, summary_index=1, part=part),
        event("response.reasoning_summary_text.delta", **where, summary_index=1, delta="Two."),
        ended(),
    )
    assert "".join(piece.text for piece in pieces if isinstance(piece, ThinkingPiece)) == "One.\n\nTwo."


def test_items_that_only_the_end_has_are_told_too() -> None:
    pieces, end = decode(ended(message("Yes"), function_call("a", "{}")))
    assert [type(piece) for piece in pieces] == [TextPiece, CallStarted, CallReady]
    assert end.message.raw == (message("Yes"), function_call("a", "{}"))


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("text", ["", '{"x": '])
def test_a_call_that_is_cut_off_is_told_as_broken_and_never_runs(*, text: str, listed: bool) -> None:
    cut = function_call("a", text, status="incomplete")
    details = {"incomplete_details": {"reason": "max_output_tokens"}}
    deltas = arguments(0, "a", text)[:1] if text else []
    pieces, end = decode(
        added(0, function_call("a", "", status="in_progress")),
        *deltas,
        ended(*([cut] if listed else []), type_="response.incomplete", **details),
    )
    [ready] = [piece.call for piece in pieces if isinstance(piece, CallReady)]
    assert (ready.arguments, end.stop) == (None, "length")
    assert "cut off" in ready.problem
    assert [item["call_id"] for item in encoded(end.message)["input"][1:]] == ["a"]


def test_a_refusal_is_said_and_is_the_reason() -> None:
    where = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
    pieces, end = decode(event("response.refusal.delta", **where, delta="I can't."), ended())
    assert pieces == [TextPiece(text="I can't.")]
    assert (end.stop, end.reason) == ("refused", "I can't.")


def test_reasoning_that_was_cut_off_before_what_it_led_to_does_not_go_back() -> None:
    raw = (REASONING, message("Well"), {**REASONING, "id": "rs_2"})
    reply = AssistantMessage(parts=(Text(text="Well"),), provider="openai-responses", raw=raw)
    kinds = [item["type"] for item in encoded(reply, ASK)["input"]]
    assert kinds == ["message", "reasoning", "message", "message"]
