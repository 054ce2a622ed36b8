"""Failing arguments are shrunk to the shortest that still fail, with few calls, and never changed in kind."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.check.arguments.cases import simplifications
from playhead.check.arguments.generate import Validity
from playhead.check.probes.tool_calls import MOST_SHRINK_CALLS
from playhead.check.report.evidence import Allowance, bounded, command
from playhead.check.results import TestResult
from tests.unit.check.check_kit import Json, text
from tests.unit.check.report_kit import report
from tests.unit.check.test_probe_tools import QUICKLY, Tool, probed

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "count": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "filter": {"type": "object", "properties": {"lang": {"type": "string"}, "year": {"type": "integer"}}},
    },
    "required": ["query"],
    "additionalProperties": False,
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.text(max_size=4), VALUES, min_size=1, max_size=4)


@settings(max_examples=40)
@given(ARGUMENTS)
def test_each_step_is_simpler_and_leaves_the_original_unchanged(arguments: dict[str, Any]) -> None:
    before = json.dumps(arguments)
    steps = list(simplifications(arguments, keep=None))
    assert json.dumps(arguments) == before
    for _, made in steps:
        assert (len(json.dumps(made)), json.dumps(made)) < (len(before), before)


@settings(max_examples=40)
@given(ARGUMENTS, st.data())
def test_the_place_of_a_violation_stays(arguments: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(arguments)))
    for _, made in simplifications(arguments, keep=(name,)):
        assert made[name] == arguments[name]


def greedy(arguments: dict[str, Any], fails: Any) -> dict[str, Any]:
    while True:
        found = next((made for _, made in simplifications(arguments, keep=None) if fails(made)), None)
        if found is None:
            return arguments
        arguments = found


@pytest.mark.parametrize(
    ("fails", "shortest"),
    [
        (lambda it: True, {}),
        (lambda it: "b" in it, {"b": []}),
        (lambda it: len(it.get("a", "")) > 600, {"a": "a" * 601}),
        (lambda it: "é" in it.get("a", ""), {"a": "é"}),
        (lambda it: it.get("c", {}).get("d", 0) > 9, {"c": {"d": 10}}),
        (lambda it: len(it.get("b", [])) >= 2, {"b": ["", ""]}),
    ],
)
def test_the_steps_lead_to_the_shortest_arguments(fails: Any, shortest: dict[str, Any]) -> None:
    arguments = {"a": "é" + "x" * 1_999, "b": ["one", "two", "three"], "c": {"d": 4_321, "e": True}}
    assert greedy(arguments, fails) == shortest


# --- a tool ----------------------------------------------------------------------------------------


def tool_failing(*, when: Any, calls: list[Any]) -> Tool:
    """A tool that answers without content, a defect, for some arguments, and refuses invalid ones."""
    validity = Validity(SCHEMA)

    async def tool(arguments: Any) -> Json:
        calls.append(arguments)
        if not validity.allows(arguments):
            return text("expected arguments by the schema", isError=True)
        return {} if when(arguments) else text("found")

    return tool


def shrunk(tests: list[TestResult]) -> list[Any]:
    return [test.shortest["arguments"] for test in tests if isinstance(test.shortest, dict)]


async def test_a_failing_call_is_shrunk_once_per_check_with_a_bounded_number_of_calls() -> None:
    calls: list[Any] = []
    fails = tool_failing(when=lambda it: len(it["query"]) > 5, calls=calls)
    tests = await probed(fails, replace(QUICKLY, examples=0), inputSchema=SCHEMA)
    assert shrunk(tests) == [{"query": "aaaaaa"}]
    requested = sum(test.method == "tools/call" for test in tests)
    assert len(calls) <= requested + MOST_SHRINK_CALLS + 40, "8 calls at once, and again, are one test"
    (test,) = [test for test in tests if test.shortest is not None]
    assert test.status == "failed"
    assert isinstance(test.input, dict)
    assert len(json.dumps(test.input)) > len(json.dumps(test.shortest)), "the call as it was made stays"


async def test_the_line_to_paste_has_the_shortest_arguments() -> None:
    fails = tool_failing(when=lambda it: "count" in it, calls=[])
    tests = await probed(fails, replace(QUICKLY, examples=0), inputSchema=SCHEMA)
    (test,) = [test for test in tests if test.shortest is not None]
    sent = bounded(test.input, Allowance(left=9_999), chars=9_999)
    line = command(report(test, target="it's here"), test, sent)
    assert line is not None
    assert shlex.split(line)[:4] == ["playhead", "call", "it's here", "it"]
    assert json.loads(shlex.split(line)[-1]) == {"query": "", "count": 0}


async def test_valid_arguments_stay_valid_and_a_violation_stays_one() -> None:
    calls: list[Any] = []

    async def tool(arguments: Any) -> Json:
        calls.append(arguments)
        return text("anything goes")

    tests = await probed(tool, replace(QUICKLY, examples=0), inputSchema=SCHEMA)
    accepted = [test for test in tests if test.status == "failed" and "violate" in test.title]
    assert accepted
    assert "without `query`" in accepted[0].title
    assert isinstance(accepted[0].shortest, dict)
    assert accepted[0].shortest["arguments"] == {}


async def test_a_failure_that_does_not_repeat_is_reported_as_such_and_not_shrunk() -> None:
    calls: list[Any] = []
    fails = tool_failing(when=lambda it: len(calls) == 1, calls=calls)
    tests = await probed(fails, replace(QUICKLY, examples=0), inputSchema=SCHEMA)
    assert shrunk(tests) == []
    (test,) = [test for test in tests if test.status == "failed"]
    assert str(test.error).endswith("(the same call did not fail again)")


async def test_a_destructive_tool_is_not_called_again_either() -> None:
    calls: list[Any] = []
    fails = tool_failing(when=lambda it: True, calls=calls)
    hints = {"destructiveHint": True, "idempotentHint": True}
    await probed(fails, replace(QUICKLY, examples=0), inputSchema=SCHEMA, annotations=hints)
    assert calls == []
