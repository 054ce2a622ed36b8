"""One tool: called with right, odd and wrong arguments, several times at once, and cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import mcp_types as types
import trio

from playhead.check.arguments import arguments_for
from playhead.check.arguments_case import Case
from playhead.check.probes import tool_kinds
from playhead.check.probes.media import probe_media
from playhead.check.probes.tool_calls import METHOD, ToolCalls
from playhead.check.probes.tool_cancellation import probe_cancellation
from playhead.check.probes.tool_concurrency import probe_concurrency
from playhead.check.results import TestResult
from playhead.check.target import Target
from playhead.client.tasks import needs_task

KINDS: Final = tool_kinds.KINDS


async def probe_tool(target: Target, tool: types.Tool, found: Callable[[TestResult], None]) -> None:
    """Test `tool`, and call `found` with each test as it ends.

    Calls that an expectations file vouches for come first. A tool with an explicit `destructiveHint: true` is
    called only where the options allow it; one that can run as a task only is not called.
    """
    if (why := _why_not(target, tool)) is not None:
        found(_skipped(tool, "all calls", why))
        return
    options = target.options
    calls = ToolCalls(target, tool, found)
    expected = options.expectations.of_tool(tool.name) if options.expectations is not None else ()
    for index, call in enumerate(expected):
        await calls.expected(call, f"expected call {index + 1}")
    made = await trio.to_thread.run_sync(
        partial(arguments_for, tool.input_schema, seed=options.seed, examples=options.examples)
    )
    for remark in made.remarks:
        found(_skipped(tool, "generated arguments", remark))
    await _all(calls, "valid arguments", [case for case in made.valid if case.kind == "valid"])
    await calls.without_arguments()
    await probe_media(target, [it.result for it in calls.succeeded], found, tool=tool.name)
    await _all(calls, "arguments that break the schema", made.invalid)
    if calls.enough() is None:
        await probe_concurrency(calls)
    if calls.enough() is None:
        await probe_cancellation(calls)
    # Last: what a schema doesn't forbid may ask a tool for hours of work.
    await _all(calls, "odd arguments", [case for case in made.valid if case.kind != "valid"])


async def _all(calls: ToolCalls, what: str, cases: Iterable[Case]) -> None:
    left = list(cases)
    while left:
        if (why := calls.enough()) is not None:
            calls.found(_skipped(calls.tool, what, f"{len(left)} more were not sent: {why}"))
            return
        await calls.generated(left.pop(0))


def _why_not(target: Target, tool: types.Tool) -> str | None:
    destructive = tool.annotations is not None and tool.annotations.destructive_hint is True
    if destructive and not target.options.allow_destructive:
        return "the tool says that it is destructive (destructiveHint); --allow-destructive calls it"
    if needs_task(tool):
        return "the tool can be called as a task only, which is not tested"
    return None


def _skipped(tool: types.Tool, title: str, why: str) -> TestResult:
    return TestResult(
        subject=f"tool {tool.name}",
        title=title,
        tool=tool.name,
        method=METHOD,
        status="skipped",
        error=why,
    )
