"""Events as lines of JSON: nothing is lost, nothing breaks a line, and no inline data gets in."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import random
from dataclasses import fields, replace
from typing import Any, get_args

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from playhead.agent.conversation import Status
from playhead.agent.events import (
    AudioEnd,
    CallResponse,
    CallStatus,
    Event,
    Failed,
    TextDelta,
    ToolCallBegin,
    ToolCallResponse,
    ToolComplete,
    ToolProgress,
    ToolRef,
    Usage,
    from_json,
    to_json,
)
from playhead.errors import RecordingError
from playhead.results.model_text import without_inline_data

BEGIN = ToolCallBegin(
    round=1, tool=ToolRef(id="a", name="home__play", arguments={"title": "Für Elise"}, status="invoking")
)
BASE64 = base64.b64encode(random.Random(1).randbytes(900)).decode()

_TEXTS = st.text().filter(lambda text: without_inline_data(text) == text)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)


_OPTIONAL = st.none() | _TEXTS
_TOKENS = st.none() | st.integers()
_STATUS = st.sampled_from(get_args(Status))
_TOOL = st.builds(
    ToolRef,
    id=_TEXTS,
    name=_TEXTS,
    arguments=st.none() | st.dictionaries(_TEXTS, _JSON, max_size=3),
    status=st.sampled_from(get_args(CallStatus)),
)
_RESPONSE = st.builds(
    CallResponse,
    id=_TEXTS,
    name=_TEXTS,
    text=_TEXTS,
    status=_STATUS,
    media=st.lists(_TEXTS, max_size=2).map(tuple),
)
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "round": st.integers(),
    "tool": _TOOL,
    "result": _RESPONSE,
    "responses": st.lists(_RESPONSE, max_size=3).map(tuple),
    "status": _STATUS,
    "progress": st.floats(allow_nan=False),
    "seconds": st.floats(allow_nan=False),
    "patience_seconds": st.floats(allow_nan=False),
    "total": st.none() | st.floats(allow_nan=False),
    "size_bytes": st.integers(),
    "input_tokens": _TOKENS,
    "output_tokens": _TOKENS,
    "message": _OPTIONAL,
}


def _events(kind: type[Event]) -> st.SearchStrategy[Event]:
    """Texts where nothing else is said; None too, where a field may be."""
    texts = {one.name: _OPTIONAL if "None" in str(one.type) else _TEXTS for one in fields(kind)}
    return st.builds(kind, **{name: _FIELDS.get(name, text) for name, text in texts.items()})


EVENTS = st.one_of([_events(kind) for kind in get_args(Event)])


@given(event=EVENTS)
def test_what_is_written_is_read_back_equal(event: Event) -> None:
    line = to_json(event)
    assert line.isascii()
    assert "\n" not in line
    assert "\r" not in line
    assert json.loads(line)["type"] == event.type
    assert from_json(line) == event
    assert type(from_json(line)) is type(event)


def test_every_type_has_its_own_name() -> None:
    kinds = get_args(Event)
    assert len({kind.type for kind in kinds}) == len(kinds) == 19


def test_a_line_is_what_the_documentation_shows() -> None:
    assert to_json(BEGIN) == (
        '{"type":"mcp_tool_call_begin","round":1,"tool":{"id":"a","name":"home__play",'
        '"arguments":{"title":"F\\u00fcr Elise"},"status":"invoking"}}'
    )


def test_line_breaks_of_every_kind_stay_inside_the_line() -> None:
    text = "a\nb\r\nc\u2028d\x85e\x00f"
    assert len(to_json(TextDelta(round=1, text=text)).splitlines()) == 1
    assert from_json(to_json(TextDelta(round=1, text=text))) == TextDelta(round=1, text=text)


# --- what may not get in -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"image": BASE64},
        {"image": f"data:image/png;base64,{BASE64}"},
        {"list": [{"x": f"see {BASE64} there"}]},
        {"data": BASE64[:100]},
        {"blob": [BASE64[:100]]},
        {BASE64: 1},
    ],
)
def test_inline_data_in_arguments_is_replaced(arguments: dict[str, Any]) -> None:
    line = to_json(replace(BEGIN, tool=replace(BEGIN.tool, arguments=arguments)))
    assert BASE64[:80] not in line
    assert "characters of inline data left out" in line
    assert from_json(line) is not None


@pytest.mark.parametrize(
    "event",
    [
        TextDelta(round=1, text=BASE64),
        Failed(round=1, error=f"came {BASE64}"),
        ToolCallResponse(
            round=1,
            tool=BEGIN.tool,
            result=CallResponse(id="a", name="n", text=f"data:audio/wav;base64,{BASE64}", status="done"),
        ),
    ],
)
def test_inline_data_in_texts_is_replaced(event: Event) -> None:
    assert BASE64[:80] not in to_json(event)


def test_what_json_cannot_hold_is_named() -> None:
    odd = {"nan": math.nan, "inf": -math.inf, "object": object(), "bytes": b"x", "lone": "\ud800", "deep": {}}
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    back = from_json(to_json(replace(BEGIN, tool=replace(BEGIN.tool, arguments=odd | {"deep": deep}))))
    assert isinstance(back, ToolCallBegin)
    assert back.tool.arguments is not None
    assert back.tool.arguments["nan"] == "NaN"
    assert back.tool.arguments["inf"] == "-Infinity"
    assert back.tool.arguments["object"] == "[a object]"
    assert back.tool.arguments["bytes"] == "[a bytes]"
    assert back.tool.arguments["lone"] == "\ufffd"
    assert "nested more than 128 deep" in to_json(
        replace(BEGIN, tool=replace(BEGIN.tool, arguments={"deep": deep}))
    )


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
def test_progress_that_is_not_finite_comes_back(odd: float) -> None:
    event = ToolProgress(round=1, tool=BEGIN.tool, progress=odd, total=None, message=None)
    back = from_json(to_json(event))
    assert isinstance(back, ToolProgress)
    assert back.progress == odd or (math.isnan(odd) and math.isnan(back.progress))


@given(text=st.text(alphabet="ab c", min_size=1), chars=st.integers(1, 40))
@example(text="a" * 100, chars=1)
def test_long_texts_are_cut_in_the_middle(text: str, chars: int) -> None:
    assume(len(text) > chars)
    back = from_json(to_json(TextDelta(round=1, text=text), text_chars=chars))
    assert isinstance(back, TextDelta)
    half = chars // 2
    assert (
        back.text
        == f"{text[:half]}[… {len(text) - 2 * half} characters left out …]{text[len(text) - half :]}"
    )


# --- lines that are no event, or not ours ------------------------------------------------------------


def test_a_type_of_a_newer_version_is_passed_over() -> None:
    assert from_json('{"type":"hologram_start","round":1}') is None


def test_keys_of_a_newer_version_are_passed_over() -> None:
    raw = json.loads(to_json(BEGIN))
    raw["new"], raw["tool"]["new"] = 1, 2
    assert from_json(json.dumps(raw)) == BEGIN


def test_a_key_with_a_default_may_be_missing() -> None:
    assert from_json('{"type":"audio_end","round":1,"title":"x"}') == AudioEnd(round=1, title="x")


TOOL = {"id": "a", "name": "n", "arguments": {}, "status": "pending"}
RESPONSE = {"id": "a", "name": "n", "text": "", "status": "done"}


@pytest.mark.parametrize(
    ("raw", "key", "told"),
    [
        ({}, "type", "expected a string, got null"),
        ({"type": 5}, "type", "expected a string, got a number"),
        ({"type": "text_delta", "text": "x"}, "round", "is missing"),
        (
            {"type": "text_delta", "round": "1", "text": "x"},
            "round",
            "expected an integer, got a string",
        ),
        ({"type": "text_delta", "round": True, "text": "x"}, "round", "expected an integer, got a boolean"),
        ({"type": "text_delta", "round": 1, "text": None}, "text", "expected a string, got null"),
        ({"type": "mcp_tool_pending", "round": 1, "tool": []}, "tool", "expected an object, got an array"),
        (
            {"type": "mcp_tool_pending", "round": 1, "tool": TOOL | {"status": "done!"}},
            "tool.status",
            "expected 'pending', 'invoking', 'done', 'error' or 'cancelled', got another one",
        ),
        (
            {"type": "mcp_tool_pending", "round": 1, "tool": TOOL | {"arguments": "{}"}},
            "tool.arguments",
            "expected an object",
        ),
        (
            {"type": "mcp_tool_complete", "round": 1, "responses": {}},
            "responses",
            "expected an array, got an object",
        ),
        (
            {"type": "mcp_tool_complete", "round": 1, "responses": [RESPONSE, RESPONSE | {"media": [1]}]},
            "responses[1].media[0]",
            "expected a string, got a number",
        ),
        (
            {"type": "mcp_tool_complete", "round": 1, "responses": [{"id": "a"}]},
            "responses[0].name",
            "is missing",
        ),
        (
            {
                "type": "mcp_tool_progress",
                "round": 1,
                "tool": TOOL,
                "progress": "1",
                "total": 1,
                "message": None,
            },
            "progress",
            "expected a number",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_key(raw: object, key: str, told: str) -> None:
    with pytest.raises(RecordingError) as caught:
        from_json(json.dumps(raw))
    assert caught.value.key == key
    assert str(caught.value).startswith(f"{key}: ")
    assert told in str(caught.value)


def test_an_error_holds_no_value() -> None:
    with pytest.raises(RecordingError) as caught:
        from_json('{"type":"usage","round":1,"input_tokens":"sk-secret","output_tokens":null}')
    assert str(caught.value) == "input_tokens: expected an integer, got a string"
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "line", ["", "nonsense", "[]", "3", '{"type":"usage"', b"\xff\xfe\xfd", '{"type":NaN}', "[" * 100_000]
)
def test_a_line_that_is_no_object_is_refused(line: str | bytes) -> None:
    with pytest.raises(RecordingError, match="expected"):
        from_json(line)


@given(line=st.text() | st.binary())
def test_no_line_does_more_than_be_refused(line: str | bytes) -> None:
    with contextlib.suppress(RecordingError):
        from_json(line)


@given(event=EVENTS, data=st.data())
def test_no_wrong_value_gets_past_the_reader(event: Event, data: st.DataObject) -> None:
    raw = json.loads(to_json(event))
    key = data.draw(st.sampled_from(sorted(raw)))
    raw[key] = data.draw(_JSON)
    try:
        back = from_json(json.dumps(raw))
    except RecordingError:
        return
    assert back is None or from_json(to_json(back)) == back


def test_statuses_are_those_of_the_conversation() -> None:
    for status in get_args(Status):
        event = ToolComplete(
            round=1,
            responses=(CallResponse(id="a", name="n", text="t", status=status, media=("image/png",)),),
        )
        assert from_json(to_json(event)) == event


def test_numbers_that_are_not_told_are_null() -> None:
    event = Usage(round=1, input_tokens=None, output_tokens=3)
    assert to_json(event) == '{"type":"usage","round":1,"input_tokens":null,"output_tokens":3}'
