"""`playhead schema`, as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from playhead.servers.template.documents import openapi_text, schema_text
from tests.e2e.command import REPOSITORY, playhead, playhead_process

RECORDING = REPOSITORY / "tests" / "data" / "conversation.jsonl"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
WRONG = {"jsonrpc": "2.0", "id": "\x1b[31m", "method": "tools/call", "params": {"nam": "x"}}


def test_a_recorded_conversation_is_valid() -> None:
    done = playhead_process("schema", "validate", RECORDING)
    assert done.code == 0, done.stdout
    assert done.stdout == b""
    assert done.stderr.endswith("messages, all valid\n")


def test_a_wrong_message_is_told_with_line_place_and_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "said.jsonl").write_text(f"{json.dumps(PING)}\n{json.dumps(WRONG)}\n")
    done = playhead("schema", "validate", "said.jsonl", cwd=tmp_path)
    assert done.code == 1
    label = r"said.jsonl: line 2, tools/call request, id '\x1b[31m': "
    members = "name, arguments, inputResponses, requestState, _meta (did you mean name?)"
    assert done.stdout.decode().splitlines() == [
        label + "$.params.name: expected a string, got nothing",
        label + f"$.params.nam: expected no member but {members}, got a string",
    ]
    assert done.stderr == "2 messages, 1 invalid\n"


def test_findings_are_one_json_object_with_json(tmp_path: Path) -> None:
    (tmp_path / "said.json").write_text(json.dumps([PING, WRONG]))
    done = playhead("schema", "validate", "said.json", "--json", cwd=tmp_path)
    assert done.code == 1
    assert (done.json["messages"], done.json["wrong_messages"], done.json["error"]) == (2, 1, None)
    assert done.json["findings"][0] == {
        "message": 2,
        "line": 1,
        "label": r"tools/call request, id '\x1b[31m'",
        "path": "$.params.name",
        "expected": "a string",
        "got": "nothing",
    }


@pytest.mark.parametrize(("value", "code"), [(PING, 0), (WRONG, 1)], ids=["right", "wrong"])
def test_stdin_is_read_where_the_file_is_a_dash(value: object, code: int) -> None:
    done = playhead("schema", "validate", "-", stdin=json.dumps(value).encode())
    assert done.code == code
    assert done.stdout.startswith(b"stdin: line 1, " if code else b"")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"hello", "said.json: line 1, column 1: expected JSON"),
        (b"", "said.json: expected at least one message, got none"),
        (b'{"a": "\xff"}', "said.json: byte 7: expected UTF-8"),
        (b'{"a": Infinity}', "line 1: expected JSON that can be read (Infinity is not a JSON number)"),
    ],
    ids=["missing", "prose", "empty", "not UTF-8", "infinite"],
)
def test_what_cannot_be_read_as_messages_is_a_matter_of_usage(
    content: bytes | None, said: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "said.json").write_bytes(content)
    done = playhead("schema", "validate", "said.json", cwd=tmp_path)
    assert done.code == 2
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [((), schema_text()), (("messages",), schema_text()), (("openapi",), openapi_text())],
    ids=["neither", "messages", "openapi"],
)
def test_the_documents_are_shown_as_they_are_shipped(arguments: tuple[str, ...], text: str) -> None:
    run = playhead if arguments else playhead_process
    done = run("schema", "show", *arguments)
    assert done.code == 0
    assert done.stdout.decode() == text
