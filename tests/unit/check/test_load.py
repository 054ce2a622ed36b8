"""The load engine in simulated time, and the figures of a server in this process."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
from trio.testing import MockClock

from playhead.check.load import LoadAnswer, LoadMeter, percentile, probe_load, run_load
from playhead.check.options import LoadPlan
from playhead.check.results import LoadFigures, Report, TestResult
from playhead.check.run import check_server
from playhead.errors import UsageError
from tests.unit.check.check_kit import FULL, failed, failures, target_for
from tests.unit.check.report_kit import call
from tests.unit.raw_server import NEVER, RawServer


@pytest.mark.parametrize(
    ("share", "values", "expected"),
    [
        (0.5, [], None),
        (0.5, [7.0], 7.0),
        (0.95, [7.0], 7.0),
        (0.5, [1.0, 2.0, 3.0, 4.0], 2.0),
        (0.95, [float(it) for it in range(1, 101)], 95.0),
        (0.95, [float(it) for it in range(1, 11)], 10.0),
    ],
)
def test_a_percentile_is_a_value_that_did_occur(
    share: float, values: list[float], expected: float | None
) -> None:
    assert percentile(values, share) == expected


async def test_clients_send_one_request_after_the_other_and_all_at_once(autojump_clock: MockClock) -> None:
    flying, most = 0, 0

    async def request() -> LoadAnswer:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await trio.sleep(0.25)
        flying -= 1
        return LoadAnswer(size_bytes=1_000)

    meter, seconds = await run_load(LoadPlan(clients=4, requests=10), request)
    figures = meter.figures(subject="tool t", method="tools/call", clients=4, seconds=seconds)
    assert (most, figures.requests, figures.failures) == (4, 40, 0)
    assert figures.seconds == pytest.approx(2.5)
    assert figures.p50_ms == pytest.approx(250)
    assert figures.p95_ms == pytest.approx(250)
    assert figures.requests_per_second == pytest.approx(16)
    assert figures.bytes_per_second == pytest.approx(16_000)


async def test_a_load_ends_in_time_with_the_requests_until_then(autojump_clock: MockClock) -> None:
    async def request() -> LoadAnswer:
        await trio.sleep(4)
        return LoadAnswer()

    meter, seconds = await run_load(LoadPlan(clients=2, requests=100, seconds=10.0), request)
    assert len(meter.latencies_ms) == 4
    assert seconds == pytest.approx(10)


def test_failures_count_as_requests_and_not_in_the_latencies() -> None:
    meter = LoadMeter()
    meter.add(LoadAnswer(size_bytes=10), 5.0)
    meter.add(LoadAnswer(failure="refused"), 500.0)
    meter.add(LoadAnswer(failure="gone"), 500.0)
    figures = meter.figures(subject="s", method="m", clients=1, seconds=2.0)
    assert (figures.requests, figures.failures, figures.first_failure) == (3, 2, "refused")
    assert (figures.p95_ms, figures.requests_per_second, figures.bytes_per_second) == (5.0, 0.5, 5.0)


@pytest.mark.parametrize("text", ["8x100", "1x1", "1000x1000000"])
def test_a_plan_is_written_as_it_is_read(text: str) -> None:
    assert str(LoadPlan.parse(text)) == text


@pytest.mark.parametrize("text", ["", "8", "8x", "x8", "0x1", "1x0", "-1x2", "8X100", "1001x1", "8x100x2"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected CLIENTSxREQUESTS such as 8x100"):
        LoadPlan.parse(text)


async def loaded(server: MCPServer, *, requests: int = 5, allow: bool = False) -> Report:
    plan = LoadPlan(clients=2, requests=requests)
    return await check_server(server, replace(FULL, load=plan, allow_destructive=allow, examples=0))


def server_with(*, fails_after: int | None = None) -> MCPServer:
    """A tool that answers so many calls, and one that may destroy."""
    server: MCPServer = MCPServer("loaded", log_level="CRITICAL")
    calls = 0

    @server.tool(structured_output=False)
    def count() -> str:
        nonlocal calls
        calls += 1
        if fails_after is not None and calls > fails_after:
            raise ValueError("worn out")
        return "x" * 100

    @server.tool(structured_output=False, annotations=ToolAnnotations(destructive_hint=True))
    def destroy() -> str:
        return "gone"

    @server.resource("file:///a.txt")
    def text() -> str:
        return "hello"

    return server


async def test_each_tool_and_resource_has_figures_and_a_destructive_tool_only_if_allowed() -> None:
    report = await loaded(server_with())
    assert [(it.subject, it.requests, it.failures) for it in report.load] == [
        ("resource file:///a.txt", 10, 0),
        ("tool count", 10, 0),
    ]
    assert all(it.p50_ms is not None and it.bytes_per_second > 0 for it in report.load)
    assert failed(report.tests) == []
    allowed = await loaded(server_with(), allow=True)
    assert "tool destroy" in [it.subject for it in allowed.load]


async def test_a_failure_under_load_is_a_finding() -> None:
    report = await loaded(server_with(fails_after=100), requests=100)
    (count,) = (it for it in report.load if it.subject == "tool count")
    assert (count.failures > 0, count.first_failure) == (True, "a result with isError")
    (check,) = failures([test for test in report.tests if test.subject == "tool count"])
    assert check.kind.name == "load.answered"
    assert "expected 200 results, as for a single client" in check.message


async def test_a_load_without_any_answer_is_a_finding() -> None:
    tools = {"tools": [{"name": "it", "inputSchema": {"type": "object"}}]}
    server = RawServer({"tools/list": tools, "tools/call": NEVER}, capabilities={"tools": {}})
    alone = call("it", "alone", {}, {"content": []}).done()
    found: list[TestResult] = []
    measured: list[LoadFigures] = []
    plan = LoadPlan(clients=2, requests=5, seconds=0.25)
    async with target_for(server, replace(FULL, timeout_seconds=60.0)) as target:
        target.on_test = found.append
        await probe_load(target, plan, [alone], measured.append)
    assert [(it.requests, it.failures) for it in measured] == [(0, 0)]
    (check,) = failures(found)
    assert check.kind.name == "load.answered"
    assert "no request was answered within 0.25 s" in check.message


async def test_a_server_without_a_successful_request_is_skipped_with_the_reason() -> None:
    server: MCPServer = MCPServer("empty", log_level="CRITICAL")
    report = await loaded(server)
    assert [test.error for test in report.tests if test.subject == "load"] == [
        "no request was answered with a result that could be repeated"
    ]
