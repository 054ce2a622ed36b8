"""The calls of one reply: announced as they arrive, run as soon as they are complete, one result for each.

    add ─▶ in_progress ─ known? readable? within budget? ─ no ─▶ its result, at once
                 └ yes ─▶ allowed? ─▶ a slot ─▶ begin ─▶ the runner ─▶ its result
                            (a task in the step's nursery from here on)

A call's outcome is stored before it is emitted: whatever happens while emitting, the history is complete.
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
"""The number of calls of unknown tools in one reply that get suggestions. Finding similar names among 2000
tools blocks the thread for a tenth of a second, and a confused model may make hundreds of such calls."""
CANCELLED: Final = "The call was cancelled before it had a result."


Play = Callable[[Context, ToolRef, tuple[Playable, ...]], Awaitable[None]]
"""Plays the media of a result; see `AudioPlayback.play`."""


@dataclass(slots=True, eq=False)
class RunningCall:
    """A call and its state."""

    call: ToolCall
    """The call with an id that is unique in the reply."""
    original: ToolCall
    """The call as the model wrote it. Some models give two calls the same id, or give none."""
    status: CallStatus = "pending"
    outcome: CallOutcome | None = None
    clean_up_error: Exception | None = None
    """An exception that its runner raised in addition to its cancellation."""
    is_reported: bool = False
    """True once the result was emitted."""

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
        self._unknown = 0

    def add(self, call: ToolCall) -> RunningCall:
        """Add a call of the reply, to be started. If its id is empty or taken by another call of this reply,
        it gets a new one: providers refuse a history in which two results answer one id."""
        running = RunningCall(call=replace(call, id=self._unique_id(call.id)), original=call)
        self._ids.add(running.call.id)
        self._calls.append(running)
        return running

    def _unique_id(self, model_id: str) -> str:
        if model_id and model_id not in self._ids:
            return model_id
        numbers = count(len(self._ids) + 1)
        names = (f"{model_id or f'call_{self._context.round}'}_{number}" for number in numbers)
        return next(name for name in names if name not in self._ids)

    async def start(self, running: RunningCall) -> None:
        """Announce a call and start it: afterwards it has begun, waits for a slot, or has its result."""
        call = running.call
        await self._context.emit(ToolInProgress(round=self._context.round, tool=running.ref))
        request = self._refusal(call) or self._request(call)
        if isinstance(request, CallOutcome):
            await self._settle(running, request)
        elif self._take_slot_at_once(request):
            await self._begin(running)
            self._nursery.start_soon(self._run, running, None)
            # Let the call reach its runner before the next one starts: the calls of one runner may affect
            # each other, and trio starts tasks that become ready together in any order.
            await trio.lowlevel.checkpoint()
        else:
            self._nursery.start_soon(self._run, running, request)

    def missing(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the calls of `calls` that were not added."""
        matches = self._match(calls)
        return [call for call, running in zip(calls, matches, strict=True) if running is None]

    def close(self, calls: Sequence[ToolCall]) -> tuple[RunningCall, ...]:
        """Return every call with its outcome: `calls` in order, then any others that were added. A call
        without an outcome is cancelled. Does not wait."""
        matches = self._match(calls)
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

    def _match(self, calls: Sequence[ToolCall]) -> list[RunningCall | None]:
        """Match each of `calls` with an added call that has its id: with an identical one if possible, else
        with the first that is left. A model may reuse an id for another call when it repeats a reply."""
        by_id: defaultdict[str, list[RunningCall]] = defaultdict(list)
        for running in self._calls:
            by_id[running.original.id].append(running)
        matches: list[RunningCall | None] = [None] * len(calls)
        for exact in (True, False):
            for index, call in enumerate(calls):
                if matches[index] is None:
                    left = by_id[call.id]
                    fitting = (running for running in left if not exact or running.original == call)
                    if (match := next(fitting, None)) is not None:
                        left.remove(match)
                        matches[index] = match
        return matches

    # --- one call ------------------------------------------------------------------------------------

    def _refusal(self, call: ToolCall) -> CallOutcome | None:
        """Return the outcome of a call that can't be tried; None if it can."""
        exhausted = self._meter.hit if not self._offered else None
        if exhausted is not None:
            return over_budget(call, exhausted.reason)
        spec = self._offered.get(call.name)
        if spec is None:
            self._unknown += 1
            return unknown(call, self._offered, near=self._unknown <= SUGGESTED)
        if call.arguments is None:
            return bad_arguments(call, spec)
        hit = self._meter.count_call(call)
        return None if hit is None else over_budget(call, hit.reason)

    def _take_slot_at_once(self, request: ApprovalRequest) -> bool:
        """Take a slot if one is free and no approval is needed, so that calls begin in stream order."""
        if self._action(request) != "allow":
            return False
        try:
            self._slots.acquire_nowait()
        except trio.WouldBlock:
            return False
        return True

    async def _run(self, running: RunningCall, request: ApprovalRequest | None) -> None:
        """Run a call. `request` asks for its approval; None if the call already has a slot and has begun."""
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
                    outcome = await self._outcome_of(running)
            finally:
                if has_slot:
                    self._slots.release()
        if outcome is None:  # the scope's deadline; a cancellation from outside propagates
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

    def _request(self, call: ToolCall) -> ApprovalRequest | CallOutcome:
        """Make the approval request for a call. If the runner can't describe the call, it can't be approved:
        return its outcome."""
        try:
            request = approval_request(self._runner, self._offered[call.name], call)
        except Exception as error:  # noqa: BLE001 - a user's runner, as in `_outcome_of`: the other calls continue
            return failed(call, error, self._offered)
        return request or unknown(call, (name for name in self._offered if name != call.name))

    def _action(self, request: ApprovalRequest) -> Action:
        destructive = request.hints.destructive is True
        return self._approvals.policy.action(request.server, request.tool, destructive=destructive)

    async def _begin(self, running: RunningCall) -> None:
        running.status = "invoking"
        await self._context.emit(ToolCallBegin(round=self._context.round, tool=running.ref))

    async def _outcome_of(self, running: RunningCall) -> CallOutcome:
        call, turn = running.call, self._context.state
        try:
            outcome = await self._call_next(self._context, call)
        except Exception as error:  # a runner and its middleware are the user's code
            # Whatever they raise, the call gets a result, with the exception in its outcome, and the other
            # calls continue. Only an exception of the event callback, which a progress report calls, ends the
            # turn as it does everywhere else.
            if _shares(error, turn.callback_error):
                raise
            return failed(call, error, self._offered)
        except BaseExceptionGroup as group:
            # The runner's own nursery was cancelled, and a clean-up in it raised. The call is cancelled; like
            # any other failure of a call, the clean-up doesn't end the turn.
            cancelled, rest = group.split(trio.Cancelled)
            if cancelled is None or not isinstance(rest, Exception) or _shares(rest, turn.callback_error):
                raise
            running.clean_up_error = rest
            raise cancelled from None
        if (outcome.result.call_id, outcome.result.name) != (call.id, call.name):
            return replace(outcome, result=replace(outcome.result, call_id=call.id, name=call.name))
        return outcome

    async def _settle(self, running: RunningCall, outcome: CallOutcome) -> None:
        """Store the outcome of a call, then emit it and play its media."""
        running.outcome = outcome
        running.status = _status(outcome.result.status)
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
    """Return the outcome of a call that a budget forbids, or that was cancelled at its end."""
    return refused_outcome(call, "over_budget", f"The call was not completed: {reason}.", error=error)


def _shares(error: BaseException, other: BaseException | None) -> bool:
    """Tell if both hold the same exception. Nurseries may have put it into other groups on its way."""
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


def _status(status: Status) -> CallStatus:
    match status:
        case "done":
            return "done"
        case "cancelled":
            return "cancelled"
        case "error" | "denied" | "unknown" | "bad_arguments" | "timeout" | "over_budget":
            return "error"
        case _:
            assert_never(status)
