"""Classification: where each block goes, and whether the turn ends."""

from __future__ import annotations

import base64
import json
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from mcp_types import ImageContent, ResourceLink

from playhead.content import ABSENT, Block, TypedContent, parse_block
from playhead.limits import DEFAULT_LIMITS
from playhead.results.classify import STRUCTURED_INDEX, classify
from playhead.results.model_text import text_for_model
from playhead.results.plan import (
    DEFAULT_STOPPERS,
    KeepReference,
    Plan,
    PlayAudio,
    Policy,
    ReportUnknown,
    Respond,
    SendText,
    ShowImage,
    TurnDecision,
    decide_reply,
)
from playhead.results.responses import (
    DEFAULT_REGISTRY,
    StructuredResponse,
    action_response,
    audio_response,
    content_response,
    error_response,
)

WAV = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(40)).decode()
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(8)).decode()

TEXT = {"type": "text", "text": "hello"}
AUDIO = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
LINK = {
    "type": "resource_link",
    "uri": "music://a",
    "name": "a",
    "title": "A",
    "mimeType": "audio/mpeg",
    "size": 9,
}
FILE = {"type": "file", "file": {"uri": "mcp-file://a", "name": "a.mp3", "size": 9}}
PAGE = {"type": "resource_link", "uri": "file:///a.pdf", "name": "a"}
VAGUE = {"type": "resource_link", "uri": "music://a", "name": "a"}
EMBEDDED = {"type": "resource", "resource": {"uri": "file:///a.md", "text": "# A"}}
BLOB = {"type": "resource", "resource": {"uri": "file:///a.wav", "mimeType": "audio/wav", "blob": WAV}}
ZIP = {"type": "resource", "resource": {"uri": "file:///a.zip", "mimeType": "application/zip", "blob": PNG}}
ODD = {"type": "hologram", "beam": 1}

ACTION = action_response("t", "off", "It is off", "done", timestamp=0)


def said(response: StructuredResponse) -> dict[str, Any]:
    return {"type": "text", "text": response.to_json()}


def blocks(*raw: Mapping[str, Any]) -> tuple[Block, ...]:
    return tuple(map(parse_block, raw))


def plan(*raw: Mapping[str, Any], is_error: bool = False, **options: Any) -> Plan:
    return classify(blocks(*raw), is_error=is_error, **options)


def only(*raw: Mapping[str, Any], **options: Any) -> Any:
    made = plan(*raw, **options)
    assert len(made.dispositions) == 1
    return made.dispositions[0]


# --- where blocks go ---------------------------------------------------------------------------------


@pytest.mark.requirement("TR-32")
def test_blocks_keep_their_order() -> None:
    made = plan(TEXT, AUDIO, IMAGE, LINK, PAGE, EMBEDDED, BLOB, ZIP, ODD, said(ACTION))
    assert [type(each) for each in made.dispositions] == [
        SendText, PlayAudio, ShowImage, PlayAudio, KeepReference, SendText, PlayAudio, KeepReference,
        ReportUnknown, Respond,
    ]  # fmt: skip
    assert [each.index for each in made.dispositions] == list(range(10))
    assert all(each.block is not None and each.reason for each in made.dispositions)


@pytest.mark.requirement("TR-35", "TR-40")
@pytest.mark.parametrize(
    ("audience", "to_user"),
    [(None, False), ([], False), (["assistant"], False), (["user"], True), (["user", "assistant"], True)],
)
@pytest.mark.parametrize("block", [TEXT, EMBEDDED], ids=["text", "embedded text"])
def test_text_goes_to_the_model_and_to_the_user_where_the_audience_says_so(
    block: dict[str, Any], audience: list[str] | None, to_user: bool
) -> None:
    sent = only(block if audience is None else block | {"annotations": {"audience": audience}})
    assert isinstance(sent, SendText)
    assert sent.to_user is to_user
    assert not sent.is_error


@pytest.mark.requirement("TR-36")
def test_audio_plays_with_its_size() -> None:
    sound = only(AUDIO)
    assert (sound.source, sound.base64, sound.mime_type, sound.size_bytes) == ("audio", WAV, "audio/wav", 56)


def test_a_link_with_an_audio_type_plays_as_what_the_server_calls_it() -> None:
    sound = only(LINK)
    assert (sound.source, sound.title, sound.uri, sound.size_bytes) == ("link", "A", "music://a", 9)
    assert sound.base64 is None


@pytest.mark.requirement("TR-37", "TR-38")
@pytest.mark.parametrize(
    ("labels", "plays"),
    [
        ({"mimeType": "audio/x-unheard-of"}, True),
        ({"mimeType": "AUDIO/MPEG; rate=1"}, True),
        ({"mimeType": "text/html", "uri": "file:///a.mp3"}, False),
        ({"uri": "file:///a.MP3?x=1"}, True),
        ({"mimeType": "application/octet-stream", "uri": "file:///a.ogg"}, True),
        ({"uri": "file:///film.mp4"}, False),
        ({"uri": "file:///a.txt"}, False),
    ],
)
def test_a_link_is_sound_by_its_type_or_else_by_its_suffix(labels: dict[str, str], plays: bool) -> None:
    made = plan(VAGUE | labels)
    assert isinstance(made.dispositions[0], PlayAudio) is plays
    assert made.unsettled == ()


@pytest.mark.requirement("TR-37")
def test_a_link_without_telling_labels_is_unsettled_until_its_first_bytes_are_known() -> None:
    vague = plan(TEXT, VAGUE)
    assert vague.unsettled == (1,)
    assert isinstance(vague.dispositions[1], KeepReference)
    assert vague.turn.decision == "continue"
    sound = plan(TEXT, VAGUE, sniffed={1: True})
    assert sound.unsettled == ()
    assert isinstance(sound.dispositions[1], PlayAudio)
    assert sound.turn.decision == "stop"
    other = plan(TEXT, VAGUE, sniffed={1: False})
    assert other.unsettled == ()
    assert isinstance(other.dispositions[1], KeepReference)


def test_nothing_is_sniffed_where_the_policy_or_an_error_forbids_it() -> None:
    assert plan(VAGUE, policy=Policy(sniff_links=False)).unsettled == ()
    assert plan(VAGUE, is_error=True).unsettled == ()


def test_a_link_that_holds_its_sound_itself_plays_without_being_read() -> None:
    sound = only(VAGUE | {"uri": f"data:audio/wav;base64,{WAV}"})
    assert (sound.source, sound.base64, sound.uri, sound.title) == ("audio", WAV, None, "a")
    kept = plan(VAGUE | {"uri": "data:text/plain,hello"})
    assert isinstance(kept.dispositions[0], KeepReference)
    assert kept.unsettled == ()


@pytest.mark.requirement("TR-36")
@pytest.mark.parametrize(
    ("labels", "plays"),
    [
        ({"mimeType": "audio/wav"}, True),
        ({"uri": "x://a.wav"}, True),
        ({}, True),
        ({"blob": PNG}, False),
        ({"mimeType": "application/zip"}, False),
        ({"mimeType": "video/mp4"}, False),
    ],
)
def test_a_blob_is_sound_by_its_type_its_suffix_or_its_own_first_bytes(
    labels: dict[str, str], plays: bool
) -> None:
    made = only({"type": "resource", "resource": {"uri": "x://a", "blob": WAV} | labels})
    assert isinstance(made, PlayAudio) is plays
    assert made.uri == labels.get("uri", "x://a")
    assert made.size_bytes == (16 if "blob" in labels else 56)


@pytest.mark.requirement("TR-39")
def test_an_image_is_shown() -> None:
    assert only(IMAGE) == ShowImage(
        index=0, block=parse_block(IMAGE), reason="an image", mime_type="image/png", base64=PNG, size_bytes=16
    )


@pytest.mark.requirement("TR-41")
def test_an_unknown_block_is_reported_and_its_siblings_are_kept() -> None:
    made = plan(ODD, TEXT)
    assert isinstance(made.dispositions[0], ReportUnknown)
    assert made.dispositions[0].block is not None
    assert made.dispositions[0].block.raw == ODD
    assert isinstance(made.dispositions[1], SendText)


@pytest.mark.requirement("TR-03")
def test_an_invalid_block_is_classified_all_the_same_with_a_finding_at_its_place() -> None:
    made = plan(TEXT, {"type": "resource_link", "uri": "file:///a.mp3", "annotations": {"priority": 7}})
    assert isinstance(made.dispositions[1], PlayAudio)
    assert {finding.path for finding in made.findings} == {
        "$.content[1].name",
        "$.content[1].annotations.priority",
    }


# --- broken payloads ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "path"),
    [
        (AUDIO | {"data": "AAA"}, "$.content[0].data"),
        (AUDIO | {"data": "not base64!!"}, "$.content[0].data"),
        (AUDIO | {"data": ""}, "$.content[0].data"),
        (IMAGE | {"data": "AAA\nAAAA"}, "$.content[0].data"),
        ({"type": "resource", "resource": {"uri": "a.wav", "blob": "%"}}, "$.content[0].resource.blob"),
        (VAGUE | {"uri": "data:audio/wav;base64,%%%%"}, "$.content[0].uri"),
        (said(audio_response("t", "play", "ok", data="%", timestamp=0)), "$.content[0].text"),
    ],
    ids=["length", "characters", "empty", "line break", "blob", "data URI", "response"],
)
def test_broken_base64_neither_plays_nor_ends_the_turn(block: dict[str, Any], path: str) -> None:
    made = plan(block)
    last = made.dispositions[0]
    if isinstance(last, Respond):
        last = last.parts[-1]
    assert isinstance(last, KeepReference)
    assert [finding.path for finding in made.findings] == [path]
    assert made.turn.decision == "continue"


def test_a_payload_over_the_limit_is_kept_and_not_decoded() -> None:
    made = plan(AUDIO, limits=replace(DEFAULT_LIMITS, block_bytes=55))
    assert isinstance(made.dispositions[0], KeepReference)
    assert "Limits.block_bytes" in made.findings[0].expected
    assert isinstance(only(AUDIO, limits=replace(DEFAULT_LIMITS, block_bytes=56)), PlayAudio)


# --- errors ------------------------------------------------------------------------------------------


@pytest.mark.requirement("TR-42")
def test_in_an_error_result_nothing_plays_and_the_model_is_told() -> None:
    loud = audio_response("t", "play", "ok", data=WAV, terminal=True, timestamp=0)
    made = plan(TEXT, AUDIO, LINK, BLOB, said(loud), is_error=True, policy=Policy(turn="stop"))
    assert made.is_error
    assert isinstance(made.dispositions[0], SendText)
    assert made.dispositions[0].is_error
    assert all(isinstance(each, KeepReference) for each in made.dispositions[1:4])
    respond = made.dispositions[4]
    assert isinstance(respond, Respond)
    assert [type(part) for part in respond.parts] == [SendText, KeepReference]
    assert made.turn == TurnDecision(
        decision="continue", reason="the tool failed, and the model must see the error"
    )


# --- structured responses ----------------------------------------------------------------------------


@pytest.mark.requirement("TR-32")
def test_a_structured_response_stands_where_its_block_stood() -> None:
    made = plan(TEXT, said(ACTION), TEXT)
    respond = made.dispositions[1]
    assert isinstance(respond, Respond)
    assert respond.response == ACTION
    assert [part.text for part in respond.parts if isinstance(part, SendText)] == ["It is off"]
    assert respond.block is not None
    assert respond.parts[0].block is None


@pytest.mark.requirement("TR-30")
def test_white_space_around_and_the_case_of_keys_do_not_matter() -> None:
    text = ACTION.to_json().replace('"tool_name"', '"Tool_Name"')
    assert isinstance(only({"type": "text", "text": f"\n  {text}\t\n"}), Respond)


@pytest.mark.requirement("TR-33")
def test_nothing_is_recognised_where_the_policy_does_not_trust() -> None:
    sent = only(said(ACTION), policy=Policy(trust_structured=False))
    assert isinstance(sent, SendText)
    assert sent.text == ACTION.to_json()


@pytest.mark.requirement("TR-30")
@pytest.mark.parametrize(
    "block",
    [
        {"type": "resource", "resource": {"uri": "a.json", "text": ACTION.to_json()}},
        {"type": "text", "text": f"Result: {ACTION.to_json()}"},
        {"type": "text", "text": f"[{ACTION.to_json()}]"},
        {"type": "text", "text": json.dumps(ACTION.to_json())},
        {"type": "text", "text": '{"type":"poll","success":true,"tool_name":"t"}'},
        {"type": "text", "text": '{"type":"error","message":"an ordinary API"}'},
    ],
    ids=["embedded", "behind words", "in a list", "quoted", "unregistered", "only a type"],
)
def test_anything_else_is_plain_text_without_a_finding(block: dict[str, Any]) -> None:
    made = plan(block)
    assert isinstance(made.dispositions[0], SendText)
    assert made.findings == ()


@pytest.mark.requirement("TR-31")
@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"tool_name": 1}, "$.content[0].text.tool_name"),
        ({"success": "true"}, "$.content[0].text.success"),
        ({"message": ["m"]}, "$.content[0].text.message"),
        ({"final_action": 1}, "$.content[0].text.final_action"),
        ({"metadata": {"a": 1}}, "$.content[0].text.metadata.a"),
    ],
)
def test_a_wrong_field_leaves_plain_text_with_a_finding(change: dict[str, Any], path: str) -> None:
    made = plan({"type": "text", "text": json.dumps(json.loads(ACTION.to_json()) | change)})
    assert isinstance(made.dispositions[0], SendText)
    assert [finding.path for finding in made.findings] == [path]


def test_a_response_that_failed_is_an_error_to_the_model() -> None:
    respond = only(said(error_response("t", "no such song", timestamp=0)))
    assert [part.is_error for part in respond.parts] == [True]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gallery(StructuredResponse):
    type: ClassVar[str] = "gallery"
    uris: tuple[str, ...]

    def content(self) -> tuple[TypedContent, ...]:
        image = ImageContent(type="image", data=PNG, mime_type="image/png")
        return (image, *(ResourceLink(type="resource_link", uri=uri, name=uri) for uri in self.uris))


@pytest.mark.requirement("SR-16")
def test_a_registered_type_is_recognised_and_may_hold_any_block() -> None:
    gallery = Gallery(success=True, timestamp=0, tool_name="t", uris=("x:///a.mp3", "x:///b"))
    assert isinstance(only(said(gallery)), SendText)
    made = plan(said(gallery), registry=DEFAULT_REGISTRY.with_type(Gallery))
    respond = made.dispositions[0]
    assert isinstance(respond, Respond)
    assert [type(part) for part in respond.parts] == [ShowImage, PlayAudio, KeepReference]
    assert made.unsettled == ()
    assert made.turn.decision == "stop"


# --- structuredContent -------------------------------------------------------------------------------


def test_structured_content_goes_to_the_model_where_no_block_gives_it_text() -> None:
    made = plan(AUDIO, structured={"é": [1, None]})
    sent = made.dispositions[-1]
    assert isinstance(sent, SendText)
    assert (sent.index, sent.text, sent.block) == (STRUCTURED_INDEX, '{"é":[1,null]}', None)
    assert plan(structured=None).dispositions[0] == replace(sent, text="null")


@pytest.mark.parametrize("block", [TEXT, EMBEDDED, said(ACTION)], ids=["text", "embedded", "response"])
def test_structured_content_is_not_repeated_beside_text(block: dict[str, Any]) -> None:
    assert len(plan(block, structured={"a": 1}).dispositions) == 1


def test_what_playhead_calls_absent_is_no_structured_content() -> None:
    assert classify([], is_error=False, structured=ABSENT).dispositions == ()


def test_structured_content_that_json_cannot_hold_is_a_finding() -> None:
    made = plan(structured={"a": {1, 2}})
    assert made.findings[0].path == "$.structuredContent"
    assert isinstance(made.dispositions[0], SendText)


# --- the turn ----------------------------------------------------------------------------------------

TERMINAL = said(action_response("t", "a", "m", "s", terminal=True, timestamp=0))
SILENT = {"type": "text", "text": replace(ACTION, silence_llm=True).to_json()}
SOUND = said(audio_response("t", "play", "ok", data=WAV, timestamp=0))
NO_SOUND = said(audio_response("t", "play", "ok", timestamp=0))


@pytest.mark.requirement("TR-43", "TR-44", "TR-45", "TR-47")
@pytest.mark.parametrize(
    ("block", "decision"),
    [
        (TEXT, "continue"), (AUDIO, "stop"), (IMAGE, "continue"), (LINK, "stop"), (PAGE, "continue"),
        (EMBEDDED, "continue"), (BLOB, "stop"), (ZIP, "continue"), (ODD, "continue"),
        (said(ACTION), "continue"),
        (TERMINAL, "stop"), (SILENT, "stop"), (SOUND, "stop"), (NO_SOUND, "continue"),
        (said(content_response("t", 1, "m", timestamp=0)), "continue"),
        (said(error_response("t", "e", timestamp=0)), "continue"),
    ],
)  # fmt: skip
def test_what_makes_a_sound_or_says_that_it_is_final_stops(block: dict[str, Any], decision: str) -> None:
    made = plan(TEXT, block, TEXT)
    assert made.turn.decision == decision
    if decision == "stop":
        assert made.turn.reason.startswith("block 1: ")


def test_a_result_without_blocks_continues() -> None:
    assert plan().turn.decision == "continue"


def test_the_policy_decides_alone_where_it_says_so() -> None:
    assert plan(AUDIO, policy=Policy(turn="continue")).turn.decision == "continue"
    assert plan(TEXT, policy=Policy(turn="stop")).turn.reason == "the policy decides: stop"


@pytest.mark.parametrize(
    ("kind", "block"),
    [
        ("text", TEXT), ("audio", AUDIO), ("image", IMAGE), ("link", LINK), ("reference", PAGE),
        ("embedded_text", EMBEDDED), ("blob", BLOB), ("unknown", ODD), ("structured", TERMINAL),
    ],
)  # fmt: skip
def test_each_kind_can_be_made_to_stop_or_not(kind: Any, block: dict[str, Any]) -> None:
    assert plan(block, policy=Policy(stops=frozenset({kind}))).turn.decision == "stop"
    assert plan(block, policy=Policy(stops=frozenset())).turn.decision == "continue"
    assert plan(block, policy=Policy(stops=DEFAULT_STOPPERS - {kind})).turn.decision == "continue"


@pytest.mark.requirement("TR-46")
def test_when_one_reply_made_several_calls_the_turn_stops_if_any_of_them_stops() -> None:
    on, stop = plan(TEXT).turn, plan(AUDIO).turn
    assert decide_reply([on, stop, on]) == stop
    assert decide_reply([on, on]).decision == "continue"
    assert decide_reply([]).decision == "continue"


@pytest.mark.parametrize(
    ("file", "plays"),
    [
        ({"mimeType": "audio/mpeg"}, True),
        ({"name": "a.mp3"}, True),
        ({"mimeType": "application/pdf", "name": "a.mp3"}, False),
        ({"name": "a.pdf"}, False),
    ],
)
def test_a_file_out_of_band_is_played_as_a_link_is(file: dict[str, str], plays: bool) -> None:
    item = only({"type": "file", "file": {"uri": "mcp-file://4711", "size": 9, **file}})
    assert isinstance(item, PlayAudio if plays else KeepReference)
    assert (item.uri, item.size_bytes) == ("mcp-file://4711", 9)
    assert item.title == file.get("name", "4711")


def test_a_file_that_says_nothing_is_sniffed() -> None:
    vague = {"type": "file", "file": {"uri": "mcp-file://4711"}}
    assert plan(vague).unsettled == (0,)
    assert isinstance(only(vague, sniffed={0: True}), PlayAudio)


def test_a_file_ends_the_turn_as_a_link_does_and_an_error_plays_nothing() -> None:
    assert plan(FILE).turn.decision == "stop"
    assert isinstance(only(FILE, is_error=True), KeepReference)


# --- base64 that is a view of its message -------------------------------------------------------------------

LONG = base64.b64encode(b"RIFF" + bytes(2_999_996)).decode()


def long_blocks(data: object) -> list[dict[str, Any]]:
    return [
        {"type": "audio", "data": data, "mimeType": "audio/wav"},
        {"type": "image", "data": data, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "x://a.wav", "blob": data}},
        {"type": "resource", "resource": {"uri": "x://a.zip", "blob": data, "mimeType": "application/zip"}},
    ]


@pytest.mark.parametrize("fault", ["", "*"])
def test_long_base64_is_classified_and_described_without_a_string_of_it(fault: str) -> None:
    text = LONG[: len(LONG) - 4] + (fault or "A") * 4
    plain = classify(list(map(parse_block, long_blocks(text))), is_error=False)
    view = memoryview(text.encode())
    tracemalloc.start()
    try:
        plan = classify(list(map(parse_block, long_blocks(view))), is_error=False)
        said = text_for_model(plan, limit_chars=100_000).text
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < len(text) / 8, "less than any copy of it"
    assert plan == plain
    assert said == text_for_model(plain, limit_chars=100_000).text
    assert "AAAAAAAA" not in said
    for item in plan.dispositions:
        if isinstance(item, PlayAudio | ShowImage):
            assert (type(item.payload), item.base64) == (memoryview, text)
