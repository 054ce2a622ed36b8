"""OpenAI's Responses: requests and events by the official SDK's own types."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from playhead.errors import ModelError
from tests.unit.agent.openai_shapes import check_responses_request, event

Json = dict[str, Any]
PNG = Attachment(
    kind="image", mime_type="image/png", base64=base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
)
MP3 = Attachment(kind="audio", mime_type="audio/mpeg", base64=base64.b64encode(b"ID3" + bytes(30)).decode())
ASK = UserMessage(parts=(Text(text="Play"),))
REASONING: Json = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}


def encoded(*messages: Any, model: str = "gpt-5", **more: Any) -> Json:
    body = encode(ModelRequest(messages=(ASK, *messages), **more), model=model)
    check_responses_request(body)
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


def test_another_providers_reply_goes_as_text_and_calls() -> None:
    call = ToolCall(id="a", name="f", arguments={}, arguments_text="")
    broken = ToolCall(id="b", name="f", arguments=None, arguments_text="{")
    parts = (Thinking(text="hm"), Text(text="Yes"), call, broken)
    foreign = AssistantMessage(parts=parts, provider="anthropic", raw=({"type": "thinking"},))
    assert encoded(foreign)["input"][1:] == [
        {"type": "message", "role": "assistant", "content": "Yes"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": '{"unreadable": "{"}'},
    ]


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


def test_text_streams_and_ends() -> None:
    pieces, end = decode(*said(0, "Yes", ", sir"), done(0, message("Yes, sir")), ended(message("Yes, sir")))
    assert pieces == [TextPiece(text="Yes"), TextPiece(text=", sir")]
    assert (end.stop, end.message.text) == ("end", "Yes, sir")


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


def test_a_filtered_reply_is_refused() -> None:
    details = {"incomplete_details": {"reason": "content_filter"}}
    _, end = decode(ended(type_="response.incomplete", **details))
    assert (end.stop, end.reason) == ("refused", "content_filter")


@pytest.mark.parametrize(
    "failure",
    [
        ended(type_="response.failed", error={"code": "server_error", "message": "it broke"}),
        event("error", code="server_error", message="it broke"),
        {"type": "error", "error": {"code": "server_error", "message": "it broke"}},
        {"error": {"code": "server_error", "message": "it broke"}},
    ],
)
def test_a_failure_in_the_stream_is_the_providers(failure: Json) -> None:
    with pytest.raises(ModelError, match=r"server_error.*it broke"):
        ResponsesDecoder().feed(failure)


def test_events_that_nobody_knows_change_nothing() -> None:
    decoder = ResponsesDecoder()
    assert decoder.feed({"type": "response.something.new"}) == decoder.feed({}) == []


@pytest.mark.parametrize(
    "bad",
    [
        {"type": "response.output_item.added", "output_index": "0", "item": {}},
        {"type": "response.output_item.done", "output_index": 0, "item": 7},
        {"type": "response.output_text.delta", "output_index": 0},
        {"type": "response.completed"},
    ],
)
def test_an_event_that_cannot_be_is_an_error_and_no_crash(bad: Json) -> None:
    with pytest.raises(ModelError, match="expected"):
        ResponsesDecoder().feed(bad)


def test_a_stream_that_does_not_end_the_response_is_an_error() -> None:
    decoder = ResponsesDecoder()
    decoder.feed(said(0, "Yes")[0])
    assert not decoder.ended
    with pytest.raises(ModelError, match=r"response\.completed"):
        decoder.finish()


@given(st.data())
def test_any_cut_of_text_and_arguments_gives_the_same_reply(data: st.DataObject) -> None:
    def cut(text: str) -> list[str]:
        edges = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
        return [text[a:b] for a, b in zip([0, *edges], [*edges, len(text)], strict=True)]

    def reply(texts: list[str], *calls: list[str]) -> tuple[list[ReplyPiece], ReplyEnd]:
        events = [*said(0, *texts), done(0, message("One 🎵 two."))]
        for index, parts in enumerate(calls, start=1):
            call_id = f"c{index}"
            events.append(added(index, function_call(call_id, "", status="in_progress")))
            events += arguments(index, call_id, *parts)
            events.append(done(index, function_call(call_id, "".join(parts))))
        return decode(*events, ended())

    one, two = '{"x": {"y": "}"}}', "["
    pieces, end = reply(["One 🎵 two."], [one], [two])
    other, other_end = reply(cut("One 🎵 two."), cut(one), cut(two))
    assert [p for p in other if not isinstance(p, TextPiece)] == pieces[1:]
    assert "".join(p.text for p in other if isinstance(p, TextPiece)) == "One 🎵 two."
    assert other_end == end
