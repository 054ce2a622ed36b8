"""Structured responses: the exact JSON of each type, both ways, and what is refused."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import ClassVar

import pytest
from mcp_types import AudioContent, TextContent

from playhead.content import TypedContent
from playhead.errors import ProtocolError, ResponseError, ResponseTypeError, UsageError
from playhead.results.responses import (
    DEFAULT_REGISTRY,
    ActionResponse,
    AudioResponse,
    ContentResponse,
    ErrorResponse,
    StructuredResponse,
    action_response,
    audio_response,
    content_response,
    error_response,
    parse_response,
)

ACTION = (
    '{"type":"action","success":true,"timestamp":1700000000,"tool_name":"lights","action":"switch_off",'
    '"message":"The lights are <off> & out","status":"done","metadata":{"room":"kitchen"},'
    '"final_action":false,"no_further_response":true,"silence_llm":false,"user_state":"sleeping",'
    '"instruction":"say nothing"}'
)
AUDIO = (
    '{"type":"audio","success":true,"timestamp":1700000000,"tool_name":"player","data":"UklGRg==",'
    '"music_name":"First Light","action":"play","status":"playing","metadata":{"artist":"é"},'
    '"final_action":true}'
)
CONTENT = (
    '{"type":"content","success":true,"timestamp":1700000000,"tool_name":"search",'
    '"data":{"z":[1,-2.5,null,true,"x"],"a":{"big":12345678901234567890}},"message":"2 found"}'
)
ERROR = (
    '{"type":"error","success":false,"timestamp":1700000000,"tool_name":"search","error":"no such index",'
    '"error_code":"NOT_FOUND","details":{"index":"x"},"suggestion":"list them first"}'
)
SHORT_ACTION = (
    '{"type":"action","success":true,"timestamp":0,"tool_name":"t","action":"a","message":"m","status":"",'
    '"final_action":false,"no_further_response":false,"silence_llm":false,"user_state":""}'
)
SHORT_AUDIO = (
    '{"type":"audio","success":true,"timestamp":0,"tool_name":"t","data":null,"music_name":"",'
    '"action":"a","status":"s","final_action":false}'
)
SHORT_CONTENT = '{"type":"content","success":true,"timestamp":0,"tool_name":"t","data":null,"message":"m"}'
SHORT_ERROR = '{"type":"error","success":false,"timestamp":0,"tool_name":"t","error":"e"}'

FULL = {"action": ACTION, "audio": AUDIO, "content": CONTENT, "error": ERROR}
SHORT = {"action": SHORT_ACTION, "audio": SHORT_AUDIO, "content": SHORT_CONTENT, "error": SHORT_ERROR}
TYPES = {
    "action": ActionResponse,
    "audio": AudioResponse,
    "content": ContentResponse,
    "error": ErrorResponse,
}


@pytest.mark.requirement("SR-01", "SR-03", "SR-15")
@pytest.mark.parametrize("kind", FULL)
@pytest.mark.parametrize("texts", [FULL, SHORT], ids=["every key", "no optional key"])
def test_documented_json_is_read_and_written_back_identically(kind: str, texts: dict[str, str]) -> None:
    response = parse_response(texts[kind])
    assert type(response) is TYPES[kind]
    assert response.to_json() == texts[kind]


@pytest.mark.requirement("SR-10", "SR-11", "SR-12")
def test_constructors_give_the_documented_json() -> None:
    made = {
        "action": action_response("t", "a", "m", "", timestamp=0),
        "audio": audio_response("t", "a", "s", timestamp=0),
        "content": content_response("t", None, "m", timestamp=0),
        "error": error_response("t", "e", timestamp=0),
    }
    assert {kind: response.to_json() for kind, response in made.items()} == SHORT


@pytest.mark.requirement("SR-09", "SR-10")
def test_a_terminal_action_sets_all_three_flags_and_terminal_audio_only_its_own() -> None:
    action = action_response("t", "a", "m", "s", terminal=True, timestamp=0)
    assert (action.final_action, action.no_further_response, action.silence_llm) == (True, True, True)
    assert audio_response("t", "a", "s", terminal=True, timestamp=0).final_action
    assert error_response("t", "e", timestamp=0).success is False


@pytest.mark.requirement("SR-02")
def test_a_response_made_without_a_time_is_stamped_with_now() -> None:
    assert action_response("t", "a", "m", "s").timestamp > 1_700_000_000


@pytest.mark.requirement("SR-04")
def test_the_compatible_mode_escapes_as_go_does() -> None:
    response = content_response("t", {"z": "<&>", "a": "\u2028"}, "a < b \u2029 é", timestamp=0)
    assert response.to_json(compat=True) == (
        '{"type":"content","success":true,"timestamp":0,"tool_name":"t",'
        '"data":{"z":"\\u003c\\u0026\\u003e","a":"\\u2028"},"message":"a \\u003c b \\u2029 é"}'
    )
    assert '"a < b \u2029 é"' in response.to_json()


def test_the_compatible_mode_sorts_metadata_and_leaves_empty_optional_values_out() -> None:
    response = action_response("t", "a", "m", "s", metadata={"b": "2", "a": "1"}, instruction="", timestamp=0)
    assert '"metadata":{"a":"1","b":"2"}' in response.to_json(compat=True)
    assert "instruction" not in response.to_json(compat=True)
    assert response.to_json().endswith('"user_state":"","instruction":""}')
    empty = action_response("t", "a", "m", "s", metadata={}, timestamp=0)
    assert "metadata" not in empty.to_json(compat=True)
    assert '"metadata":{}' in empty.to_json()


@pytest.mark.parametrize("kind", FULL)
def test_both_modes_mean_the_same(kind: str) -> None:
    response = parse_response(FULL[kind])
    assert parse_response(response.to_json(compat=True)) == response


@pytest.mark.requirement("SR-05", "SR-06")
@pytest.mark.parametrize(
    ("flags", "terminal", "stops"),
    [
        ({}, False, False),
        ({"final_action": True}, True, True),
        ({"no_further_response": True}, True, True),
        ({"silence_llm": True}, False, True),
    ],
)
def test_an_action_is_terminal_by_two_flags_and_stops_the_model_by_three(
    flags: dict[str, bool], terminal: bool, stops: bool
) -> None:
    response = parse_response(json.dumps(json.loads(SHORT_ACTION) | flags))
    assert (response.is_terminal, response.stops_model) == (terminal, stops)


@pytest.mark.requirement("SR-05")
def test_only_actions_and_final_audio_can_be_terminal() -> None:
    assert parse_response(AUDIO).is_terminal
    assert not parse_response(SHORT_AUDIO).is_terminal
    assert not parse_response(CONTENT).stops_model
    assert not parse_response(ERROR).stops_model


def test_the_action_is_named_by_the_types_that_have_one() -> None:
    assert [parse_response(text).action_name for text in FULL.values()] == ["switch_off", "play", None, None]


@pytest.mark.requirement("SR-07", "SR-08")
def test_content_is_the_message_the_error_or_the_title_and_then_the_sound() -> None:
    assert parse_response(CONTENT).content() == (TextContent(type="text", text="2 found"),)
    assert parse_response(ERROR).content() == (TextContent(type="text", text="no such index"),)
    assert parse_response(AUDIO).content() == (
        TextContent(type="text", text="First Light"),
        AudioContent(type="audio", data="UklGRg==", mime_type="application/octet-stream"),
    )
    assert parse_response(SHORT_AUDIO).content() == (TextContent(type="text", text=""),)


def test_the_type_of_sound_is_told_from_its_first_bytes() -> None:
    block = audio_response("t", "play", "ok", data="SUQzBAAAAAAA", timestamp=0).content()[1]
    assert isinstance(block, AudioContent)
    assert block.mime_type == "audio/mpeg"


@pytest.mark.requirement("SR-13")
def test_keys_are_matched_without_regard_to_case_and_written_as_documented() -> None:
    shouted = (
        "{" + ",".join(f"{json.dumps(k.upper())}:{json.dumps(v)}" for k, v in json.loads(ERROR).items()) + "}"
    )
    assert parse_response(shouted).to_json() == ERROR


def test_unknown_keys_are_kept_and_written_back_behind_the_known_ones() -> None:
    text = ERROR[:-1] + ',"Trace":{"b":1,"a":[]}}'
    response = parse_response(text)
    assert response.extra == {"Trace": {"b": 1, "a": []}}
    assert response.to_json() == text


def test_of_a_key_that_comes_twice_the_last_counts() -> None:
    response = parse_response(SHORT_ERROR[:-1] + ',"error":"second","ERROR":"third"}')
    assert isinstance(response, ErrorResponse)
    assert response.error == "third"
    assert '"error":"third"' in response.to_json()


@pytest.mark.requirement("SR-14")
def test_an_unknown_type_is_an_error_that_names_it() -> None:
    with pytest.raises(ResponseTypeError, match="'hologram'") as caught:
        parse_response('{"type":"hologram","success":true,"tool_name":"t"}')
    assert caught.value.code == "INVALID_TYPE"
    assert isinstance(caught.value, ProtocolError)
    with pytest.raises(ResponseTypeError, match="nothing"):
        parse_response("{}")


@pytest.mark.requirement("SR-17")
@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        ("success", "yes", "$.success"),
        ("timestamp", 1.5, "$.timestamp"),
        ("timestamp", True, "$.timestamp"),
        ("tool_name", None, "$.tool_name"),
        ("action", 1, "$.action"),
        ("metadata", {"room": 1}, "$.metadata.room"),
        ("metadata", [], "$.metadata"),
        ("silence_llm", "true", "$.silence_llm"),
        ("instruction", {}, "$.instruction"),
    ],
)
def test_a_field_of_a_wrong_type_is_an_error_with_its_path(key: str, value: object, path: str) -> None:
    with pytest.raises(ResponseError) as caught:
        parse_response(json.dumps(json.loads(ACTION) | {key: value}))
    assert (caught.value.code, caught.value.path) == ("INVALID_FIELD", path)
    assert path in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "needed"),
    [("action", "message"), ("audio", "music_name"), ("content", "message"), ("error", "error")],
)
def test_what_a_response_cannot_be_understood_without_has_to_be_there(kind: str, needed: str) -> None:
    raw = json.loads(FULL[kind])
    del raw[needed]
    with pytest.raises(ResponseError, match="got nothing") as caught:
        parse_response(json.dumps(raw))
    assert caught.value.path == f"$.{needed}"


def test_missing_flags_time_and_status_have_their_zero_values() -> None:
    text = '{"type":"action","success":true,"tool_name":"t","action":"a","message":"m"}'
    assert parse_response(text).to_json() == SHORT_ACTION


@pytest.mark.parametrize(
    "text",
    ["", "{", "nonsense", '{"a":NaN}', "[" * 100_000, '"\\ud800"', "\ud800", '{"a":' + "9" * 5000 + "}"],
    ids=["empty", "open", "word", "NaN", "deep", "half a surrogate", "bare surrogate", "5000 digits"],
)
def test_what_is_no_json_is_an_error_that_says_so(text: str) -> None:
    with pytest.raises(ResponseError) as caught:
        parse_response(text)
    assert caught.value.code == "INVALID_JSON"


def test_a_list_is_no_response() -> None:
    with pytest.raises(ResponseError, match="an array"):
        parse_response("[1]")


@pytest.mark.parametrize("where", ["data", "elsewhere"])
def test_a_number_that_no_double_can_hold_is_refused_rather_than_read_as_infinite(where: str) -> None:
    text = f'{{"type":"content","success":true,"tool_name":"t","message":"m","{where}":[[1e999]]}}'
    with pytest.raises(ResponseError, match="larger") as caught:
        parse_response(text)
    assert caught.value.path == f"$.{where}"


def test_what_json_cannot_hold_is_the_makers_fault() -> None:
    with pytest.raises(UsageError, match="JSON"):
        content_response("t", float("nan"), "m", timestamp=0).to_json()
    with pytest.raises(UsageError, match="JSON"):
        content_response("t", object(), "m", timestamp=0).to_json()


def test_half_a_surrogate_is_written_as_an_escape() -> None:
    text = content_response("t", None, "\ud800", timestamp=0).to_json()
    assert text.isascii()
    assert '"message":"\\ud800"' in text


class Mood(enum.Enum):
    CALM = "calm"


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResponse(StructuredResponse):
    type: ClassVar[str] = "poll"

    question: str
    choices: tuple[str, ...]
    mood: Mood | None = None

    @property
    def is_terminal(self) -> bool:
        return not self.choices

    def content(self) -> tuple[TypedContent, ...]:
        return (TextContent(type="text", text=self.question),)


POLL = (
    '{"type":"poll","success":true,"timestamp":1,"tool_name":"t","question":"?","choices":["a","b"],'
    '"mood":"calm","extra":"one more"}'
)


@pytest.mark.requirement("SR-16")
def test_a_registered_type_is_read_and_written_as_the_four_are() -> None:
    registry = DEFAULT_REGISTRY.with_type(PollResponse)
    response = parse_response(POLL.replace('"question"', '"Question"'), registry)
    assert response == PollResponse(
        success=True,
        timestamp=1,
        tool_name="t",
        question="?",
        choices=("a", "b"),
        mood=Mood.CALM,
        extra={"extra": "one more"},
    )
    assert response.to_json() == POLL


def test_a_registry_does_not_change() -> None:
    DEFAULT_REGISTRY.with_type(PollResponse)
    with pytest.raises(ResponseTypeError):
        parse_response(POLL)


@pytest.mark.parametrize(
    ("wrong", "path"),
    [({"question": 1}, "$.question"), ({"choices": ["a", 1]}, "$.choices[1]"), ({"mood": "odd"}, "$.mood")],
)
def test_a_registered_type_is_read_strictly(wrong: dict[str, object], path: str) -> None:
    registry = DEFAULT_REGISTRY.with_type(PollResponse)
    with pytest.raises(ResponseError) as caught:
        parse_response(json.dumps(json.loads(POLL) | wrong), registry)
    assert (caught.value.code, caught.value.path) == ("INVALID_FIELD", path)


class Undecorated(PollResponse):
    type: ClassVar[str] = "undecorated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unnamed(StructuredResponse):
    def content(self) -> tuple[TypedContent, ...]:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsaid(StructuredResponse):
    type: ClassVar[str] = "unsaid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shouted(PollResponse):
    type: ClassVar[str] = "shouted"
    LOUD: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable(PollResponse):
    type: ClassVar[str] = "unreadable"
    what: pytest.Item | None = None


@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (Undecorated, "dataclass"),
        (Unnamed, "set its type"),
        (Unsaid, "content"),
        (ActionResponse, "already registered"),
        (Shouted, "LOUD"),
        (Unreadable, "annotations"),
        (int, "StructuredResponse"),
    ],
)
def test_a_class_that_is_no_response_type_is_refused_when_it_is_registered(
    cls: type[StructuredResponse], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        DEFAULT_REGISTRY.with_type(cls)
