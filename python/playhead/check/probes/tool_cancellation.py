"""A call that is cancelled while it is under way.

That no answer follows can be judged of a tool that takes its time, since an answer that crosses the
cancellation is nobody's fault; of a quick one only that the server goes on.
"""

from __future__ import annotations

from typing import Final

import trio

from playhead.check.probes import tool_kinds as kinds
from playhead.check.probes.tool_calls import ToolCalls
from playhead.check.results import TestDraft

SLOW_SECONDS: Final = 0.3
"""Of a tool whose answers can be told from those that cross a cancellation."""
_LONGEST_SECONDS: Final = 8.0
"""A tool that takes longer isn't waited for."""


async def probe_cancellation(calls: ToolCalls) -> None:
    """Cancel one call. Calls nothing where no call before succeeded."""
    if not calls.succeeded:
        return
    bearable = [it for it in calls.succeeded if it.latency_ms <= _LONGEST_SECONDS * 1000]
    call = max(bearable or calls.succeeded, key=lambda it: it.latency_ms)
    seconds = call.latency_ms / 1000
    # One that was slow by accident answers before it is cancelled this time, or while nothing is counted yet.
    is_slow = SLOW_SECONDS <= seconds <= _LONGEST_SECONDS
    case = call.case
    draft = calls.draft("a call that is cancelled", case.arguments)
    reconnects = calls.target.session.statistics().reconnects
    with trio.move_on_after(seconds / 4) as scope:
        await calls.ask(case.arguments)
    if not scope.cancelled_caught:
        draft.skipped(kinds.CANCELLED, "the tool answered before the call could be cancelled")
    elif is_slow:
        await _judge_late(calls, draft, seconds)
    else:
        draft.skipped(
            kinds.CANCELLED,
            f"the tool answers in {call.latency_ms:.0f} ms: an answer may cross the cancellation",
        )
    if scope.cancelled_caught:
        await _judge_alive(calls, draft, reconnects)
    calls.found(draft.done())


async def _judge_late(calls: ToolCalls, draft: TestDraft, seconds: float) -> None:
    """Whether the result comes all the same. A late *error* is an end of the request, and no result."""
    session = calls.target.session
    await trio.sleep(seconds / 4)  # what was on its way when the cancellation went out
    before = session.wire_faults().late_results
    await trio.sleep(seconds)
    draft.require(
        kinds.CANCELLED,
        session.wire_faults().late_results == before,
        f"expected no answer to a call that was cancelled {seconds / 4:.2f} s after it was sent, came its"
        f" result, more than {seconds / 4:.2f} s after the cancellation; stop the work, and send nothing",
    )


async def _judge_alive(calls: ToolCalls, draft: TestDraft, reconnects: int) -> None:
    answer = await calls.target.request("tools/list")
    lost = calls.target.session.statistics().reconnects > reconnects
    draft.require(
        kinds.CANCEL_SURVIVES,
        (answer.failure is None or answer.too_often) and not lost,
        "expected the server to answer tools/list after a cancellation,"
        f" came: {answer.failure or 'the end of its connection'}",
    )
