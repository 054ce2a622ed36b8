"""Laws of every codec, each run for every provider: what goes out is taken, what arrives is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.agent.conversation import (
    AssistantMessage,
    CallReady,
    CallStarted,
    Message,
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
)
from playhead.agent.models import anthropic, gemini, openai_chat, openai_responses
from playhead.agent.models.http_reply import ReplyDecoder
from playhead.agent.models.json_fields import parse_arguments
from playhead.errors import ModelError, UsageError
from playhead.limits import MIB
from playhead.protocol.event_stream import EventStream
from playhead.protocol.framing import Line
from tests.loop_kit import user
from tests.servers.providers.models import frames_of
from tests.servers.providers.script import Ask, ProviderName, Reply, Say, Think
from tests.servers.providers.validate import check_request
from tests.servers.providers.wire_server import Captured

Json = dict[str, Any]
ENCODERS: dict[ProviderName, ModuleType] = {
    "openai": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
}
DECODERS: dict[ProviderName, Callable[[], ReplyDecoder]] = {
    "openai": openai_chat.ChatDecoder,
    "openai-responses": openai_responses.ResponsesDecoder,
    "anthropic": anthropic.AnthropicDecoder,
    "gemini": gemini.GeminiDecoder,
}
every_codec = pytest.mark.parametrize("provider", ENCODERS)
ASK = user("Play")


def encoded(provider: ProviderName, *messages: Message) -> Json:
    """The body of a request with these messages, which its provider takes."""
    codec = ENCODERS[provider]
    body: Json = codec.encode(ModelRequest(messages=(ASK, *messages)), model="m")
    if not messages or not isinstance(messages[-1], AssistantMessage):
        check_request(Captured(provider, "m", "/", {}, body), is_openai=False)
    return body


def decode(provider: ProviderName, events: Iterable[Json]) -> tuple[list[ReplyPiece], ReplyEnd]:
    decoder = DECODERS[provider]()
    pieces = [piece for event in events for piece in decoder.feed(event)]
    assert decoder.ended
    pieces += decoder.finish()
    end = pieces.pop()
    assert isinstance(end, ReplyEnd)
    return pieces, end


def read(provider: ProviderName, *parts: Say | Think | Ask) -> tuple[list[ReplyPiece], ReplyEnd]:
    """A reply as its provider sends it, decoded."""
    stream = EventStream(max_bytes=MIB, every_type=True)
    stream.feed(b"".join(frames_of(provider, Reply(*parts))))
    texts = [event.data for event in iter(stream.next_event, None) if isinstance(event, Line)]
    return decode(provider, [json.loads(text) for text in texts if text != b"[DONE]"])


def call(call_id: str, name: str = "f", text: str = "{}") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=json.loads(text), arguments_text=text)


def results(*calls: ToolCall) -> ToolMessage:
    return ToolMessage(
        results=tuple(ToolResult(call_id=each.id, name=each.name, text="ok") for each in calls)
    )


# --- replies -------------------------------------------------------------------------------------------


def joined(pieces: Iterable[ReplyPiece]) -> list[ReplyPiece]:
    """The pieces, with neighbouring texts and thoughts made one."""
    made: list[ReplyPiece] = []
    for piece in pieces:
        last = made[-1] if made else None
        if isinstance(piece, TextPiece | ThinkingPiece) and type(last) is type(piece):
            made[-1] = replace(piece, text=last.text + piece.text)
        else:
            made.append(piece)
    return made


SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=4)


@every_codec
@given(SIZES, SIZES)
def test_a_reply_is_the_same_however_its_deltas_are_cut(
    provider: ProviderName, say: list[int], ask: list[int]
) -> None:
    calls = [call("a", "f", '{"x": {"y": "}ü"}}'), call("b", "f"), call("c", "g", '{"z": ["{", 1, 2.5]}')]
    asks = [Ask(each.id, each.name, each.arguments_text, ask) for each in calls]
    pieces, end = read(provider, Think("Three."), Say("One 🎵 two.", say), *asks)
    told = joined(pieces)
    assert told[:2] == [ThinkingPiece(text="Three."), TextPiece(text="One 🎵 two.")]
    started = [CallStarted(id=each.id, name=each.name) for each in calls]
    assert [piece for piece in told if isinstance(piece, CallStarted)] == started
    for number, each in enumerate(calls):
        ready = [piece.call for piece in told if isinstance(piece, CallReady)][number]
        assert (ready.id, ready.name, ready.arguments) == (each.id, each.name, each.arguments)
        assert told.index(started[number]) < told.index(CallReady(call=ready))
    thinking, text, *made = end.message.parts
    assert (thinking, text) == (Thinking(text="Three."), Text(text="One 🎵 two."))
    assert made == [piece.call for piece in told if isinstance(piece, CallReady)]
    assert (end.stop, end.reason) == ("calls", "")
    assert end.usage == TokenUsage(input_tokens=10, output_tokens=5)
    assert end.message.provider == provider
    assert encoded(provider, end.message, results(*calls))


NO_OBJECTS = ("[1]", '"Bern"', "7")
NO_JSON = ('{"city": ', '{"n": NaN}', '{"n": 1e999}', "[" * 100_000)


@pytest.mark.parametrize(
    ("provider", "text"),
    [
        *((provider, text) for provider in ENCODERS for text in NO_OBJECTS),
        *((provider, text) for provider in ENCODERS if provider != "gemini" for text in NO_JSON),
    ],
)
def test_arguments_that_are_not_an_object_are_explained_and_can_be_sent_back(
    provider: ProviderName, text: str
) -> None:
    pieces, end = read(provider, Ask("a", "f", text, [1000]))
    (made,) = end.message.calls
    assert CallReady(call=made) in pieces
    assert (made.arguments, made.arguments_text) == (None, text)
    assert made.problem.startswith("the arguments ")
    assert encoded(provider, end.message, results(made))


@every_codec
def test_no_arguments_at_all_are_an_empty_object(provider: ProviderName) -> None:
    _, end = read(provider, Ask("a", "f", "null" if provider == "gemini" else ""))
    assert end.message.calls[0].arguments == {}


@every_codec
def test_calls_without_a_name_or_an_id_of_their_own_do_not_end_the_reply(provider: ProviderName) -> None:
    pieces, end = read(provider, Ask("a", "f"), Ask("a", "f"), Ask("b", ""), Ask("", "f"))
    calls = end.message.calls
    assert [piece.call for piece in pieces if isinstance(piece, CallReady)] == list(calls)
    assert [each.name for each in calls] == ["f", "f", "unnamed", "f"]
    assert [each.problem for each in calls] == ["", "", "the call has no name", ""]
    assert calls[2].arguments is None
    alone = replace(end.message, parts=(calls[2],), raw=())
    assert encoded(provider, alone, results(calls[2]))


def chat_end(reason: str) -> list[Json]:
    return [
        {"choices": [{"delta": {"content": "Hi"}}]},
        {"choices": [{"delta": {}, "finish_reason": reason}]},
    ]


def responses_end(reason: str) -> list[Json]:
    response = {"incomplete_details": {"reason": reason}} if reason else {}
    delta = {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"}
    return [delta, {"type": "response.incomplete", "response": response}]


def anthropic_end(reason: str) -> list[Json]:
    block = {"type": "text", "text": "Hi"}
    return [
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}},
    ]


def gemini_end(reason: str) -> list[Json]:
    content = {"parts": [{"text": "Hi"}]}
    return [{"candidates": [{"content": content}]}, {"candidates": [{"finishReason": reason}]}]


@pytest.mark.parametrize(
    ("provider", "events", "stop", "reason"),
    [
        ("openai", chat_end("stop"), "end", ""),
        ("openai", chat_end("length"), "length", ""),
        ("openai", chat_end("content_filter"), "refused", "content_filter"),
        ("openai-responses", responses_end(""), "end", ""),
        ("openai-responses", responses_end("max_output_tokens"), "length", ""),
        ("openai-responses", responses_end("content_filter"), "refused", "content_filter"),
        ("anthropic", anthropic_end("end_turn"), "end", ""),
        ("anthropic", anthropic_end("stop_sequence"), "end", "stop_sequence"),
        ("anthropic", anthropic_end("max_tokens"), "length", "max_tokens"),
        (
            *("anthropic", anthropic_end("model_context_window_exceeded")),
            *("length", "model_context_window_exceeded"),
        ),
        ("anthropic", anthropic_end("pause_turn"), "other", "pause_turn"),
        ("anthropic", anthropic_end("refusal"), "refused", "refusal"),
        ("gemini", gemini_end("STOP"), "end", ""),
        ("gemini", gemini_end("MAX_TOKENS"), "length", "MAX_TOKENS"),
        ("gemini", gemini_end("SAFETY"), "refused", "SAFETY"),
        ("gemini", gemini_end("RECITATION"), "refused", "RECITATION"),
        ("gemini", gemini_end("MALFORMED_FUNCTION_CALL"), "other", "MALFORMED_FUNCTION_CALL"),
        ("gemini", gemini_end("UNEXPECTED_TOOL_CALL"), "other", "UNEXPECTED_TOOL_CALL"),
        ("gemini", gemini_end("OTHER"), "other", "OTHER"),
    ],
)
def test_a_reply_says_why_it_ends(provider: ProviderName, events: list[Json], stop: str, reason: str) -> None:
    _, end = decode(provider, events)
    assert (end.stop, end.reason, end.message.text) == (stop, reason, "Hi")


@every_codec
def test_events_that_a_later_version_adds_change_nothing(provider: ProviderName) -> None:
    decoder = DECODERS[provider]()
    assert [decoder.feed(event) for event in ({"type": "news"}, {}, {"type": 5})] == [[], [], []]


BLOCK = {"type": "text", "text": ""}
OPEN = {"type": "content_block_start", "index": 0, "content_block": BLOCK}
DELTA = {"type": "response.output_text.delta", "output_index": 0}


@pytest.mark.parametrize(
    ("provider", "events"),
    [
        ("openai", [{"choices": 7}]),
        ("openai", [{"choices": [1]}]),
        ("openai", [{"choices": [{"delta": {"tool_calls": ["x"]}}]}]),
        ("openai-responses", [{"type": "response.output_item.added", "output_index": "0", "item": {}}]),
        ("openai-responses", [{"type": "response.output_item.done", "output_index": 0, "item": 7}]),
        ("openai-responses", [DELTA]),
        ("openai-responses", [{**DELTA, "delta": "Yes"}]),
        ("openai-responses", [{"type": "response.completed"}]),
        ("anthropic", [{"type": "content_block_stop", "index": 0}]),
        ("anthropic", [OPEN, OPEN]),
        ("anthropic", [{"type": "content_block_delta", "delta": {}}]),
        ("anthropic", [OPEN, *anthropic_end("end_turn")[2:]]),
        ("anthropic", [{"type": "message_start", "message": {}}]),
        ("gemini", gemini_end("STOP")[:1]),
        ("gemini", [{"candidates": 5}]),
        ("gemini", [{"candidates": [None]}]),
        *((provider, []) for provider in ENCODERS),
    ],
)
def test_events_that_cannot_be_right_are_the_providers_fault(
    provider: ProviderName, events: list[Json]
) -> None:
    decoder = DECODERS[provider]()

    def decode() -> None:
        for event in events:
            decoder.feed(event)
        decoder.finish()

    with pytest.raises(ModelError, match=r"expected|block") as caught:
        decode()
    assert caught.value.provider == provider


@pytest.mark.parametrize(
    ("provider", "event"),
    [
        ("openai", {"error": {"message": "E: %s", "code": 502}}),
        ("openai-responses", {"type": "error", "code": "E", "message": "%s"}),
        ("openai-responses", {"type": "error", "error": {"code": "E", "message": "%s"}}),
        ("openai-responses", {"error": {"code": "E", "message": "%s"}}),
        (
            "openai-responses",
            {"type": "response.failed", "response": {"error": {"code": "E", "message": "%s"}}},
        ),
        ("anthropic", {"type": "error", "error": {"type": "E", "message": "%s"}}),
        ("gemini", {"error": {"code": 503, "status": "E", "message": "%s"}}),
    ],
)
def test_an_error_in_the_stream_is_quoted_only_at_its_beginning(provider: ProviderName, event: Json) -> None:
    told = json.loads(json.dumps(event).replace("%s", "overloaded " * 1000))
    with pytest.raises(ModelError, match="E: overloaded") as caught:
        DECODERS[provider]().feed(told)
    assert len(str(caught.value)) < 400


# --- requests ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [anthropic, gemini])
def test_a_conversation_of_nothing_is_refused_before_it_is_sent(codec: Any) -> None:
    with pytest.raises(UsageError, match="expected text or attachments"):
        codec.encode(ModelRequest(messages=(user(""),)), model="m")


@every_codec
def test_another_providers_reply_is_written_anew_without_its_thinking(provider: ProviderName) -> None:
    made, broken = call("call:1/ü"), replace(call("b"), arguments=None, arguments_text="{")
    foreign = AssistantMessage(
        parts=(Thinking(text="hmmm"), Text(text="Yes."), made, broken),
        provider="prompt",
        raw=({"type": "thinking", "text": "theirs"},),
    )
    text = json.dumps(encoded(provider, foreign, results(made, broken)))
    assert "Yes." in text
    assert "theirs" not in text
    assert "hmmm" not in text


def values_of(body: Any, key: str) -> list[Any]:
    """All that stands under `key`, in order."""
    if isinstance(body, list):
        return [found for each in body for found in values_of(each, key)]
    if not isinstance(body, dict):
        return []
    own = [body[key]] if key in body else []
    return own + [found for each in body.values() for found in values_of(each, key)]


RAW: dict[ProviderName, Callable[[str], Json]] = {
    "anthropic": lambda name: {"type": "tool_use", "id": "a", "name": name, "input": {}},
    "openai-responses": lambda name: {
        "type": "function_call",
        "call_id": "a",
        "name": name,
        "arguments": "{}",
    },
    "gemini": lambda name: {"functionCall": {"id": "a", "name": name, "args": {}}},
    "openai": lambda name: {"tool_calls": {}},
}


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("name", ["functions read/ü", "x" * 70, ""])
@every_codec
def test_a_name_that_a_model_made_up_goes_back_as_one_that_is_taken(
    provider: ProviderName, name: str, own: bool
) -> None:
    message = AssistantMessage(parts=(call("a", name),), provider=provider if own else None)
    message = replace(message, raw=(RAW[provider](name),) if own else ())
    names = values_of(encoded(provider, message, results(call("a", name))), "name")
    assert names
    assert len(set(names)) == 1
    assert 0 < len(names[0]) <= 64
    assert set(names[0]) <= set("_xfunctionsread" if name else "unnamed")


def test_gemini_gets_names_that_begin_with_a_letter_and_its_own_dots_back() -> None:
    calls = (call("a", "2fast"), call("b", "default_api.read"))
    body = encoded("gemini", AssistantMessage(parts=calls), results(*calls))
    assert values_of(body, "name") == ["_2fast", "default_api.read"] * 2


@pytest.mark.parametrize("ids", [("a", "late"), ()])
@every_codec
def test_calls_that_a_middleware_added_or_took_away_match_their_results(
    provider: ProviderName, ids: tuple[str, ...]
) -> None:
    calls = tuple(map(call, ids))
    message = AssistantMessage(
        parts=(Text(text="Yes."), *calls), provider=provider, raw=(RAW[provider]("f"),)
    )
    history = [message, results(*calls)] if ids else [message]
    text = json.dumps(encoded(provider, *history, ASK))
    found = {
        "anthropic": (text.count('"tool_use"'), text.count('"tool_result"')),
        "openai-responses": (text.count('"function_call"'), text.count('"function_call_output"')),
        "gemini": (text.count('"functionCall"'), text.count('"functionResponse"')),
        "openai": (text.count('"arguments"'), text.count('"tool"')),
    }
    assert found[provider] == (len(ids), len(ids))


@pytest.mark.parametrize("depth", [200, 700, 900, 5000])
@every_codec
def test_arguments_nested_too_deeply_fail_no_later_request(provider: ProviderName, depth: int) -> None:
    text = '{"a":' + "[" * depth + "]" * depth + "}"
    arguments, problem = parse_arguments(text)
    assert (arguments, problem) == (None, "the arguments are nested too deeply, or hold too many values")
    made = ToolCall(id="a", name="f", arguments=arguments, arguments_text=text, problem=problem)
    assert json.dumps(encoded(provider, AssistantMessage(parts=(made,)), results(made)))
