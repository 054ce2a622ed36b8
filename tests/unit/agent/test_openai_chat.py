"""OpenAI's Chat Completions: requests by the SDK's types, streams of OpenAI's and of compatible servers."""

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
)
from playhead.agent.models.openai_chat import ChatDecoder, encode
from tests.loop_kit import user
from tests.servers.providers.validate import check_types
from tests.unit.agent.openai_shapes import call_delta, chunk, chunk_of

PNG = Attachment(
    kind="image", mime_type="image/png", base64=base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
)
MP3 = Attachment(kind="audio", mime_type="audio/mp3", base64=base64.b64encode(b"ID3" + bytes(30)).decode())
OPUS = Attachment(kind="audio", mime_type="audio/opus", base64=base64.b64encode(b"OggS" + bytes(30)).decode())
ASK = user("Play")


def call(call_id: str, name: str = "f", text: str = "{}", **arguments: Any) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments, arguments_text=text)


def encoded(*messages: Any, **more: Any) -> dict[str, Any]:
    body = encode(ModelRequest(messages=(ASK, *messages), **more), model="m")
    check_types("openai", body)
    return body


def decode(*chunks: dict[str, Any]) -> tuple[list[ReplyPiece], ReplyEnd]:
    decoder = ChatDecoder()
    pieces = [piece for one in chunks for piece in decoder.feed(one)]
    pieces += decoder.finish()
    end = pieces.pop()
    assert isinstance(end, ReplyEnd)
    return pieces, end


def ready(pieces: list[ReplyPiece]) -> list[tuple[str, str, Any]]:
    return [
        (piece.call.id, piece.call.name, piece.call.arguments)
        for piece in pieces
        if isinstance(piece, CallReady)
    ]


# --- requests ------------------------------------------------------------------------------------------


def test_optional_arguments_stay_optional_and_nothing_is_strict() -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]}
    body = encoded(tools=(ToolSpec(name="s__f", description="Does.", parameters=parameters),))
    function = {"name": "s__f", "description": "Does.", "parameters": parameters}
    assert body["tools"] == [{"type": "function", "function": function}]


def test_a_tool_without_properties_gets_the_empty_ones_that_openai_asks_for() -> None:
    body = encoded(tools=(ToolSpec(name="f", description="", parameters={"type": "object"}),))
    assert body["tools"][0]["function"] == {"name": "f", "parameters": {"type": "object", "properties": {}}}


def test_the_request_streams_and_asks_for_usage() -> None:
    body = encoded(system="Be brief.", max_tokens=9, temperature=0.5)
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Play"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 9,
        "temperature": 0.5,
    }


def test_a_compatible_server_gets_the_old_name_of_the_limit() -> None:
    body = encode(ModelRequest(messages=(ASK,), max_tokens=9), model="m", max_tokens_field="max_tokens")
    assert body["max_tokens"] == 9
    assert "max_completion_tokens" not in body


def test_calls_and_their_results_go_back_in_the_order_of_the_calls() -> None:
    assistant = AssistantMessage(parts=(Text(text="Yes."), call("a", text='{"x": 1}', x=1), call("b")))
    results = ToolMessage(
        results=(
            ToolResult(call_id="a", name="f", text="one"),
            ToolResult(call_id="b", name="f", text="declined by the user", status="denied"),
        )
    )
    assert encoded(assistant, results)["messages"][1:] == [
        {
            "role": "assistant",
            "content": "Yes.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
                {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": "Error: declined by the user"},
    ]


def test_media_follow_in_a_user_message_after_all_the_results() -> None:
    assistant = AssistantMessage(parts=(call("a"), call("b")))
    results = ToolMessage(
        results=(
            ToolResult(call_id="a", name="photo", text="", media=(PNG,)),
            ToolResult(call_id="b", name="sing", text="la", media=(MP3, OPUS)),
        )
    )
    *tools, media = encoded(assistant, results)["messages"][2:]
    assert [(each["role"], each["tool_call_id"]) for each in tools] == [("tool", "a"), ("tool", "b")]
    assert tools[0]["content"]
    assert "not attached" in tools[1]["content"]
    assert media["role"] == "user"
    assert media["content"] == [
        {"type": "text", "text": "From the result of photo (a):"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG.base64}"}},
        {"type": "text", "text": "From the result of sing (b):"},
        {"type": "input_audio", "input_audio": {"data": MP3.base64, "format": "mp3"}},
    ]


def test_nothing_is_said_where_there_is_nothing_and_never_an_absent_text() -> None:
    body = encoded(
        AssistantMessage(parts=(call("a", text=""),)),
        ToolMessage(results=(ToolResult(call_id="a", name="f", text=""),)),
        AssistantMessage(parts=(Thinking(text="hm"),)),
    )
    assistant, tool, empty = body["messages"][1:]
    assert assistant["content"] is None
    assert assistant["tool_calls"][0]["function"]["arguments"] == "{}"
    assert tool["content"] == "(no content)"
    assert empty == {"role": "assistant", "content": ""}


# --- streams -------------------------------------------------------------------------------------------


def test_interleaved_calls_are_told_apart_by_their_index() -> None:
    pieces, end = decode(
        chunk({"role": "assistant", "content": "Let me", "refusal": None}),
        chunk({"tool_calls": [call_delta(index=0, id="a", type="function", name="f", arguments="")]}),
        chunk({"tool_calls": [call_delta(index=1, id="b", type="function", name="g", arguments='{"y"')]}),
        chunk({"tool_calls": [call_delta(index=0, arguments='{"x": 1}')]}),
        chunk({"tool_calls": [call_delta(index=1, arguments=": 2}")]}),
        chunk({}, finish="tool_calls"),
        chunk(usage=(10, 5)),
    )
    assert pieces[:3] == [
        TextPiece(text="Let me"),
        CallStarted(id="a", name="f"),
        CallStarted(id="b", name="g"),
    ]
    assert ready(pieces) == [("a", "f", {"x": 1}), ("b", "g", {"y": 2})]
    assert (end.stop, end.usage) == ("calls", TokenUsage(input_tokens=10, output_tokens=5))
    assert end.message.provider == "openai"
    assert (end.message.text, [each.id for each in end.message.calls]) == ("Let me", ["a", "b"])


def test_a_call_is_ready_when_the_next_one_begins() -> None:
    decoder = ChatDecoder()
    decoder.feed(chunk({"tool_calls": [call_delta(index=0, id="a", name="f", arguments='{"x": 1}')]}))
    pieces = decoder.feed(chunk({"tool_calls": [call_delta(index=1, id="b", name="g")]}))
    assert ready(pieces) == [("a", "f", {"x": 1})]


def test_a_call_whose_arguments_may_still_come_is_not_ready_when_the_next_begins() -> None:
    decoder = ChatDecoder()
    decoder.feed(chunk({"tool_calls": [call_delta(index=0, id="a", name="f", arguments="")]}))
    assert ready(decoder.feed(chunk({"tool_calls": [call_delta(index=1, id="b", name="g")]}))) == []


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(
            [
                call_delta(id="a", name="f", arguments='{"x"'),
                call_delta(arguments=": 1}"),
                call_delta(id="b", name="g", arguments='{"y": 2}'),
            ],
            id="no index",
        ),
        pytest.param(
            [
                call_delta(index=0, id="a", name="f", arguments='{"x": 1}'),
                call_delta(index=0, id="b", name="g", arguments='{"y": 2}'),
            ],
            id="one index for all",
        ),
        pytest.param(
            [
                call_delta(index=0, id="a", name="f", arguments='{"x'),
                call_delta(index=0, id="zz", arguments='": 1}'),
                call_delta(index=1, id="b", name="g", arguments='{"y": 2}'),
                call_delta(index=1, id="yy", arguments=" "),
            ],
            id="a new id in every delta",
        ),
        pytest.param(
            [
                call_delta(index=0, id="a", name="f", arguments='{"x": '),
                call_delta(index=0, id="a", name="f", arguments="1}"),
                call_delta(index=1, id="b", name="g", arguments='{"y": '),
                call_delta(index=1, id="b", name="g", arguments="2}"),
            ],
            id="id and name in every delta",
        ),
        pytest.param(
            [
                call_delta(index=0, id="a", name="f", arguments={"x": 1}),
                call_delta(index=1, id="b", name="g", arguments={"y": 2}),
            ],
            id="arguments as an object",
        ),
    ],
)
def test_calls_of_servers_that_stray_from_openais_shape_are_read(deltas: list[dict[str, Any]]) -> None:
    finish = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    apart, end = decode(*(chunk_of(delta) for delta in deltas), finish)
    assert ready(apart) == [("a", "f", {"x": 1}), ("b", "g", {"y": 2})]
    assert end.stop == "calls"
    together, _ = decode(chunk_of(*deltas), finish)
    assert ready(together) == ready(apart)


def test_calls_without_ids_or_with_the_same_get_ids_of_their_own() -> None:
    same = [call_delta(index=n, id="a", name="f", arguments="{}") for n in range(2)]
    none = [call_delta(name="f", arguments="{}") for _ in range(2)]
    for deltas in (same, none):
        pieces, end = decode(chunk_of(*deltas))
        ids = [call_id for call_id, _, _ in ready(pieces)]
        assert len(set(ids)) == 2
        assert ids == [each.id for each in end.message.calls]
        assert ids == [piece.id for piece in pieces if isinstance(piece, CallStarted)]


def test_made_up_ids_differ_from_one_reply_to_the_next() -> None:
    one = chunk_of(call_delta(name="f"))
    assert ChatDecoder(seed="1").feed(one) != ChatDecoder(seed="2").feed(one)


@pytest.mark.parametrize("text", ["", '{"x": '])
def test_arguments_that_the_length_cuts_off_never_run(text: str) -> None:
    pieces, end = decode(
        chunk({"tool_calls": [call_delta(index=0, id="a", name="f", arguments=text)]}),
        chunk({}, finish="length"),
    )
    assert ready(pieces) == [("a", "f", None)]
    assert end.message.calls[0].problem
    assert end.stop == "length"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thinking_of_compatible_servers_is_told_and_goes_back_with_the_calls(name: str) -> None:
    pieces, end = decode(
        {"choices": [{"index": 0, "delta": {name: "Let me "}}]},
        {"choices": [{"index": 0, "delta": {name: "think."}}]},
        chunk({"tool_calls": [call_delta(index=0, id="a", name="f", arguments="{}")]}),
        chunk({}, finish="tool_calls"),
    )
    assert pieces[:2] == [ThinkingPiece(text="Let me "), ThinkingPiece(text="think.")]
    assert end.message.parts[0] == Thinking(text="Let me think.")
    assert (
        encode(ModelRequest(messages=(ASK, end.message)), model="m")["messages"][1][name] == "Let me think."
    )


def test_a_signature_on_a_call_goes_back_with_that_call() -> None:
    delta = call_delta(index=0, id="a", name="f", arguments="{}", extra_content={"google": {"s": "x"}})
    _, end = decode(chunk_of(delta), chunk({}, finish="stop"))
    sent = encode(ModelRequest(messages=(ASK, end.message)), model="m")["messages"][1]["tool_calls"][0]
    assert sent["extra_content"] == {"google": {"s": "x"}}


def test_content_as_blocks_is_text_and_thinking() -> None:
    blocks = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "Yes"},
    ]
    pieces, _ = decode({"choices": [{"index": 0, "delta": {"content": blocks}, "finish_reason": "stop"}]})
    assert pieces == [ThinkingPiece(text="hm"), TextPiece(text="Yes")]


def test_a_refusal_is_said_and_is_the_reason() -> None:
    pieces, end = decode(chunk({"refusal": "I can't."}), chunk({}, finish="stop"))
    assert pieces == [TextPiece(text="I can't.")]
    assert (end.stop, end.reason) == ("refused", "I can't.")


def test_null_for_the_index_of_a_choice_is_the_first() -> None:
    chunk = {"choices": [{"index": None, "delta": {"content": "Hi"}}]}
    assert ChatDecoder().feed(chunk) == [TextPiece(text="Hi")]
