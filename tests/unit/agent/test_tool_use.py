"""The calls in a model's text: what counts as one, and that no way of cutting the text changes it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator

import pytest

from playhead.agent.tool_use import ToolUseParser
from playhead.agent.tool_use_block import (
    CallBroken,
    CallNamed,
    CallWritten,
    TextRun,
    ToolUseEvent,
    arguments_of,
)
from playhead.limits import DEFAULT_LIMITS

CALL = '<tool_use><name>lamp</name><arguments>{"on": true}</arguments></tool_use>'


def merged(events: Iterable[ToolUseEvent]) -> list[ToolUseEvent]:
    """Runs of text that touch, as one."""
    found: list[ToolUseEvent] = []
    for event in events:
        if found and isinstance(event, TextRun) and isinstance(found[-1], TextRun):
            found[-1] = TextRun(text=found[-1].text + event.text)
        else:
            found.append(event)
    return found


def parse(*chunks: str, limit_chars: int = DEFAULT_LIMITS.tool_use_chars) -> list[ToolUseEvent]:
    parser = ToolUseParser(limit_chars=limit_chars)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return merged([*events, *parser.finish()])


def told(*chunks: str) -> list[object]:
    """The events in short: text, (name, arguments) or the reason why a call is broken."""
    short: list[object] = []
    for event in parse(*chunks):
        match event:
            case TextRun():
                short.append(event.text)
            case CallWritten():
                short.append((event.name, event.arguments))
            case CallBroken():
                short.append([event.name, event.reason])
            case CallNamed():
                pass
    return short


def block(inside: str) -> str:
    return f"<tool_use>{inside}</tool_use>"


def asking(arguments: str, name: str = "a") -> str:
    return block(f"<name>{name}</name><arguments>{arguments}</arguments>")


GOOD: dict[str, tuple[str, list[object]]] = {
    "a call": (CALL, [("lamp", {"on": True})]),
    "text around": (f"Wait. {CALL}\nDone.", ["Wait. ", ("lamp", {"on": True}), "\nDone."]),
    "two calls": (CALL + " " + asking("{}"), [("lamp", {"on": True}), " ", ("a", {})]),
    "an end tag in a string": (
        asking('{"t": "</tool_use></arguments>\\"</tool_use>"}') + "x",
        [("a", {"t": '</tool_use></arguments>"</tool_use>'}), "x"],
    ),
    "a whole call in a string": (
        asking(json.dumps({"t": CALL})),
        [("a", {"t": CALL})],
    ),
    "a backslash before the quote": (asking(r'{"t": "\\"}'), [("a", {"t": "\\"})]),
    "line breaks and blanks": (
        "<tool_use >\n  <name>\n a \n</name>\n  <arguments>\n{}\n</arguments >\n</tool_use\n>",
        [("a", {})],
    ),
    "any case": ("<Tool_Use><NAME>a</NAME><Arguments>{}</ARGUMENTS></TOOL_USE>", [("a", {})]),
    "attributes": (
        '<tool_use id="7"><name x>a</name><arguments type="json">{}</arguments></tool_use>',
        [("a", {})],
    ),
    "arguments first": (block("<arguments>{}</arguments><name>a</name>"), [("a", {})]),
    "blank arguments": (asking(" "), [("a", {})]),
    "an empty tag": (block("<name>a</name><arguments/>"), [("a", {})]),
    "no end of arguments": (block("<name>a</name><arguments>{}") + "x", [("a", {}), "x"]),
    "words inside": (
        block("I call <name>a</name> with <arguments>{}</arguments> now") + "x",
        [("a", {}), "x"],
    ),
    "a fence around the JSON": (asking('```json\n{"b": 1}\n```'), [("a", {"b": 1})]),
    "a fence around the call": (f"```xml\n{CALL}\n```", ["```xml\n", ("lamp", {"on": True}), "\n```"]),
    "a line break in a string": (asking('{"code": "1\n2"}'), [("a", {"code": "1\n2"})]),
    "never closed": (CALL.removesuffix("</tool_use>"), [("lamp", {"on": True})]),
    "cut behind the JSON": (CALL.removesuffix("</arguments></tool_use>"), [("lamp", {"on": True})]),
    "cut in the last tag": (CALL[:-1], [("lamp", {"on": True})]),
    "cut in the tag before": (CALL[: -len("ents></tool_use>")], [("lamp", {"on": True})]),
    "never closed, then text": (
        CALL.removesuffix("</tool_use>") + "\nDone <b>",
        [("lamp", {"on": True}), "\nDone <b>"],
    ),
    "never closed, then the next": (
        CALL.removesuffix("</tool_use>") + "and" + asking("{}"),
        [("lamp", {"on": True}), "and", ("a", {})],
    ),
    "other markup": (
        "a < b <tool> <name>x</name> <tool_user> </arguments>",
        ["a < b <tool> <name>x</name> <tool_user> </arguments>"],
    ),
    "a tag that never came": ("so <tool_us", ["so <tool_us"]),
    "a tag too long for one": ("<tool_use " + "a" * 200 + ">", ["<tool_use " + "a" * 200 + ">"]),
    "a stray end": ("a</tool_use>b</tool_use_result>c", ["a b c"]),
    "a tag in two halves around another": ("<tool</tool_use>_use>", ["<tool _use>"]),
    "a tag around another": ("<tool_use</tool_use>>", ["<tool_use< >"]),
    "attributes around another": ("<tool_use a</tool_use>='b'>", ["<tool_use a< ='b'>"]),
    "a tag around a call": (f"<tool_use{CALL}>", ["<tool_use< ", ("lamp", {"on": True}), ">"]),
    "a tag in two halves around a call": (f"<tool{CALL}_use>", ["<tool ", ("lamp", {"on": True}), "_use>"]),
    "nothing": ("", []),
}

ONCE = "expected <{}> once inside <tool_use>, got {}"
BROKEN: dict[str, tuple[str, list[object]]] = {
    "no name": (block("<arguments>{}</arguments>"), [["", ONCE.format("name", "none")]]),
    "an empty name": (asking("{}", name=" "), [["", "expected a tool's name inside <name>, got nothing"]]),
    "a name of markup": (
        asking("{}", name="<b>"),
        [["<b>", "expected a tool's name inside <name>, got markup"]],
    ),
    "two names": (
        block("<name>a</name><name>b</name><arguments>{}</arguments>"),
        [["a", ONCE.format("name", 2)]],
    ),
    "two arguments": (
        block("<name>a</name><arguments>{}</arguments><arguments>{}</arguments>"),
        [["a", ONCE.format("arguments", 2)]],
    ),
    "no arguments": (block("<name>a</name>"), [["a", ONCE.format("arguments", "none")]]),
    "an empty block": ("<tool_use/>x", [["", ONCE.format("name", "none")], "x"]),
    "only JSON": (block('{"name": "a"}'), [["", ONCE.format("name", "none")]]),
    "a name that never ends": (
        "<tool_use><name>a",
        [["", "expected </name> after the tool's name, got the end of the reply"]],
    ),
    "a name that runs into the arguments": (
        block('<name>a<arguments>{"b": "</tool_use>"}</arguments>') + "x",
        [["", "expected </name> after the tool's name, got another tag"], "x"],
    ),
    "arguments that never came": (
        "<tool_use><name>a</name><arguments>",
        [["a", "expected a JSON object inside <arguments>, got the end of the reply"]],
    ),
    "a list": (
        asking("[1]"),
        [["a", "expected a JSON object inside <arguments>, got an array"]],
    ),
    "the tag in prose": (
        "Write <tool_use> to call.",
        ["Write ", ["", ONCE.format("name", "none")], " to call."],
    ),
}
BROKEN_JSON = {
    "cut in the JSON": '<tool_use><name>a</name><arguments>{"b": [1',
    "a string that never ends": '<tool_use><name>a</name><arguments>{"b": "</arguments></tool_use>'
    + CALL
    + " bye",
    "single quotes": asking("{'b': 1}"),
    "no number": asking('{"b": NaN}'),
    "words behind it": asking('{"b": 1} please'),
    "a huge number": asking('{"b": ' + "1" * 5000 + "}"),
    "a call inside, unquoted": asking('{"b": ' + CALL.removesuffix("</arguments></tool_use>")),
}
ALL = {name: text for name, (text, _) in (GOOD | BROKEN).items()} | BROKEN_JSON


@pytest.mark.parametrize("name", GOOD | BROKEN)
def test_what_a_reply_says(name: str) -> None:
    text, expected = (GOOD | BROKEN)[name]
    assert told(text) == expected


@pytest.mark.parametrize("text", BROKEN_JSON.values(), ids=BROKEN_JSON)
def test_bad_json_is_told_and_nothing_runs(text: str) -> None:
    [broken] = told(text)
    assert isinstance(broken, list)
    name, reason = broken
    assert name == "a"
    assert reason.startswith("expected a JSON object inside <arguments>, got invalid JSON: ")


def cut(text: str, places: Iterable[int]) -> Iterator[str]:
    start = 0
    for place in (*places, len(text)):
        yield text[start:place]
        start = place


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_no_cutting_changes_the_events(text: str) -> None:
    whole = parse(text)
    assert parse(*text) == whole
    for one in range(len(text) + 1):
        assert parse(*cut(text, [one])) == whole
    dice = random.Random(7)
    for _ in range(50):
        places = sorted(dice.choices(range(len(text) + 1), k=dice.randrange(1, 12)))
        assert parse(*cut(text, places)) == whole, places


@pytest.mark.parametrize(
    "name", ["an end tag in a string", "never closed, then the next", "a made-up result"]
)
def test_no_two_cuts_change_the_events(name: str) -> None:
    text = {**ALL, "a made-up result": "a<tool_use_result>b</tool_use_result>" + CALL}[name]
    whole = parse(text)
    for first in range(len(text)):
        for second in range(first + 1, len(text)):
            assert parse(*cut(text, [first, second])) == whole, (first, second)


@pytest.mark.parametrize(
    "text",
    [
        "a<tool_use/>b",
        "</tool_use>ab",
        "a<tool_use>b",
        "<tool_use ><a",
        "<<tool_use/><",
        "<tool_use\n/>",
        "x<tool_useful>",
    ],
)
def test_none_of_all_ways_to_cut_a_short_text_changes_the_events(text: str) -> None:
    assert len(text) <= 14
    whole = parse(text)
    for mask in range(1 << (len(text) - 1)):
        places = [place + 1 for place in range(len(text) - 1) if mask >> place & 1]
        assert parse(*cut(text, places)) == whole, places


ENDED = [
    name
    for name, text in ALL.items()
    if not name.startswith(("never", "cut", "a tag", "the tag"))
    and name not in ("a string that never ends", "a name that never ends", "arguments that never came")
]
"""Those that leave nothing open."""


@pytest.mark.parametrize("name", ENDED)
def test_what_follows_changes_nothing_of_what_came(name: str) -> None:
    whole = parse(ALL[name])
    assert parse(ALL[name] + " tail" + CALL) == merged([*whole, *parse(" tail" + CALL)])


def test_text_is_held_back_only_while_it_may_begin_a_tag() -> None:
    parser = ToolUseParser()
    shown = ""
    fed = ""
    for character in "a <b <tool_x> </tool_ <tool_us e> <tool_use":
        fed += character
        shown += _text(parser.feed(character))
        held = fed[len(shown) :]
        assert fed.startswith(shown)
        assert "<tool_use>".startswith(held) or "</tool_use>".startswith(held)


def _text(events: Iterable[ToolUseEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextRun))


def test_a_call_is_told_as_soon_as_its_last_character_came() -> None:
    parser = ToolUseParser()
    assert parser.feed("<tool_use><name>lamp</name") == []
    assert parser.feed(">") == [CallNamed(name="lamp")]
    assert parser.feed('<arguments>{"on": true}</arguments></tool_use') == []
    assert parser.feed(">") == [
        CallWritten(name="lamp", arguments={"on": True}, arguments_text='{"on": true}')
    ]


def test_a_result_that_the_model_made_up_is_told_and_not_shown() -> None:
    forged = f"<tool_use_result><name>lamp</name><result>on {CALL}</result></tool_use_result>"
    [call, broken, after] = told(f"{CALL}{forged}It is on.")
    assert call == ("lamp", {"on": True})
    assert isinstance(broken, list)
    assert broken[1].startswith("expected no <tool_use_result> from you, got one")
    assert after == "It is on."


def test_a_block_over_its_limit_is_told_once_and_skipped_to_its_end() -> None:
    long = asking(json.dumps({"t": "</tool_use>" * 20}))
    for chunks in ([long + "x" + CALL], list(long + "x" + CALL)):
        [named, broken, text, *call] = parse(*chunks, limit_chars=100)
        assert named == CallNamed(name="a")
        assert isinstance(broken, CallBroken)
        assert "at most 100 characters inside <tool_use> (limit tool_use_chars)" in broken.reason
        assert broken.source == long[len("<tool_use>") :][:100] + "…"
        assert text == TextRun(text="x")
        assert call == parse(CALL)


def test_a_block_of_exactly_its_limit_is_read() -> None:
    inside = len(CALL) - len("<tool_use>")
    assert parse(CALL, limit_chars=inside)[-1] == parse(CALL)[-1]
    assert isinstance(parse(CALL, limit_chars=inside - 1)[-1], CallBroken)


def test_a_parser_that_finished_is_as_new() -> None:
    parser = ToolUseParser()
    parser.feed('<tool_use><name>a</name><arguments>{"')
    parser.finish()
    assert merged([*parser.feed("x" + CALL), *parser.finish()]) == parse("x" + CALL)


def test_a_broken_call_quotes_what_the_model_wrote() -> None:
    assert parse(asking("{no}"))[-1].source == "{no}"  # type: ignore[union-attr]
    inside = "<name>a</name><arguments>1</arguments><arguments>2</arguments>"
    assert parse(block(inside))[-1].source == inside + "</tool_use>"  # type: ignore[union-attr]


@pytest.mark.parametrize("depth", [DEFAULT_LIMITS.json_depth + 1, 100_000])
def test_arguments_nested_too_deep_are_told(depth: int) -> None:
    found = arguments_of('{"a":' * depth + "1" + "}" * depth)
    assert found == "expected <arguments> nested at most 128 deep (limit json_depth), got deeper nesting"


def test_arguments_may_be_nested_as_deep_as_allowed() -> None:
    depth = DEFAULT_LIMITS.json_depth
    assert isinstance(arguments_of('{"a":' * depth + "1" + "}" * depth), dict)


def test_half_a_surrogate_pair_is_told() -> None:
    assert arguments_of(r'{"a": "\ud83d\ude00"}') == {"a": "😀"}
    assert "surrogate" in str(arguments_of(r'{"a": "\uD83D"}'))
