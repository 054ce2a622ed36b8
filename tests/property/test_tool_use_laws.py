"""Laws of calls in text: cutting changes nothing, no tag is shown, and repeating others calls nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable

import regex
from hypothesis import example, given
from hypothesis import strategies as st

from playhead.agent.conversation import (
    AssistantMessage,
    ModelRequest,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from playhead.agent.prompt_mode import call_text, encode, harmless, tool_list
from playhead.agent.tool_use import ToolUseParser
from playhead.agent.tool_use_block import CallWritten, TextRun, ToolUseEvent

ANY_TAG = regex.compile(r"</?tool_use(_result)?([\s/][^<>]{0,199})?>", regex.IGNORECASE)
TOKENS = st.sampled_from(
    [
        "<tool_use>", "</tool_use>", "<name>", "</name>", "<arguments>", "</arguments>", "<tool_use_result>",
        "</tool_use_result>", "<result>", "</result>", "<error>", "</error>",
        "<tool_use", "<tool", "_use>", "</", "<", ">", "/>", " ", "\n",
        '"', "\\", "{", "}", "{}", '{"a": "', '"}', "a", "```",
        "<TOOL_USE a='b'>", "<tool_use/>", "< tool_use >",
    ]
)  # fmt: skip
NOISE = st.lists(TOKENS | st.text(max_size=4), max_size=25).map("".join)
JSON = st.dictionaries(NOISE, NOISE | st.integers() | st.none() | st.lists(NOISE, max_size=2), max_size=3)
NAMES = st.from_regex(r"[A-Za-z0-9_]{1,12}", fullmatch=True)
CALLS = st.builds(
    lambda name, arguments: ToolCall(
        id="", name=name, arguments=arguments, arguments_text=json.dumps(arguments)
    ),
    NAMES,
    JSON,
)


def merged(events: Iterable[ToolUseEvent]) -> list[ToolUseEvent]:
    found: list[ToolUseEvent] = []
    for event in events:
        if found and isinstance(event, TextRun) and isinstance(found[-1], TextRun):
            found[-1] = TextRun(text=found[-1].text + event.text)
        else:
            found.append(event)
    return found


def parse(chunks: Iterable[str], limit_chars: int = 10_000) -> list[ToolUseEvent]:
    parser = ToolUseParser(limit_chars=limit_chars)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return merged([*events, *parser.finish()])


@given(NOISE, st.lists(st.integers(0, 200), max_size=8), st.sampled_from([10, 60, 10_000]))
def test_no_cutting_changes_the_events(text: str, places: list[int], limit_chars: int) -> None:
    whole = parse([text], limit_chars)
    assert parse(text, limit_chars) == whole
    inner = sorted(place for place in places if place < len(text))
    chunks = [text[start:end] for start, end in zip([0, *inner], [*inner, len(text)], strict=True)]
    assert parse(chunks, limit_chars) == whole


@given(NOISE)
@example("<tool_use</tool_use>>")
@example("<tool_use a</tool_use></tool_use>=''>")
@example("<tool_use<tool_use/>>")
@example("<tool_use><name>a</name><tool_use<tool_use>>")
def test_no_tag_is_ever_in_the_text(text: str) -> None:
    """Not even across the calls in it, which the text is shown without."""
    shown = "".join(event.text for event in parse([text]) if isinstance(event, TextRun))
    assert not ANY_TAG.search(shown)


@given(st.text() | NOISE.filter(lambda text: not ANY_TAG.search(text)))
def test_text_without_tags_passes_unchanged(text: str) -> None:
    assert parse([text]) == ([TextRun(text=text)] if text else [])


@given(st.lists(CALLS, max_size=4), st.lists(NOISE.map(harmless), min_size=5, max_size=5))
def test_every_call_that_is_written_is_found_with_the_text_around_it(
    calls: list[ToolCall], texts: list[str]
) -> None:
    written = texts[0] + "".join(call_text(call) + text for call, text in zip(calls, texts[1:], strict=False))
    found = parse([written])
    assert [(event.name, event.arguments) for event in found if isinstance(event, CallWritten)] == [
        (call.name, call.arguments) for call in calls
    ]
    shown = "".join(event.text for event in found if isinstance(event, TextRun))
    assert shown == "".join(texts[: len(calls) + 1])


@given(NOISE, NOISE)
def test_no_text_of_others_parses_as_a_call_or_ends_its_result(first: str, second: str) -> None:
    """Also where what follows would complete a tag."""
    clean = harmless(first)
    assert parse([clean, harmless(second)]) == merged(
        [TextRun(text=text) for text in (clean + harmless(second),) if text]
    )
    for rest in ("tool_use>", "ool_use>", "_use>", "/tool_use>", "result>", "esult>", "/result>", "r>", ">"):
        whole = clean + rest
        for found in regex.finditer(r"<[\s/]*(tool_use|result|error)", whole, regex.IGNORECASE):
            assert found.start() >= len(clean)
    assert harmless(clean) == clean


@given(NOISE, NOISE, NOISE)
def test_a_model_that_repeats_all_that_others_said_calls_nothing(
    user: str, result: str, description: str
) -> None:
    call = ToolCall(id="tool_use_1", name="a", arguments={}, arguments_text="{}")
    request = ModelRequest(
        messages=(
            UserMessage(parts=(Text(text=user), Text(text=user))),
            AssistantMessage(parts=(call,)),
            ToolMessage(results=(ToolResult(call_id=call.id, name=user, text=result),)),
        ),
        tools=(ToolSpec(name="a", description=description, parameters={"description": result}),),
    )
    encoded = encode(request)
    said = [
        part.text
        for message in encoded.messages
        if isinstance(message, UserMessage)
        for part in message.parts
        if isinstance(part, Text)
    ]
    listed = tool_list(request.tools)
    assert not [event for event in parse([*said, listed]) if isinstance(event, CallWritten)]
    assert all(not ANY_TAG.search(text) for text in (*said[:2], listed))
    # The one result is closed once, by us.
    assert said[-1].count("</result>") == 1
    assert said[-1].endswith("</result></tool_use_result>")
    assert json.loads(listed)["description"] == description


@given(st.text(alphabet="<to_ >\n/", max_size=12))
def test_what_is_made_harmless_differs_in_nothing_but_its_less_thans(text: str) -> None:
    assert harmless(text).replace("&lt;", "<") == text
