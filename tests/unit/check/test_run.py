"""A whole check: what it reports, whoever runs the graph, and whatever becomes of the server meanwhile."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp.server.mcpserver import MCPServer

from playhead.check import run
from playhead.check.expectations import Expectations, ExpectedCall
from playhead.check.graph import run_graph, run_under_langgraph
from playhead.check.options import CheckOptions
from playhead.check.results import Report, TestResult
from playhead.check.run import check_server
from playhead.check.target import MOST_UNANSWERED, Target, open_target
from playhead.config.servers import ServerConfig, from_command
from playhead.errors import ConfigError, DeadlineError, ServerError
from tests.servers.launch import REPOSITORY
from tests.unit.check.check_kit import FULL, failed

QUICK = CheckOptions(timeout_seconds=2.0)


def small_server() -> MCPServer:
    server: MCPServer = MCPServer("small", version="7", log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:
        """The sum."""
        return a + b

    @server.tool()
    async def greet(name: str) -> str:
        return f"hello {name}"

    return server


def planted(defect: str = "") -> ServerConfig:
    command = [sys.executable, "-c", _PLANTED.format(str(REPOSITORY))]
    return from_command([*command, *([defect] if defect else [])])


_PLANTED = "import sys; sys.path.insert(0, {!r}); import tests.servers.planted.__main__"


def outline(report: Report) -> list[tuple[str, str]]:
    """Return the reproducible part of a report. The cancellation of a fast call is left to chance."""
    return [(test.subject, test.title) for test in report.tests]


# --- the report ------------------------------------------------------------------------------------


async def test_a_quick_check_connects_and_lists_and_calls_nothing() -> None:
    called: list[str] = []
    server = small_server()

    @server.tool()
    def noted() -> str:
        called.append("noted")
        return ""

    report = await check_server(server, QUICK)
    assert (report.mcp_service_status, report.passed) == ("available", True)
    assert (report.server_name, report.server_version) == ("small", "7")
    assert report.tools == ("add", "greet", "noted")
    assert not called
    lists = {"initialize", "server/discover", "tools/list", "resources/list", "prompts/list"}
    assert {test.method for test in report.tests} - {None} <= lists


async def test_a_full_check_calls_every_tool_and_finds_no_fault_in_a_sound_server() -> None:
    report = await check_server(small_server(), FULL)
    assert failed(report.tests) == []
    called = Counter(test.tool for test in report.tests if test.method == "tools/call")
    assert called["add"] > 3
    assert called["greet"] > 3


async def test_each_test_is_reported_when_it_ends() -> None:
    told: list[TestResult] = []
    report = await check_server(small_server(), QUICK, on_test=told.append)
    assert tuple(told) == report.tests


async def test_both_runners_give_the_same_report() -> None:
    reports = [await check_server(small_server(), FULL, runner=r) for r in (run_graph, run_under_langgraph)]
    own, under_langgraph = reports
    assert outline(own) == outline(under_langgraph)
    assert own.tools == under_langgraph.tools
    assert failed(own.tests) == failed(under_langgraph.tests) == []


async def test_a_tool_that_the_servers_file_forbids_is_skipped() -> None:
    report = await check_server(replace(planted(), allowed_tools=("echo",)), FULL)
    called = {test.tool for test in report.tests if test.method == "tools/call"}
    assert called <= {"echo", None}
    skipped = [test for test in report.tests if test.subject == "tool add" and test.status == "skipped"]
    assert [test.error for test in skipped] == ["the servers file does not allow it (playhead.allowed_tools)"]


async def test_a_tool_that_is_expected_and_not_listed_is_a_finding() -> None:
    expectations = Expectations(calls=(ExpectedCall(tool="divide"), ExpectedCall(tool="add", is_error=True)))
    report = await check_server(small_server(), replace(FULL, expectations=expectations))
    assert "tools.expected-listed" in failed(report.tests)


# --- defects of the handshake and the listings -------------------------------------------------------


@pytest.mark.parametrize(
    ("defect", "finds"),
    [
        ("", []),
        ("ping-hangs", ["connection.ping"]),
        ("log-on-stdout", ["wire.messages"]),
        ("capability-without-method", ["capabilities.answered"]),
        ("capability-not-declared", ["capabilities.declared"]),
        ("repeated-cursor", ["tools.list-ends"]),
        ("unknown-cursor-accepted", ["tools.list-unknown-cursor"]),
        ("duplicate-tool", ["tools.list-unique"]),
        ("broken-input-schema", ["tools.input-schema"]),
        ("input-schema-of-a-list", ["tools.input-schema"]),
        ("annotation-of-text", ["tools.annotations"]),
    ],
)
async def test_a_quick_check_finds_exactly_the_planted_defects(defect: str, finds: list[str]) -> None:
    report = await check_server(planted(defect), replace(QUICK, timeout_seconds=1.0))
    assert failed(report.tests) == finds


# --- servers that don't last -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [[sys.executable, "-c", "raise SystemExit(3)"], ["/nonexistent/server"], "http://127.0.0.1:9/mcp"],
    ids=["ends at once", "no program", "nobody listens"],
)
async def test_a_server_that_cannot_be_reached_is_unavailable(target: Any) -> None:
    report = await check_server(target, QUICK)
    assert (report.mcp_service_status, report.passed, report.tools) == ("unavailable", False, ())
    assert failed(report.tests) == ["connection.connect"]
    assert report.tests[0].error


async def test_a_target_that_means_nothing_is_the_callers_fault() -> None:
    with pytest.raises(ConfigError):
        await check_server("")


async def test_the_remaining_tests_run_after_a_server_dies() -> None:
    report = await check_server(planted("dies-of-a-cancellation"), FULL)
    assert failed(report.tests) == ["tools.cancel-survives"]
    (remark,) = [remark for remark in report.remarks if "lost and replaced" in remark]
    assert "tool slow, a cancelled call" in remark
    assert {test.tool for test in report.tests if test.method == "tools/call"} >= {"echo", "add", "slow"}


@asynccontextmanager
async def hanging(after: int) -> AsyncIterator[Target]:
    """A server that answers `after` listings, and then nothing any more."""
    from mcp.server import Server

    listed = 0

    async def list_tools(_context: object, _params: object) -> types.ListToolsResult:
        nonlocal listed
        listed += 1
        if listed > after:
            await trio.sleep_forever()
        return types.ListToolsResult(tools=[])

    async with open_target(Server("hanging", on_list_tools=list_tools), QUICK, mode="legacy") as target:
        yield target


async def test_a_server_that_answers_nothing_any_more_is_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with hanging(after=1) as target:
        assert (await target.request("tools/list")).result is not None
        for _ in range(MOST_UNANSWERED):
            answer = await target.request("tools/list")
            assert isinstance(answer.failure, DeadlineError)
        before = trio.current_time()
        assert (await target.request("tools/list")).failure is target.gone is not None
        assert trio.current_time() == before


async def test_a_server_that_hangs_in_one_tool_only_is_not_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = small_server()

    @server.tool()
    async def hang() -> str:
        await trio.sleep_forever()
        return ""

    async with open_target(server, QUICK) as target:
        for _ in range(2 * MOST_UNANSWERED):
            answer = await target.request("tools/call", {"name": "hang", "arguments": {}})
            assert isinstance(answer.failure, DeadlineError)
        assert target.gone is None
        assert (await target.request("tools/call", {"name": "greet", "arguments": {"name": "x"}})).result


async def test_a_failing_probe_does_not_affect_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(*_: object, **__: object) -> None:
        raise KeyError("a bug")

    async def refuses(*_: object, **__: object) -> None:
        raise ServerError("no prompts today", code=-1)

    monkeypatch.setattr(run, "probe_resources", breaks)
    monkeypatch.setattr(run, "probe_prompts", refuses)
    report = await check_server(small_server(), FULL)
    undecided = {test.subject: test.error for test in report.tests if test.title == "given up"}
    assert undecided["prompts"] == "no prompts today"
    assert undecided["resources"] is not None
    assert "the checker itself failed: KeyError" in undecided["resources"]
    assert report.passed
    assert report.tests[-1].title == "messages other than answers"


@pytest.mark.parametrize("runner", [run_graph, run_under_langgraph])
async def test_cancelling_in_the_middle_of_a_call_ends_everything(runner: Any) -> None:
    begun = trio.Event()
    server = small_server()
    ended = trio.Event()

    @server.tool()
    async def hang() -> str:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
        return ""

    async def check() -> None:
        await check_server(server, replace(FULL, timeout_seconds=60.0), runner=runner)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(check)
            await begun.wait()
            nursery.cancel_scope.cancel()
    assert ended.is_set()


async def test_a_process_is_not_left_behind() -> None:
    seen: list[int] = []

    def note(test: TestResult) -> None:
        names = [path.name for path in Path("/proc").iterdir() if path.name.isdecimal()]
        seen.extend(pid for pid in map(int, names) if is_ours(pid))

    await check_server(planted(), QUICK, on_test=note)
    assert seen
    assert not [pid for pid in set(seen) if is_ours(pid)]


def is_ours(pid: int) -> bool:
    """True if the process is a planted server started by this one."""
    folder = Path("/proc") / str(pid)
    try:
        parent = int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
        return parent == os.getpid() and "tests.servers.planted" in (folder / "cmdline").read_text()
    except OSError:
        return False
