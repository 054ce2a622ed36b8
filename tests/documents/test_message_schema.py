"""The schema of the messages: it takes every right one, and none with anything wrong in it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from playhead.content.findings import step
from playhead.errors import UsageError
from playhead.servers.template.documents import (
    MessageFinding,
    find_departures,
    message_schema,
    read_messages,
    validate_messages,
)
from tests.documents.mutations import MUTATIONS, Mutation, mutant, objects_in, recorded, wrecks
from tests.documents.record import RECORDING, record

BRANCHES = {"oneOf": ("Request", "Notification", "Success", "Failure")}


@cache
def messages() -> list[Any]:
    return recorded()


def validated(message: object) -> list[MessageFinding]:
    return validate_messages(json.dumps([message]))


def test_it_is_a_schema_whose_root_is_one_of_four_kinds_and_that_needs_no_other_file() -> None:
    schema = message_schema()
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["oneOf"] == [{"$ref": f"#/$defs/{name}"} for name in BRANCHES["oneOf"]]
    references = {each["$ref"] for each in objects_in(schema) if isinstance(each.get("$ref"), str)}
    assert references == {f"#/$defs/{name}" for name in schema["$defs"]}, "each is used, and there"


def test_every_definition_says_what_it_is() -> None:
    schema = message_schema()
    for name, each in {"the root": schema, **schema["$defs"]}.items():
        assert each.get("title"), name
        assert each.get("description"), name


def test_the_recorded_conversation_is_right_from_the_first_message_to_the_last() -> None:
    findings = validate_messages(RECORDING.read_text("utf-8"))
    assert [str(finding) for finding in findings] == []


def test_the_recording_has_a_message_of_nearly_every_kind() -> None:
    """So that what is said of it is said of the schema."""
    defs = message_schema()["$defs"]
    kinds = {
        name: Draft202012Validator({"$defs": defs, "$ref": f"#/$defs/{name}"})
        for kind in ("Request", "Notification", "Result")
        for name in (branch["$ref"].rpartition("/")[2] for branch in defs[kind]["oneOf"])
    }
    unheard = set(kinds)
    for message in messages():
        values = (message, message.get("result"))
        unheard -= {name for name in unheard if any(kinds[name].is_valid(value) for value in values)}
    assert unheard == {
        "ElicitationCompleteNotification",  # a page that was opened elsewhere
        "ListenResult",  # a subscription that its server ends
        "PromptsChangedNotification",
        "ResourcesChangedNotification",
    }


async def test_everything_said_in_live_conversations_is_right_and_of_the_kinds_that_were_recorded() -> None:
    """With the template server over WebSocket, and with one that says everything."""
    heard = await record()
    assert len(heard) > 200
    assert [str(finding) for finding in validate_messages("\n".join(heard))] == []
    kinds = {kind_of_message(json.loads(message)) for message in heard}
    assert kinds == {kind_of_message(message) for message in messages()}, (
        "run python -m tests.documents.record"
    )


def kind_of_message(message: dict[str, Any]) -> str:
    """Its method, or the members of its result: ids and times differ from one conversation to the next."""
    return " ".join([str(message.get("method")), *sorted(message), *sorted(message.get("result", {}))])


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_message_with_one_thing_wrong_is_rejected_where_it_is_wrong(mutation: Mutation) -> None:
    findings = validated(mutant(mutation, messages()))
    place = "$"
    for key in mutation.path[:-1]:
        place = step(place, key)
    assert findings
    assert all(finding.finding.path.startswith(place) for finding in findings)
    assert len(findings) <= 2, "what is wrong, not every branch that it is not"


def test_there_are_at_least_fifty_mutations_and_each_is_another() -> None:
    assert len({json.dumps(mutant(mutation, messages())) for mutation in MUTATIONS}) == len(MUTATIONS) >= 50


@pytest.mark.parametrize(
    "kind", ["elicitation/create", "tools/call", "completion/complete", "result", "error"]
)
def test_whatever_the_schema_rejects_has_a_finding_and_nothing_else_has(kind: str) -> None:
    message = next(each for each in messages() if kind in (each.get("method"), *each))
    validator = Draft202012Validator(message_schema())
    wrecked = list(wrecks(message))
    rejected = [not validator.is_valid(wreck) for wreck in wrecked]
    found = {finding.message for finding in validate_messages(json.dumps(wrecked))}
    assert [number in found for number in range(1, len(wrecked) + 1)] == rejected
    assert any(rejected)


PING = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (PING, [1]),
        (f"\ufeff\n{PING}\n", [2]),
        (f"[\n  {PING},\n\n{PING}]", [2, 4]),
        (f"{PING}\n{PING}\r\n\n{PING}", [1, 2, 4]),
        (json.dumps(json.loads(PING), indent=2) + "\n" + PING, [1, 6]),
        (f"{PING}\n[{PING}]", [1, 2]),
        (f"[[{PING}]]", [1]),
    ],
    ids=[
        "one",
        "byte order mark",
        "array",
        "lines",
        "indented",
        "an array among lines",
        "an array in an array",
    ],
)
def test_messages_are_read_as_one_as_an_array_and_as_lines(text: str, lines: list[int]) -> None:
    read = read_messages(text)
    assert [message.line for message in read] == lines
    assert [message.number for message in read] == list(range(1, len(lines) + 1))


def test_a_line_separator_inside_a_string_ends_no_message() -> None:
    assert len(read_messages('{"a": "\u2028\x7f"}')) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at least one message"),
        ("[]", "at least one message"),
        ("hello", r"line 1, column 1: expected JSON"),
        (f"{PING}\n{{", r"line 2, column 2: expected JSON"),
        (f"[{PING},]", r"line 1, column \d+: expected JSON"),
        ('{"id": NaN}', "NaN"),
        ("[" * 200_000, "nested too deep"),
        ("1" * 5000, "line 1: expected JSON that can be read"),
    ],
    ids=["nothing", "no messages", "prose", "cut off", "comma", "NaN", "deep", "digits"],
)
def test_what_is_not_json_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_messages(text)


@pytest.mark.parametrize("sort", ["requests", "blocks"])
def test_a_flood_of_wrong_things_in_one_message_gives_a_bounded_list(sort: str) -> None:
    many: list[object] = [{"type": "none"}] * 500
    message: dict[str, object] = {"jsonrpc": "2.0", "id": 1}
    if sort == "blocks":
        message["result"] = {"content": many}
    else:
        message |= {"method": "ping"} | {f"member {number}": 1 for number in range(5000)}
    assert len(validated(message)) == 101


def test_a_finding_cannot_drive_a_terminal() -> None:
    wild = {"jsonrpc": "2.0\x1b[2J", "id": "\x1b", "method": "\x1b]0;x\x07", "\x1b[1m": 1}
    for finding in find_departures(read_messages(json.dumps(wild))):
        assert str(finding).isprintable()
