"""`check_server`: check one server, from connecting to the report."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from playhead.check.baseline import Triage, definition_of, drift_tests
from playhead.check.cassette import CassetteRecorder
from playhead.check.footprint import Footprint, changes, footprint, listed_resources
from playhead.check.framework import attribute
from playhead.check.graph import (
    Graph,
    Node,
    Runner,
    State,
    Update,
    discovery_graph,
    first_state,
    merge,
    reporting_graph,
    run_graph,
    testing_graph,
)
from playhead.check.load import probe_load
from playhead.check.options import CheckOptions
from playhead.check.plugins import probe_plugins
from playhead.check.probes.connection import judge_stay, judge_wire, probe_connection, unreachable_test
from playhead.check.probes.discovery import probe_discovery
from playhead.check.probes.http import probe_authorization, probe_http
from playhead.check.probes.mined import probe_mined
from playhead.check.probes.process import probe_process
from playhead.check.probes.prompts import probe_prompts
from playhead.check.probes.proposals import AskModel, probe_proposals
from playhead.check.probes.resources import probe_resources
from playhead.check.probes.server import probe_server
from playhead.check.probes.tool_judging import settled
from playhead.check.probes.tools import probe_tool
from playhead.check.probes.utilities import probe_log_level
from playhead.check.results import (
    Json,
    LoadFigures,
    Report,
    Sample,
    TestResult,
)
from playhead.check.target import (
    Checkable,
    OnTest,
    Target,
    open_target,
    resolve,
    words_for,
)
from playhead.concurrency import unwrap_exception_group
from playhead.config.servers import ServerConfig
from playhead.errors import ConnectError, PlayheadError
from playhead.limits import MIB
from playhead.redaction import redacted_values

OnBrokenOff = Callable[[Report], None]

MOST_TOOLS: Final = 256
"""Limits the tools called on one server. The others are reported as skipped."""
_STORED_CHARS: Final = 64 * MIB
"""Limits the characters of requests and answers in a report. Once they are used up, passed tests have
none."""
_SAMPLE_CHARS: Final = 16 * MIB
"""Limits the characters of images and audio in a report."""
_MOST_SAMPLES: Final = 3
"""Limits the distinct images and audio per subject."""
_MOST_LOST: Final = 5
"""Limits the tests with a lost connection that a report names."""
_TITLE_CHARS: Final = 300


async def check_server(
    target: ServerConfig | str | Sequence[str] | Server[Any] | MCPServer,
    options: CheckOptions | None = None,
    *,
    on_test: OnTest | None = None,
    on_broken_off: OnBrokenOff | None = None,
    runner: Runner = run_graph,
    recorder: CassetteRecorder | None = None,
    ask_model: AskModel | None = None,
) -> Report:
    """Check the server that `target` names (as for `playhead.connect`) and return the report.

    `on_test` is called with each finished test and must not block. `on_broken_off` gets the report on the
    findings so far if the check is cancelled. `runner` runs the state graph; `check.graph` has two.
    `recorder` records the requests of the check's session and their answers. `ask_model` sends a model a
    system prompt and a message, and returns its reply; in a full check it then proposes arguments.

    Defects of the server are in the report, never raised: an unreachable server has the `mcp_service_status`
    `unavailable`. Raises `ConfigError` for an invalid target. Cancelling stops the server's process, if any,
    and everything in flight.
    """
    check = _Check(resolve(target), options or CheckOptions(), on_test, recorder, ask_model)
    with unwrap_exception_group():
        async with trio.open_nursery() as nursery:
            check.nursery = nursery
            try:
                state = await runner(discovery_graph(check), first_state())
                if state["mcp_status"] == "available":
                    state = await runner(check.testing(), state)
            except BaseException:  # also after an interrupt, the findings so far must not be lost
                if on_broken_off is not None:
                    on_broken_off(check.interrupted_report())
                raise
            finally:
                check.release()
    return state["result"] or check.report(state)


class _Check:
    """One running check: the connection, the findings, and the implementation of the graph's nodes.

    A task of its own holds the connection, because each node may run in a task that ends before the next
    starts.
    """

    nursery: trio.Nursery

    def __init__(
        self,
        server: Checkable,
        options: CheckOptions,
        on_test: OnTest | None,
        recorder: CassetteRecorder | None,
        ask_model: AskModel | None,
    ) -> None:
        self._server = server
        self._recorder = recorder
        self._ask_model = ask_model
        self._options = options
        secrets = server.secrets if isinstance(server, ServerConfig) else frozenset[str]()
        self._triage = Triage(
            level=options.level,
            ignored=options.ignored,
            baseline=redacted_values(options.baseline, secrets),
            secrets=secrets,
        )
        self._on_test = on_test
        self._target: Target | None = None
        self._release = trio.Event()
        self._tests: list[TestResult] = []
        self._load: list[LoadFigures] = []
        self._samples: dict[str, set[str]] = {}
        self._sample_chars = _SAMPLE_CHARS
        self._remarks: list[str] = []
        self._before = Footprint(entries={})
        self._reconnects = 0
        self._lost_at: list[str] = []
        self._stored_chars = 0
        self._started = trio.current_time()
        self._deadline = self._started + options.total_seconds
        self._timed_out = False
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")

    # --- the nodes ---------------------------------------------------------------------------------

    async def check_mcp_status(self, state: State) -> Update:
        """Connect, and judge the handshake."""
        started = trio.current_time()
        if self._options.depth == "full":
            self._before = await trio.to_thread.run_sync(footprint, self._server)
        try:
            self._target = await self.nursery.start(self._hold_connection)
        except ConnectError as error:
            self._add(unreachable_test(error, (trio.current_time() - started) * 1000))
            if isinstance(self._server, ServerConfig):
                refused = await probe_authorization(self._server, self._options.timeout_seconds)
                if refused is not None:
                    self._add(refused)
            return Update(
                current_task="check_mcp_status",
                mcp_status="unavailable",
                error=str(error),
                messages=[f"could not connect: {error}"],
            )
        target = self._connected_target()
        latency_ms = (trio.current_time() - started) * 1000
        if self._options.depth == "full":
            self._before = replace(self._before, resources=await listed_resources(target))
        await self._probe("connection", partial(probe_connection, latency_ms=latency_ms))
        return Update(
            current_task="check_mcp_status",
            mcp_status="available",
            messages=[f"connected to {target.session.name}, MCP {target.protocol_version}"],
        )

    async def discover_tools(self, state: State) -> Update:
        """List the tools."""
        await self._probe("discovery", self._discover)
        if self._ask_model is not None and self._options.depth == "full":
            await self._probe("proposals", partial(probe_proposals, ask_model=self._ask_model))
        names = [tool.name for tool in self._connected_target().tools]
        return Update(
            current_task="discover_tools",
            available_tools=names,
            messages=[f"discovered {len(names)} tools"],
        )

    async def _discover(self, target: Target) -> None:
        target.tools = await probe_discovery(target)
        if self._options.depth == "full":
            await probe_log_level(target)
        if (before := self._triage.baseline) is not None:
            for test in drift_tests(before, redacted_values(self._definitions(), self._triage.secrets)):
                self._add(test)

    def test_tool(self, name: str) -> Node:
        """Return the node that tests the tool `name`."""

        async def test(state: State) -> Update:
            tool = next(tool for tool in self._connected_target().tools if tool.name == name)
            reason = self._skip_reason(tool)
            if reason is None:
                await self._probe(f"tool {name}", partial(probe_tool, tool=tool))
            else:
                self._skip(f"tool {name}", reason, tool=name)
            return Update(current_task=f"test_{name}", messages=[f"tested {name}"])

        return test

    async def test_resources(self, state: State) -> Update:
        """List and read the resources."""
        await self._probe("resources", probe_resources)
        return Update(current_task="test_resources", messages=["tested resources"])

    async def test_prompts(self, state: State) -> Update:
        """List and get the prompts; then measure the load, if requested. Last of all, send the requests that
        test the server as a whole."""
        await self._probe("prompts", probe_prompts)
        await self._probe("mined arguments", probe_mined)
        if (plan := self._options.load) is not None:
            load = partial(probe_load, plan=plan, tests=self._tests, on_figures=self._load.append)
            await self._probe("load", load)
        await self._probe("plug-ins", probe_plugins)
        await self._probe("process", probe_process)
        await self._probe("server", probe_server)
        await self._probe("http", probe_http)
        return Update(current_task="test_prompts", messages=["tested prompts"])

    async def generate_report(self, state: State) -> Update:
        """Assemble the report, with the observations made on the wire."""
        target = self._connected_target()
        if self._options.depth == "full":
            await self._look_for_changes(target)
        judge_stay(target)
        judge_wire(target)
        reconnects = target.session.statistics().reconnects
        if reconnects:
            times = "once" if reconnects == 1 else f"{reconnects} times"
            at = "; ".join(self._lost_at) + ("; …" if len(self._lost_at) == _MOST_LOST else "")
            self._remarks.append(f"the connection was lost and replaced {times}, at: {at or 'the end'}")
        return Update(
            current_task="generate_report",
            result=self.report(state),
            messages=[f"{len(self._tests)} tests"],
        )

    # --- parts of the nodes ----------------------------------------------------------------------------

    def testing(self) -> Graph:
        """Return the graph of the remaining work, now that the tools are known."""
        if self._options.depth == "quick":
            return reporting_graph(self)
        names = [tool.name for tool in self._connected_target().tools]
        if len(names) > MOST_TOOLS:
            why = f"at most {MOST_TOOLS} tools of one server are called"
            self._skip(f"the other {len(names) - MOST_TOOLS} tools", why)
        return testing_graph(self, names[:MOST_TOOLS])

    def _skip_reason(self, tool: types.Tool) -> str | None:
        """Return the reason for not calling a tool, if any."""
        allowed = self._server.allowed_tools if isinstance(self._server, ServerConfig) else None
        if allowed is not None and tool.name not in allowed:
            return "the servers file does not allow it (playhead.allowed_tools)"
        return None

    def _definitions(self) -> Mapping[str, Mapping[str, Json]]:
        tools = self._target.tools if self._target is not None else ()
        return {
            tool.name: definition_of(tool.model_dump(mode="json", by_alias=True, exclude_none=True))
            for tool in tools
        }

    def _skip(self, subject: str, why: str, *, tool: str | None = None) -> None:
        self._add(TestResult(subject=subject, title="all", tool=tool, status="skipped", error=why))

    async def _look_for_changes(self, target: Target) -> None:
        after = await trio.to_thread.run_sync(footprint, self._server)
        if target.gone is None:
            after = replace(after, resources=await listed_resources(target))
        self._remarks += changes(self._before, after)

    def release(self) -> None:
        """Release the connection. Idempotent."""
        self._release.set()

    def interrupted_report(self) -> Report:
        """Return the report of an interrupted check."""
        update = Update(mcp_status="unknown")
        if self._target is not None:
            tools = [tool.name for tool in self._target.tools]
            update = Update(mcp_status="available", available_tools=tools)
        self._remarks += changes(self._before, footprint(self._server))
        self._remarks.append("the check was interrupted: these are the findings up to then")
        return replace(self.report(merge(first_state(), update)), interrupted=True)

    def report(self, state: State) -> Report:
        """Return the report on the findings so far."""
        session = self._target.session if self._target is not None else None
        info = session.server_info if session is not None else None
        report = Report(
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
            proven=() if self._target is None else tuple(sorted(self._target.succeeded)),
            allow_unproven=self._options.allow_unproven,
            definitions=self._definitions(),
            tests=attribute(settled(self._tests, self._target.succeeded if self._target is not None else ())),
            load=tuple(self._load),
            remarks=(*self._remarks, *(self._target.remarks if self._target is not None else ())),
            timed_out=self._timed_out,
        )
        return replace(report, remarks=(*report.remarks, *self._triage.remarks(report)))

    async def _hold_connection(self, *, task_status: trio.TaskStatus[Target]) -> None:
        opened = open_target(self._server, self._options, self._add, recorder=self._recorder)
        async with opened as target:
            task_status.started(target)
            await self._release.wait()

    def _connected_target(self) -> Target:
        assert self._target is not None, "only reached after check_mcp_status"
        return self._target

    def _add(self, test: TestResult) -> None:
        test = self._triage.apply(self._bounded(test))
        reconnects = self._target.session.statistics().reconnects if self._target is not None else 0
        if reconnects > self._reconnects and len(self._lost_at) < _MOST_LOST:
            self._lost_at.append(f"{test.subject}, {test.title}")
        self._reconnects = reconnects
        self._tests.append(test)
        if self._on_test is not None:
            self._on_test(test)

    def _bounded(self, test: TestResult) -> TestResult:
        """Bound the size of `test`, because servers choose the names of their tools, and there may be
        thousands of tests."""
        test = replace(test, subject=test.subject[:_TITLE_CHARS], title=test.title[:_TITLE_CHARS])
        samples = tuple(sample for sample in test.samples if self._is_wanted(test, sample))
        test = replace(test, samples=samples)
        if test.status == "success" and self._stored_chars > _STORED_CHARS:
            return replace(test, input=None, output=None)
        self._stored_chars += len(json.dumps([test.input, test.output], default=str))
        return test

    def _is_wanted(self, test: TestResult, sample: Sample) -> bool:
        """Return True if a sample goes into the report. A tool that draws answers each call with an image."""
        known = self._samples.setdefault(test.subject, set())
        text = sample.base64 or str(sample.size_bytes)
        if text in known or len(known) >= _MOST_SAMPLES or len(text) > self._sample_chars:
            return False
        known.add(text)
        self._sample_chars -= len(text)
        return True

    async def _probe(self, subject: str, probe: Callable[[Target], Awaitable[None]]) -> None:
        """Run `probe`. If the probe itself fails, record an undecided test and continue."""
        target = self._connected_target()
        if target.gone is not None:
            self._skip(subject, "the server is gone")
            return
        if trio.current_time() >= self._deadline:
            self._timed_out = True
            self._skip(subject, self._too_late())
            return
        with trio.move_on_at(self._deadline) as scope:
            try:
                await probe(target)
            except PlayheadError as error:
                self._add(_aborted_test(subject, str(error)))
            except Exception as error:  # noqa: BLE001 - a bug of one probe must not lose what the others find
                why = f"the checker itself failed: {type(error).__name__}: {error}; please report it"
                self._add(_aborted_test(subject, why))
        if scope.cancelled_caught:
            self._timed_out = True
            self._remarks.append(f"not everything was tested: {self._too_late()}")
            self._skip(subject, f"the rest was omitted: {self._too_late()}")

    def _too_late(self) -> str:
        return f"the check reached its limit of {self._options.total_seconds:g} s (--max-time)"


def _aborted_test(subject: str, why: str) -> TestResult:
    return TestResult(subject=subject, title="given up", status="error", error=why)
