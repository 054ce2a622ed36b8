"""The expectations file: what it may say, and how what it may not is named."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.server.mcpserver import MCPServer

from playhead.check.expectations import ExpectedCall, draft_expectations, load_expectations, read_expectations
from playhead.check.options import CheckOptions
from playhead.check.results import Json, Report
from playhead.check.run import check_server
from playhead.errors import ConfigError
from tests.unit.check.report_kit import call, report

TOML = """
[[calls]]
tool = "calculator"
arguments = { expression = "2 + 3 * 4", digits = 2 }
content_types = ["text"]
patterns = ["^14$"]
max_latency_ms = 500

[[calls]]
tool = "calculator"
arguments = { expression = "1 / 0" }
is_error = true

[[calls]]
tool = "search"
error_code = -32602
"""
CALLS = (
    ExpectedCall(
        tool="calculator",
        arguments={"expression": "2 + 3 * 4", "digits": 2},
        content_types=("text",),
        patterns=("^14$",),
        max_latency_ms=500.0,
    ),
    ExpectedCall(tool="calculator", arguments={"expression": "1 / 0"}, is_error=True),
    ExpectedCall(tool="search", error_code=-32602),
)


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    toml, same = tmp_path / "expect.toml", tmp_path / "expect.json"
    toml.write_text(TOML)
    same.write_text(json.dumps(tomllib.loads(TOML)))
    assert load_expectations(toml).calls == CALLS
    assert load_expectations(same) == load_expectations(toml)


def test_the_calls_of_a_tool_keep_their_order() -> None:
    found = read_expectations(
        {"calls": [{"tool": "a"}, {"tool": "b"}, {"tool": "a", "is_error": True}]}, where="f"
    )
    assert [call.is_error for call in found.of_tool("a")] == [False, True]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], "f: expected an object"),
        ({"call": []}, "f: call: is not a setting; did you mean 'calls'"),
        ({"calls": {}}, "f: calls: expected an array"),
        (
            {"calls": [{"tool": "a", "pattern": "x"}]},
            r"f: calls\[0\].pattern: is not a setting; did you mean",
        ),
        ({"calls": [{}]}, r"f: calls\[0\]: the key 'tool' is missing"),
        ({"calls": [{"tool": 1}]}, r"f: calls\[0\].tool: expected a string"),
        ({"calls": [{"tool": "a", "arguments": []}]}, r"calls\[0\].arguments: expected an object"),
        ({"calls": [{"tool": "a", "is_error": "no"}]}, r"calls\[0\].is_error: expected true or false"),
        ({"calls": [{"tool": "a", "error_code": "x"}]}, r"calls\[0\].error_code: expected a whole number"),
        (
            {"calls": [{"tool": "a", "patterns": ["("]}]},
            r"calls\[0\].patterns\[0\]: expected a regular expression",
        ),
        (
            {"calls": [{"tool": "a", "max_latency_ms": 0}]},
            r"calls\[0\].max_latency_ms: expected a number above 0",
        ),
        (
            {"calls": [{"tool": "a", "error_code": -1, "is_error": True}]},
            r"calls\[0\].is_error: cannot be combined with error_code",
        ),
        ({"calls": [{"tool": "a", "arguments": {"x": float("nan")}}]}, "x: expected a finite number"),
    ],
)
def test_an_invalid_entry_is_reported_with_its_place(raw: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_expectations(raw, where="f")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("e.toml", "calls = [", "not valid TOML"),
        ("e.json", "{", "not valid JSON"),
        ("e.json", "[" * 100_000, "nested too deep"),
        ("e.toml", '[[calls]]\ntool = "a"\narguments = { when = 2026-01-01 }', "write a date as a string"),
    ],
)
def test_an_invalid_file_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_expectations(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_expectations(tmp_path / "nowhere.toml")


# --- the draft -----------------------------------------------------------------------------------------


def answered(arguments: Json, *types: str, tool: str = "forecast", text: str = "mild") -> Report:
    blocks = [{"type": kind, "text": text} for kind in types]
    return report(call(tool, "x", arguments, {"content": blocks}).done(), tools=(tool,))


def read_back(text: str) -> tuple[ExpectedCall, ...]:
    return read_expectations(tomllib.loads(text), where="draft").calls


def test_a_draft_has_the_successful_calls_and_remarks_to_edit() -> None:
    refused = call("lookup", "x", {"word": "a"}, {"isError": True, "content": []})
    refused.undecided = "no such word"
    again = call("forecast", "again", {"city": "Oslo"}, {"content": [{"type": "text", "text": "rain"}]})
    made = report(*answered({"city": "Oslo"}, "text", text="4 °C (mild)\nwind").tests, again.done())
    made = report(*made.tests, refused.done(), tools=("forecast", "lookup"))
    assert draft_expectations(made).split("\n\n", 1)[1] == (
        '[[calls]]\ntool = "forecast"\narguments = {city = "Oslo"}\ncontent_types = ["text"]\n'
        '# patterns = ["4 °C \\\\(mild\\\\)"]\n# max_latency_ms = 100\n\n'
        '# "lookup" answered none of the tried arguments with a result. Give it some that work:\n'
        '# [[calls]]\n# tool = "lookup"\n# arguments = {word = "a"}\n'
    )


def test_the_remarks_of_a_draft_are_settings_once_their_number_sign_is_gone() -> None:
    text = draft_expectations(answered({"city": "Oslo"}, "text", text='a "quoted" \\ line'))
    (edited,) = read_back(re.sub(r"^# (?=patterns|max_latency)", "", text, flags=re.M))
    assert re.search(edited.patterns[0], 'a "quoted" \\ line')
    assert edited.max_latency_ms == 100


ARGUMENTS = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)  # fmt: skip


@given(ARGUMENTS, st.text(max_size=20))
def test_any_arguments_are_read_back_from_a_draft(arguments: dict[str, Any], text: str) -> None:
    made = answered(arguments, "text", "image", text=text)
    expected = ExpectedCall(tool="forecast", arguments=arguments, content_types=("text", "image"))
    assert read_back(draft_expectations(made)) == (expected,)
    as_json = json.loads(draft_expectations(made, as_json=True))
    assert read_expectations(as_json, where="draft").calls == (expected,)


@pytest.mark.parametrize("value", [None, {"a": [None]}, 2**70, "\ud800"])
def test_arguments_that_a_file_cannot_hold_are_left_out(value: Any) -> None:
    assert read_back(draft_expectations(answered({"a": value}, "text"))) == ()


def test_null_can_be_drafted_in_json() -> None:
    text = draft_expectations(answered({"a": None}, "text"), as_json=True)
    assert json.loads(text)["calls"][0]["arguments"] == {"a": None}


def test_the_types_of_a_truncated_answer_are_not_drafted() -> None:
    made = call("forecast", "x", {}, {"content": [{"type": "text"}, "… (and 30 more)"]}).done()
    (drafted,) = read_back(draft_expectations(report(made, tools=("forecast",))))
    assert drafted.content_types is None


async def test_an_unedited_draft_passes_the_check_that_it_was_drafted_from(tmp_path: Path) -> None:
    server: MCPServer = MCPServer("drafted", log_level="CRITICAL")

    @server.tool()
    def add(a: int, b: int = 2) -> int:
        return a + b

    @server.tool()
    def never(word: str) -> str:
        raise ValueError("unknown word")

    first = await check_server(server, CheckOptions(depth="full", examples=1))
    for name in ("expect.toml", "expect.json"):
        path = tmp_path / name
        path.write_text(draft_expectations(first, as_json=name.endswith(".json")))
        expectations = load_expectations(path)
        assert {call.tool for call in expectations.calls} == {"add"}
        options = CheckOptions(depth="full", examples=1, expectations=expectations)
        second = await check_server(server, options)
        outcomes = [test.status for test in second.tests if test.title.startswith("expected call")]
        assert outcomes == ["success"] * len(expectations.calls)
