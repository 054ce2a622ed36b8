"""The calls of one reply. Each is announced as it arrives, runs as soon as it is complete, and has one
result.

    add ─▶ in_progress ─ known? readable? within budget? ─ no ─▶ its result, at once
                 └ yes ─▶ allowed? ─▶ a slot ─▶ begin ─▶ the runner ─▶ its result
                            (a task in the step's nursery from here on)

`ToolCallRun` stores the outcome of a call before it emits the outcome, so that the history is complete
whatever an event callback does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, assert_never

import trio

from playhead.agent.approvals import Action, Allowed, ApprovalRequest, Approvals, Denied
from playhead.agent.conversation import Status, ToolCall, ToolSpec
from playhead.agent.events import (
    CallResponse,
    CallStatus,
    ImageComplete,
    ToolCallBegin,
    ToolCallError,
    ToolCallResponse,
    ToolComplete,
    ToolInProgress,
    ToolPending,
    ToolRef,
)
from playhead.agent.middleware import CallNext, Context
from playhead.agent.tool_runner import (
    CallOutcome,
    ToolRunner,
    approval_request,
    bad_arguments,
    failed,
    refused_outcome,
    unknown,
)
from playhead.concurrency import iter_leaves
from playhead.stream.source import Playable

SUGGESTED: Final = 10
"""Limits the suggestions of similar names for unknown tools in one reply. A search among 2000 tools blocks
the thread for a tenth of a second, and a confused model may make hundreds of such calls."""
CANCELLED: Final = "The call was cancelled before it had a result."
"""The result text of a cancelled call."""

Play = Callable[[Context, ToolRef, tuple[Playable, ...]], Awaitable[None]]
"""Plays the media of a result; see `AudioPlayback.play`."""


@dataclass(slots=True, eq=False)
class RunningCall:
    """A tool call and its state."""

    call: ToolCall
    """The call with an id that is unique in the reply."""
    original: ToolCall
    """The call as the model wrote it. Some models give two calls the same id, or give none."""
    status: CallStatus = "pending"
    outcome: CallOutcome | None = None
    clean_up_error: Exception | None = None
    """The exception that the runner raised while it was cancelled."""
    is_reported: bool = False
    """True once the event with the result was emitted."""

    @property
    def ref(self) -> ToolRef:
        call = self.call
        return ToolRef(id=call.id, name=call.name, arguments=call.arguments, status=self.status)


class ToolCallRun:
    """The calls of one reply. They run in `nursery`; `offered` holds the callable tools by name."""

    def __init__(
        self,
        context: Context,
        *,
        nursery: trio.Nursery,
        offered: Mapping[str, ToolSpec],
        runner: ToolRunner,
        call_next: CallNext,
        approvals: Approvals,
        play: Play,
    ) -> None:
        self._context = context
        self._nursery = nursery
        self._offered = offered
        self._runner = runner
        self._call_next = call_next
        self._approvals = approvals
        self._play = play
        self._meter = context.state.meter
        self._slots = trio.Semaphore(self._meter.max_parallel)
        self._calls: list[RunningCall] = []
        self._ids: set[str] = set()
        self._unknown_tools = 0

    def add(self, call: ToolCall) -> RunningCall:
        """Add a call of the reply, for `start`. It gets another id if its own is empty, or that of another
        call of the reply, because providers refuse a history in which two results answer one id."""
        running = RunningCall(call=replace(call, id=self._unique_id(call.id)), original=call)
        self._ids.add(running.call.id)
        self._calls.append(running)
        return running

    def _unique_id(self, model_id: str) -> str:
        if model_id and model_id not in self._ids:
            return model_id
        prefix = model_id or f"call_{self._context.round}"
        candidates = (f"{prefix}_{number}" for number in count(len(self._ids) + 1))
        return next(candidate for candidate in candidates if candidate not in self._ids)

    async def start(self, running: RunningCall) -> None:
        """Announce a call and start it. On return it runs, waits (for approval or a slot), or is done."""
        call = running.call
        await self._context.emit(ToolInProgress(round=self._context.round, tool=running.ref))
        request = self._refusal(call) or self._approval_request_of(call)
        if isinstance(request, CallOutcome):
            await self._settle(running, request)
        elif self._take_slot_at_once(request):
            await self._begin(running)
            self._nursery.start_soon(self._run, running, None)
            # This call must reach its runner before the next one starts, because calls may affect each other,
            # and trio runs tasks that become ready together in any order.
            await trio.lowlevel.checkpoint()
        else:
            self._nursery.start_soon(self._run, running, request)

    def missing(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return those of `calls` that were not added yet."""
        matches = self._match_by_id(calls)
        return [call for call, running in zip(calls, matches, strict=True) if running is None]

    def close(self, calls: Sequence[ToolCall]) -> tuple[RunningCall, ...]:
        """Return every call with its outcome: first `calls` in order, then the others that were added. A call
        without an outcome gets the outcome of a cancelled call. This method does not wait."""
        matches = self._match_by_id(calls)
        known = {running for running in matches if running is not None}
        others = [running for running in self._calls if running not in known]
        in_order = (running or self.add(call) for call, running in zip(calls, matches, strict=True))
        ordered = (*in_order, *others)
        for running in ordered:
            if running.outcome is None:
                running.outcome = refused_outcome(
                    running.call, "cancelled", CANCELLED, error=running.clean_up_error
                )
                running.status = "cancelled"
        return ordered

    async def emit_end(self, ordered: Sequence[RunningCall]) -> None:
        """Emit the results that were not emitted yet, and then `ToolComplete`."""
        for running in ordered:
            if not running.is_reported and running.outcome is not None:
                await self._emit(running, running.outcome)
        if ordered:
            responses = tuple(
                _response(running.outcome) for running in ordered if running.outcome is not None
            )
            await self._context.emit(ToolComplete(round=self._context.round, responses=responses))

    def _match_by_id(self, calls: Sequence[ToolCall]) -> list[RunningCall | None]:
        """Find the added call for each of `calls`, or None.

        A model that repeats a reply may reuse an id for another call. So identical calls are matched first,
        and then the rest by their ids alone.
        """
        by_id: defaultdict[str, list[RunningCall]] = defaultdict(list)
        for running in self._calls:
            by_id[running.original.id].append(running)
        matches: list[RunningCall | None] = [None] * len(calls)
        for exact in (True, False):
            for index, call in enumerate(calls):
                if matches[index] is not None:
                    continue
                unmatched = by_id[call.id]
                fitting = (running for running in unmatched if not exact or running.original == call)
                if (match := next(fitting, None)) is not None:
                    unmatched.remove(match)
                    matches[index] = match
        return matches

    # --- one call ------------------------------------------------------------------------------------

    def _refusal(self, call: ToolCall) -> CallOutcome | None:
        """Return the outcome of a call that can't be run (budget, unknown tool, bad arguments), or None."""
        exhausted = self._meter.hit if not self._offered else None
        if exhausted is not None:
            return over_budget(call, exhausted.reason)
        spec = self._offered.get(call.name)
        if spec is None:
            self._unknown_tools += 1
            return unknown(call, self._offered, near=self._unknown_tools <= SUGGESTED)
        if call.arguments is None:
            return bad_arguments(call, spec)
        hit = self._meter.count_call(call)
        return None if hit is None else over_budget(call, hit.reason)

    def _take_slot_at_once(self, request: ApprovalRequest) -> bool:
        """Take a free slot at once if no approval is needed, so that calls begin in order."""
        if self._action(request) != "allow":
            return False
        try:
            self._slots.acquire_nowait()
        except trio.WouldBlock:
            return False
        return True

    async def _run(self, running: RunningCall, request: ApprovalRequest | None) -> None:
        """Run a call. `request` asks for its approval; it is None if the call has a slot and has begun."""
        outcome: CallOutcome | None = None
        has_slot = request is None
        with trio.CancelScope(deadline=self._meter.deadline):
            try:
                if request is not None:
                    outcome = await self._ask_approval(running, request)
                    if outcome is None:
                        await self._slots.acquire()
                        has_slot = True
                        await self._begin(running)
                if outcome is None:
                    outcome = await self._call_tool(running)
            finally:
                if has_slot:
                    self._slots.release()
        if outcome is None:  # the deadline of the scope passed; a cancellation from outside would propagate
            outcome = over_budget(running.call, self._meter.note_time().reason, error=running.clean_up_error)
        await self._settle(running, outcome)

    async def _ask_approval(self, running: RunningCall, request: ApprovalRequest) -> CallOutcome | None:
        """Ask for approval. Return the outcome of a denied call, None for an allowed one."""

        async def pending() -> None:
            await self._context.emit(ToolPending(round=self._context.round, tool=running.ref))

        verdict = await self._approvals.check(request, on_pending=pending)
        match verdict:
            case Allowed():
                return None
            case Denied():
                return refused_outcome(
                    running.call, "denied", f"The call was {verdict.reason}.", error=verdict.error
                )
            case _:
                assert_never(verdict)

    def _approval_request_of(self, call: ToolCall) -> ApprovalRequest | CallOutcome:
        """Return the approval request for a call. If the runner can't describe the call, nobody can approve
        it, so this returns its outcome instead."""
        try:
            request = approval_request(self._runner, self._offered[call.name], call)
        except Exception as error:  # noqa: BLE001 - a user's runner, as in `_call_tool`: the other calls continue
            return failed(call, error, self._offered)
        return request or unknown(call, (name for name in self._offered if name != call.name))

    def _action(self, request: ApprovalRequest) -> Action:
        destructive = request.hints.destructive is True
        return self._approvals.policy.action(request.server, request.tool, destructive=destructive)

    async def _begin(self, running: RunningCall) -> None:
        running.status = "invoking"
        await self._context.emit(ToolCallBegin(round=self._context.round, tool=running.ref))

    async def _call_tool(self, running: RunningCall) -> CallOutcome:
        """Call the tool through the middleware. Its exceptions become outcomes."""
        call, turn = running.call, self._context.state
        try:
            outcome = await self._call_next(self._context, call)
        except Exception as error:  # a runner and its middleware are the user's code
            # The call gets a failed result, and the other calls continue. Only an exception of the event
            # callback, which progress reports call, ends the turn, as everywhere else.
            if _have_common_leaf(error, turn.callback_error):
                raise
            return failed(call, error, self._offered)
        except BaseExceptionGroup as group:
            # The runner's own nursery was cancelled, and a clean-up in it raised. The call counts as
            # cancelled, and the exception of the clean-up is stored; it doesn't end the turn.
            cancelled, rest = group.split(trio.Cancelled)
            if (
                cancelled is None
                or not isinstance(rest, Exception)
                or _have_common_leaf(rest, turn.callback_error)
            ):
                raise
            running.clean_up_error = rest
            raise cancelled from None
        # A middleware may have returned the result of another call, such as a cached one.
        if (outcome.result.call_id, outcome.result.name) != (call.id, call.name):
            return replace(outcome, result=replace(outcome.result, call_id=call.id, name=call.name))
        return outcome

    async def _settle(self, running: RunningCall, outcome: CallOutcome) -> None:
        """Store the outcome of a call, then emit it and play its media."""
        running.outcome = outcome
        running.status = _call_status(outcome.result.status)
        await self._emit(running, outcome)
        for picture in outcome.pictures:
            await self._context.emit(
                ImageComplete(
                    round=self._context.round,
                    tool=running.ref,
                    mime_type=picture.mime_type,
                    size_bytes=picture.size_bytes,
                )
            )
        await self._play(self._context, running.ref, outcome.media)

    async def _emit(self, running: RunningCall, outcome: CallOutcome) -> None:
        running.is_reported = True
        number, result = self._context.round, outcome.result
        if result.status in ("done", "error") and outcome.error is None:
            await self._context.emit(
                ToolCallResponse(round=number, tool=running.ref, result=_response(outcome))
            )
        else:
            await self._context.emit(
                ToolCallError(round=number, tool=running.ref, status=result.status, error=result.text)
            )


def over_budget(call: ToolCall, reason: str, *, error: Exception | None = None) -> CallOutcome:
    """Return the outcome of a call that a budget forbade, or that a deadline cut off."""
    return refused_outcome(call, "over_budget", f"The call was not completed: {reason}.", error=error)


def _have_common_leaf(error: BaseException, other: BaseException | None) -> bool:
    """Return True if both contain the same exception, even in different exception groups."""
    if other is None:
        return False
    leaf_ids = set(map(id, iter_leaves(other)))
    return any(id(leaf) in leaf_ids for leaf in iter_leaves(error))


def _response(outcome: CallOutcome) -> CallResponse:
    result = outcome.result
    return CallResponse(
        id=result.call_id,
        name=result.name,
        text=result.text,
        status=result.status,
        media=tuple(item.mime_type for item in result.media),
    )


def _call_status(status: Status) -> CallStatus:
    match status:
        case "done":
            return "done"
        case "cancelled":
            return "cancelled"
        case "error" | "denied" | "unknown" | "bad_arguments" | "timeout" | "over_budget":
            return "error"
        case _:
            assert_never(status)
