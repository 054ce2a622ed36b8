"""`check_server`: the whole check of one server, from connecting to the report."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from playhead.check.connecting import Checkable, SessionTarget, open_target, resolve, words_for
from playhead.check.graph import (
    Graph,
    Node,
    Runner,
    State,
    Update,
    discovery_graph,
    first_state,
    merged,
    reporting_graph,
    run_graph,
    testing_graph,
)
from playhead.check.options import CheckOptions
from playhead.check.probes.connection import judge_stay, probe_connection, unreachable
from playhead.check.probes.discovery import probe_discovery
from playhead.check.probes.prompts import probe_prompts
from playhead.check.probes.resources import probe_resources
from playhead.check.probes.server import probe_server
from playhead.check.probes.tools import probe_tool
from playhead.check.probes.wire import judge_wire
from playhead.check.results import Report, TestResult
from playhead.client.groups import bare
from playhead.config.servers import ServerConfig
from playhead.errors import ConnectError, PlayheadError
from playhead.limits import MIB

OnTest = Callable[[TestResult], None]
OnBrokenOff = Callable[[Report], None]

MOST_TOOLS: Final = 256
"""Called of one server; the rest is reported as skipped."""
_KEPT_CHARS: Final = 64 * MIB
"""Of requests and answers, as they stand in a report; past it, those of tests that passed are left out."""
_MOST_LOST: Final = 5
"""Tests at which the connection was lost that a report names."""
_TITLE_CHARS: Final = 300


async def check_server(
    target: ServerConfig | str | Sequence[str] | Server[Any] | MCPServer,
    options: CheckOptions | None = None,
    *,
    on_test: OnTest | None = None,
    on_broken_off: OnBrokenOff | None = None,
    runner: Runner = run_graph,
) -> Report:
    """Check the server that `target` names (as for `playhead.connect`), and report what was found.

    `on_test` is told of each test as it ends, and must not wait; `on_broken_off` is given the report on what
    was found up to then where the check is cancelled. `runner` is what runs the state graph:
    `playhead.check.langgraph.run_under_langgraph` runs the same one under LangGraph.

    What the server does wrong is in the report, never raised: one that can't be reached has the
    `mcp_service_status` `unavailable`. Raises `ConfigError` for a target that can't be understood.
    Cancelling ends the server's process, where there is one, and everything in flight.
    """
    check = _Check(resolve(target), options or CheckOptions(), on_test or _nobody)
    with bare():
        async with trio.open_nursery() as nursery:
            check.nursery = nursery
            try:
                state = await runner(discovery_graph(check), first_state())
                if state["mcp_status"] == "available":
                    state = await runner(check.testing(), state)
            except BaseException:  # an interrupt above all: what was found so far is not lost
                if on_broken_off is not None:
                    on_broken_off(check.broken_off())
                raise
            finally:
                check.leave()
    return state["result"] or check.report(state)


def _nobody(_test: TestResult) -> None:
    """Who is told where nobody asked to be."""


class _Check:
    """One check under way: the connection, what was found, and the work behind the graph's nodes.

    The connection is held by a task of its own, since the nodes may run each in a task that ends before the
    next begins.
    """

    nursery: trio.Nursery

    def __init__(self, server: Checkable, options: CheckOptions, on_test: OnTest) -> None:
        self._server = server
        self._options = options
        self._on_test = on_test
        self._target: SessionTarget | None = None
        self._left = trio.Event()
        self._tests: list[TestResult] = []
        self._remarks: list[str] = []
        self._reconnects = 0
        self._lost_at: list[str] = []
        self._kept_chars = 0
        self._started = trio.current_time()
        self._deadline = self._started + options.total_seconds
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")

    # --- the nodes ---------------------------------------------------------------------------------

    async def check_mcp_status(self, state: State) -> Update:
        """Connect, and judge how that went."""
        started = trio.current_time()
        try:
            self._target = await self.nursery.start(self._hold)
        except ConnectError as error:
            self._found(unreachable(error, (trio.current_time() - started) * 1000))
            return Update(
                current_task="check_mcp_status",
                mcp_status="unavailable",
                error=str(error),
                messages=[f"could not connect: {error}"],
            )
        target = self._there()
        latency_ms = (trio.current_time() - started) * 1000
        await self._probe("connection", lambda: probe_connection(target, self._found, latency_ms=latency_ms))
        return Update(
            current_task="check_mcp_status",
            mcp_status="available",
            messages=[f"connected to {target.session.name}, MCP {target.protocol_version}"],
        )

    async def discover_tools(self, state: State) -> Update:
        """List the tools."""
        target = self._there()

        async def discover() -> None:
            target.tools = await probe_discovery(target, self._found)

        await self._probe("discovery", discover)
        names = [tool.name for tool in target.tools]
        return Update(
            current_task="discover_tools",
            available_tools=names,
            messages=[f"discovered {len(names)} tools"],
        )

    def test_tool(self, name: str) -> Node:
        """The node that tests the tool `name`."""

        async def test(state: State) -> Update:
            tool = next(tool for tool in self._there().tools if tool.name == name)
            why = self._why_not(tool)
            if why is None:
                await self._probe(f"tool {name}", lambda: probe_tool(self._there(), tool, self._found))
            else:
                self._skipped(f"tool {name}", why, tool=name)
            return Update(current_task=f"test_{name}", messages=[f"tested {name}"])

        return test

    async def test_resources(self, state: State) -> Update:
        """List and read."""
        await self._probe("resources", lambda: probe_resources(self._there(), self._found))
        return Update(current_task="test_resources", messages=["tested resources"])

    async def test_prompts(self, state: State) -> Update:
        """List and get; and then, last of all that is sent, what the server as a whole has to stand."""
        await self._probe("prompts", lambda: probe_prompts(self._there(), self._found))
        await self._probe("server", lambda: probe_server(self._there(), self._found))
        return Update(current_task="test_prompts", messages=["tested prompts"])

    async def generate_report(self, state: State) -> Update:
        """Put together what was found, with what was noticed by the way."""
        target = self._there()
        judge_stay(target, self._found)
        judge_wire(target, self._found)
        reconnects = target.session.statistics().reconnects
        if reconnects:
            times = "once" if reconnects == 1 else f"{reconnects} times"
            at = "; ".join(self._lost_at) + ("; …" if len(self._lost_at) == _MOST_LOST else "")
            self._remarks.append(f"the connection was lost and made anew, {times}, at: {at or 'the end'}")
        return Update(
            current_task="generate_report",
            result=self.report(state),
            messages=[f"{len(self._tests)} tests"],
        )

    # --- what they need ----------------------------------------------------------------------------

    def testing(self) -> Graph:
        """The graph of what is left to do, now that the tools are known."""
        if self._options.depth == "quick":
            return reporting_graph(self)
        names = [tool.name for tool in self._there().tools]
        if len(names) > MOST_TOOLS:
            why = f"{MOST_TOOLS} tools of one server are called"
            self._skipped(f"the other {len(names) - MOST_TOOLS} tools", why)
        return testing_graph(self, names[:MOST_TOOLS])

    def _why_not(self, tool: types.Tool) -> str | None:
        """Why a tool is not called; None where it is."""
        allowed = self._server.allowed_tools if isinstance(self._server, ServerConfig) else None
        if allowed is not None and tool.name not in allowed:
            return "the servers file does not allow it (playhead.allowed_tools)"
        return None

    def _skipped(self, subject: str, why: str, *, tool: str | None = None) -> None:
        self._found(TestResult(subject=subject, title="all", tool=tool, status="skipped", error=why))

    def leave(self) -> None:
        """Let go of the connection. Idempotent."""
        self._left.set()

    def broken_off(self) -> Report:
        """What was found up to now, in a check that does not come to its end."""
        found = Update(mcp_status="unknown")
        if self._target is not None:
            tools = [tool.name for tool in self._target.tools]
            found = Update(mcp_status="available", available_tools=tools)
        self._remarks.append("the check was broken off: this is what was found up to then")
        return replace(self.report(merged(first_state(), found)), interrupted=True)

    def report(self, state: State) -> Report:
        """What was found so far."""
        session = self._target.session if self._target is not None else None
        info = session.server_info if session is not None else None
        return Report(
            server=session.name if session is not None else words_for(self._server),
            server_name=info.name if info is not None else None,
            server_version=info.version if info is not None else None,
            protocol_version=session.protocol_version if session is not None else None,
            depth=self._options.depth,
            seed=self._options.seed,
            started_at=self._started_at,
            seconds=trio.current_time() - self._started,
            mcp_service_status=state["mcp_status"],
            tools=tuple(state["available_tools"]),
            tests=tuple(self._tests),
            remarks=tuple(self._remarks),
        )

    async def _hold(self, *, task_status: trio.TaskStatus[SessionTarget]) -> None:
        async with open_target(self._server, self._options) as target:
            task_status.started(target)
            await self._left.wait()

    def _there(self) -> SessionTarget:
        assert self._target is not None, "the graph comes here after check_mcp_status only"
        return self._target

    def _found(self, test: TestResult) -> None:
        test = self._bounded(test)
        reconnects = self._target.session.statistics().reconnects if self._target is not None else 0
        if reconnects > self._reconnects and len(self._lost_at) < _MOST_LOST:
            self._lost_at.append(f"{test.subject}, {test.title}")
        self._reconnects = reconnects
        self._tests.append(test)
        self._on_test(test)

    def _bounded(self, test: TestResult) -> TestResult:
        """`test` as it is kept: a server names its tools, and there may be thousands of tests."""
        test = replace(test, subject=test.subject[:_TITLE_CHARS], title=test.title[:_TITLE_CHARS])
        if test.status == "success" and self._kept_chars > _KEPT_CHARS:
            return replace(test, input=None, output=None)
        self._kept_chars += len(json.dumps([test.input, test.output], default=str))
        return test

    async def _probe(self, subject: str, probe: Callable[[], Awaitable[None]]) -> None:
        """Run `probe`; where it breaks itself, say so as a test that decided nothing, and go on."""
        if self._there().gone is not None:
            self._skipped(subject, "the server is gone")
            return
        if trio.current_time() >= self._deadline:
            self._skipped(subject, self._too_late())
            return
        with trio.move_on_at(self._deadline) as scope:
            try:
                await probe()
            except PlayheadError as error:
                self._found(_given_up(subject, str(error)))
            except Exception as error:  # noqa: BLE001 - a bug of one probe must not lose what the others find
                why = f"the checker itself failed: {type(error).__name__}: {error}; please report it"
                self._found(_given_up(subject, why))
        if scope.cancelled_caught:
            self._remarks.append(f"not everything was tested: {self._too_late()}")
            self._skipped(subject, f"the rest was left out: {self._too_late()}")

    def _too_late(self) -> str:
        return f"the check had taken the {self._options.total_seconds:g} s that it may take (--max-time)"


def _given_up(subject: str, why: str) -> TestResult:
    return TestResult(subject=subject, title="given up", status="error", error=why)
