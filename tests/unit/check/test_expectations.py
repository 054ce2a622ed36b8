"""The expectations file: what it may say, and how what it may not is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from playhead.check.options import ExpectedCall, load_expectations, read_expectations
from playhead.errors import ConfigError

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
    import tomllib

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
def test_what_is_wrong_is_named_with_its_place(raw: Any, message: str) -> None:
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
def test_a_file_that_is_none_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_expectations(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_expectations(tmp_path / "nowhere.toml")
