"""A check ends in bounded time and keeps a bounded report, whatever the server; and says what it left out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from playhead.check import run
from playhead.check.options import CheckOptions
from playhead.check.probes import discovery, listing
from playhead.check.probes.asking import excerpt, request_copy
from playhead.check.results import Report, TestResult
from playhead.check.run import check_server
from tests.unit.check.check_kit import failed
from tests.unit.raw_server import NEVER, RawServer

Json = dict[str, Any]
QUICK = CheckOptions(timeout_seconds=2.0)
FULL = replace(QUICK, depth="full", examples=1)
KEPT_CHARS = 100_000


def of_tools(*names: str, call: Any = NEVER) -> RawServer:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    answers = {"tools/list": {"tools": tools}, "tools/call": call}
    return RawServer(answers, capabilities={"tools": {}})


def left_out(report: Report) -> dict[str, str]:
    return {test.subject: test.error or "" for test in report.tests if test.status == "skipped"}


# --- time --------------------------------------------------------------------------------------------


async def test_a_check_out_of_time_ends_and_lists_the_tests_that_it_skipped() -> None:
    names = [f"tool{number}" for number in range(50)]
    # A busy machine may spend half a second on finding the tools, and threads keep a mock clock from helping.
    options = replace(FULL, timeout_seconds=0.8, total_seconds=2.0)
    with trio.fail_after(20):
        report = await check_server(of_tools(*names), options)
    skipped = left_out(report)
    assert {f"tool {name}" for name in names[10:]} <= set(skipped)
    assert "--max-time" in skipped["tool tool49"]
    assert [remark for remark in report.remarks if remark.startswith("not everything was tested")]
    assert report.tests[-1].title == "messages other than answers"
    assert report.tools == tuple(names)
    assert report.timed_out


async def test_no_more_than_so_many_tools_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MOST_TOOLS", 2)
    called: set[str] = set()

    def call(params: Json) -> Json:
        called.add(str(params.get("name")))
        return {"content": [], "isError": True}

    report = await check_server(of_tools("a", "b", "c", "d", call=call), FULL)
    assert called & {"a", "b", "c", "d"} == {"a", "b"}
    assert left_out(report)["the other 2 tools"] == "at most 2 tools of one server are called"


async def test_no_more_than_so_many_definitions_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "MOST_DEFINITIONS", 2)
    report = await check_server(of_tools("a", "b", "c"), QUICK)
    assert [test.tool for test in report.tests if test.title == "definition"] == ["a", "b"]
    assert [test.title for test in report.tests if test.status == "skipped"] == ["the other 1 definitions"]
    assert report.tools == ("a", "b", "c")


# --- size --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {str(number): number for number in range(100_000)},
        {"k" * 1_000_000: 1},
        [[["x" * 300] * 20] * 20] * 20,
        "x" * 10_000_000,
        [1] * 1_000_000,
        {"a": {"b": [{f"{n}": "y" * 400 for n in range(50)}] * 20}},
    ],
    ids=["keys", "a long key", "wide", "text", "list", "mixed"],
)
def test_saved_answers_have_a_bounded_size(value: object) -> None:
    assert len(json.dumps(excerpt(value))) < KEPT_CHARS


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
        max_leaves=20,
    )
)
def test_small_answers_are_saved_unchanged(value: object) -> None:
    assert request_copy(value) == value
    assert excerpt(value) == value


def test_a_request_is_saved_whole_or_not_at_all() -> None:
    assert request_copy({"text": "a" * 60_000}) == {"text": "a" * 60_000}
    assert request_copy({"text": ["a" * 60_000] * 2}) == "… (more than 65536 characters, not recorded)"


async def test_names_of_any_length_do_not_make_a_report_long() -> None:
    report = await check_server(of_tools("n" * 5_000_000, call={"content": []}), FULL)
    kept = [(test.subject, test.title, test.error, test.input, test.output) for test in report.tests]
    assert len(json.dumps(kept)) < KEPT_CHARS
    assert all(len(check.message) <= 4_000 for test in report.tests for check in test.checks)


async def test_a_listing_of_large_pages_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_CHARS", 10_000)
    asked = 0

    def page(params: Json) -> Json:
        nonlocal asked
        asked += 1
        tool = {"name": f"tool{asked}", "description": "d" * 4_000, "inputSchema": {"type": "object"}}
        return {"tools": [tool], "nextCursor": str(asked)}

    report = await check_server(RawServer({"tools/list": page}, capabilities={"tools": {}}), QUICK)
    (test,) = [test for test in report.tests if test.subject == "listing tools" and test.title == "all pages"]
    assert (test.status, test.error) == ("error", "reading stopped after 3 pages with 3 items")


async def test_beyond_the_bound_only_failures_are_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_STORED_CHARS", 0)
    report = await check_server(of_tools("it", call={"content": 1}), FULL)
    wrong = [test for test in report.tests if test.status == "failed"]
    assert wrong
    assert all(test.input is not None for test in wrong if test.method == "tools/call")
    assert not [test for test in report.tests[2:] if test.status == "success" and test.output is not None]


# --- a check that is broken off ----------------------------------------------------------------------


@pytest.mark.parametrize("runner", ["own", "langgraph"])
async def test_a_cancelled_check_passes_on_its_findings(runner: str) -> None:
    from playhead.check.graph import run_graph, run_under_langgraph

    parts: list[Report] = []
    options = replace(FULL, timeout_seconds=60.0)
    with trio.CancelScope() as scope:

        def on_test(test: TestResult) -> None:
            if test.title == "definition":
                scope.cancel()

        await check_server(
            of_tools("it"),
            options,
            on_test=on_test,
            on_broken_off=parts.append,
            runner=run_graph if runner == "own" else run_under_langgraph,
        )
    (part,) = parts
    assert part.interrupted
    assert not part.passed
    assert part.mcp_service_status == "available"
    assert part.tests[-1].title == "definition"
    assert failed(part.tests) == []
    assert "interrupted" in part.remarks[-1]


async def test_a_check_that_completes_is_not_reported_as_interrupted() -> None:
    parts: list[Report] = []
    report = await check_server(of_tools(), QUICK, on_broken_off=parts.append)
    assert not parts
    assert not report.interrupted
    assert not report.timed_out
