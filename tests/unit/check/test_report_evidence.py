"""The request and the command line that show a finding again."""

from __future__ import annotations

import json
import shlex

import pytest

from playhead.check.report.evidence import Shown, command, lacks_a_secret, message, server_words
from playhead.check.results import Json, TestResult
from tests.unit.check.report_kit import call, report


def asked(method: str | None, params: Json, *, server: str = "home", is_whole: bool = True) -> str | None:
    test = TestResult(subject="x", title="x", method=method, input=params, status="failed")
    return command(report(target=server), test, Shown(value=params, is_whole=is_whole))


@pytest.mark.parametrize(
    "text", ["it's", '"', "$(reboot)", "`reboot`", "a; b", "a\nb", "\\", "*", "!!", "é", "\u202e", "-x", ""]
)
def test_a_shell_parses_the_line_to_the_arguments_that_were_sent(text: str) -> None:
    line = asked(
        "tools/call", {"name": "say", "arguments": {text: [text]}}, server="node 'my server.js' stdio"
    )
    assert line is not None
    assert line.isascii(), "a terminal acts on nothing that is pasted"
    assert "\n" not in line
    words = shlex.split(line)
    assert words[:5] == ["playhead", "call", "node 'my server.js' stdio", "say", "--args"]
    assert json.loads(words[5]) == {text: [text]}


def test_names_that_begin_like_options_come_after_the_end_of_options() -> None:
    line = asked("tools/call", {"name": "--json", "arguments": {"a": 1}})
    assert line is not None
    assert shlex.split(line) == ["playhead", "call", "--args", '{"a": 1}', "--", "home", "--json"]


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("tools/call", {"name": "now"}, "playhead call home now"),
        ("tools/call", {"name": "now", "arguments": {}}, "playhead call home now"),
        ("resources/read", {"uri": "res://a b"}, "playhead read home 'res://a b'"),
        ("tools/list", None, "playhead tools home"),
        ("tools/list", {"cursor": "2"}, "playhead tools home"),
    ],
)
def test_methods_with_a_command_have_a_line(method: str, params: Json, expected: str) -> None:
    assert asked(method, params) == expected


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (None, None),
        ("prompts/get", {"name": "x"}),
        ("tools/call", None),
        ("tools/call", {"arguments": {}}),
        ("tools/call", {"name": 1, "arguments": {}}),
        ("tools/call", {"name": "x", "arguments": [1]}),
        ("tools/call", {"name": "x\n", "arguments": {}}),
        ("tools/call", {"name": "\x1b[201~reboot", "arguments": {}}),
        ("tools/call", {"name": "\u202ex", "arguments": {}}),
        ("tools/call", {"name": "x", "arguments": {"long": "y" * 40_000}}),
        ("resources/read", {"uri": ["x"]}),
    ],
)
def test_a_request_that_no_command_line_can_send_has_no_line(method: str | None, params: Json) -> None:
    assert asked(method, params) is None


def test_parameters_that_were_cut_have_no_line() -> None:
    assert asked("tools/call", {"name": "x", "arguments": {}}, is_whole=False) is None


def test_a_server_that_a_program_named_has_a_line_where_it_is_an_address() -> None:
    test = TestResult(subject="x", title="x", method="tools/list", status="failed")
    for server, expected in (
        ("wss://example.org/mcp", "playhead tools wss://example.org/mcp"),
        ("node", None),
    ):
        assert command(report(server=server), test, Shown(value=None, is_whole=True)) == expected


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("node server.js stdio", "node server.js stdio"),
        ("npx server --api-key=sekrit --port 3", "npx server --api-key=… --port 3"),
        ("npx server --access-token sekrit", "npx server --access-token …"),
        ("npx server --auth-token 'sekrit sekrit' x", "npx server --auth-token … x"),
        ("env GITHUB_TOKEN=sekrit server", "env GITHUB_TOKEN=… server"),
        ("server --use-token --port 3", "server --use-token --port 3"),
        ("https://me:sekrit@example.org/mcp?key=sekrit", "https://…@example.org/mcp?key=…"),
    ],
)
def test_likely_secrets_are_left_out_of_a_command_line(target: str, words: str) -> None:
    assert server_words(report(target=target)) == words


def test_the_message_is_a_request_ready_to_send() -> None:
    test = TestResult(subject="x", title="x", method="tools/list", status="failed")
    assert message(test, Shown(value=None, is_whole=True)) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/list",
    }
    assert message(test, Shown(value={"cursor": "2"}, is_whole=True)) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/list",
        "params": {"cursor": "2"},
    }


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("tools/call", {"name": "now", "arguments": {"a": 1}}, ["call", "home", "now", "--args", '{"a": 1}']),
        ("resources/read", {"uri": "res://a"}, ["read", "home", "res://a"]),
        ("tools/list", None, ["tools", "home"]),
    ],
)
def test_the_servers_file_that_was_named_is_named_again(
    method: str, params: Json, expected: list[str]
) -> None:
    test = TestResult(subject="x", title="x", method=method, input=params, status="failed")
    line = command(report(target="home", config="my servers.json"), test, Shown(value=params, is_whole=True))
    assert line is not None
    assert shlex.split(line) == ["playhead", *expected, "--config", "my servers.json"]


@pytest.mark.parametrize(
    ("target", "lacks"),
    [
        ("home", False),
        ("node 'my server.js' stdio", False),
        ("node server.js --api-key abc", True),
        ("https://me:pass@example.org/mcp", True),
    ],
)
def test_a_line_that_cannot_be_run_as_it_stands_is_known(target: str, lacks: bool) -> None:
    assert lacks_a_secret(report(target=target)) is lacks


@pytest.mark.parametrize(("name", "forced"), [("city", False), ("town", True)])
def test_a_name_that_the_schema_lacks_is_forced(name: str, forced: bool) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    made = report(target="home", definitions={"forecast": {"inputSchema": schema}})
    test = call("forecast", "x", {name: 1}).done()
    line = command(made, test, Shown(value=test.input, is_whole=True))
    assert line is not None
    assert ("--force" in shlex.split(line)) is forced
