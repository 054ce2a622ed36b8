"""The calls of one reply: told as they come, run as soon as they are complete, one result for each.

    add ─▶ in_progress ─ known? readable? within budget? ─ no ─▶ its result, at once
                 └ yes ─▶ allowed? ─▶ a slot ─▶ begin ─▶ the runner ─▶ its result
                            (a task in the round's nursery from here on)

A call's outcome is kept before it is told, so that whatever happens while telling, the history is whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, assert_never

import trio

from playhead.agent.approvals import Action, Allowed, ApprovalRequest, Approvals, Denied
from playhead.agent.calls import CallOutcome, Describing, ToolRunner, bad_arguments, failed, told, unknown
from playhead.agent.conversation import Status, ToolCall, ToolSpec
from playhead.agent.events import (
    CallStatus,
    ImageComplete,
    ToolCallBegin,
    ToolCallError,
    ToolCallResponse,
    ToolComplete,
    ToolInProgress,
    ToolPending,
    ToolRef,
    ToolResponse,
)
from playhead.agent.middleware import CallNext, Context
from playhead.agent.sounds import Sounds
from playhead.client.groups import leaves

HINTED: Final = 10
"""Calls of unknown tools in one reply that are told of names that come near. Looking for them takes a tenth
of a second among 2000 tools, while nothing else runs, and a model that is far off may call them by the
hundred."""
CANCELLED: Final = "The call was cancelled before it had a result."


@dataclass(slots=True, eq=False)
class Job:
    """A call, and what became of it."""

    call: ToolCall
    """Under an id of its own."""
    asked: ToolCall
    """As the model gave it: some give two calls one id, or none."""
    status: CallStatus = "pending"
    outcome: CallOutcome | None = None
    clean_up_error: Exception | None = None
    """What its runner raised beside its cancellation."""
    is_told: bool = False

    @property
    def ref(self) -> ToolRef:
        call = self.call
        return ToolRef(id=call.id, name=call.name, arguments=call.arguments, status=self.status)


class Jobs:
    """The calls of one reply. `nursery` is where they run, `offered` the tools that may be called by name."""

    def __init__(
        self,
        context: Context,
        *,
        nursery: trio.Nursery,
        offered: Mapping[str, ToolSpec],
        runner: ToolRunner,
        call_next: CallNext,
        approvals: Approvals,
        sounds: Sounds,
    ) -> None:
        self._context = context
        self._nursery = nursery
        self._offered = offered
        self._runner = runner
        self._call_next = call_next
        self._approvals = approvals
        self._sounds = sounds
        self._meter = context.state.meter
        self._slots = trio.Semaphore(self._meter.max_parallel)
        self._jobs: list[Job] = []
        self._ids: set[str] = set()
        self._unknown = 0

    def add(self, call: ToolCall) -> Job:
        """A call of the reply, to be started. Where its id is empty, or that of another call of this reply,
        it gets one of its own: providers refuse a history in which two results answer one id."""
        job = Job(call=replace(call, id=self._own_id(call.id)), asked=call)
        self._ids.add(job.call.id)
        self._jobs.append(job)
        return job

    def _own_id(self, given: str) -> str:
        if given and given not in self._ids:
            return given
        numbers = count(len(self._ids) + 1)
        names = (f"{given or f'call_{self._context.round}'}_{number}" for number in numbers)
        return next(name for name in names if name not in self._ids)

    async def start(self, job: Job) -> None:
        """Tell of a call and start it: now it has begun, waits for its turn, or has its result."""
        call = job.call
        await self._context.emit(ToolInProgress(round=self._context.round, tool=job.ref))
        asked = self._refusal(call) or self._request(call)
        if isinstance(asked, CallOutcome):
            await self._settle(job, asked)
        elif self._may_run_at_once(asked):
            await self._begin(job)
            self._nursery.start_soon(self._run, job, None)
        else:
            self._nursery.start_soon(self._run, job, asked)

    def missing(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Those of `calls` that were not added."""
        found = self._found(calls)
        return [call for call, job in zip(calls, found, strict=True) if job is None]

    def close(self, calls: Sequence[ToolCall]) -> tuple[Job, ...]:
        """Every call with its outcome: `calls` in their order, then any other that was added. One that has
        none is cancelled. Waits for nothing."""
        found = self._found(calls)
        known = {job for job in found if job is not None}
        others = [job for job in self._jobs if job not in known]
        asked = (job or self.add(call) for call, job in zip(calls, found, strict=True))
        ordered = (*asked, *others)
        for job in ordered:
            if job.outcome is None:
                job.outcome = told(job.call, "cancelled", CANCELLED, error=job.clean_up_error)
                job.status = "cancelled"
        return ordered

    async def tell_end(self, ordered: Sequence[Job]) -> None:
        """Tell what has not been told yet, and that all calls have their results."""
        for job in ordered:
            if not job.is_told and job.outcome is not None:
                await self._tell(job, job.outcome)
        if ordered:
            responses = tuple(_response(job.outcome) for job in ordered if job.outcome is not None)
            await self._context.emit(ToolComplete(round=self._context.round, responses=responses))

    def _found(self, calls: Sequence[ToolCall]) -> list[Job | None]:
        """The job of each of `calls`: of those with its id the one that was asked for just so, since a model
        that is asked again may give another call the same id; else the first that is left."""
        by_id: defaultdict[str, list[Job]] = defaultdict(list)
        for job in self._jobs:
            by_id[job.asked.id].append(job)
        found: list[Job | None] = [None] * len(calls)
        for fits_just_so in (True, False):
            for index, call in enumerate(calls):
                if found[index] is None:
                    left = by_id[call.id]
                    fitting = (job for job in left if not fits_just_so or job.asked == call)
                    if (match := next(fitting, None)) is not None:
                        left.remove(match)
                        found[index] = match
        return found

    # --- one call ------------------------------------------------------------------------------------

    def _refusal(self, call: ToolCall) -> CallOutcome | None:
        """Why the call isn't even tried."""
        spent = self._meter.hit if not self._offered else None
        if spent is not None:
            return over_budget(call, spent.reason)
        spec = self._offered.get(call.name)
        if spec is None:
            self._unknown += 1
            return unknown(call, self._offered, near=self._unknown <= HINTED)
        if call.arguments is None:
            return bad_arguments(call, spec)
        hit = self._meter.count_call(call)
        return None if hit is None else over_budget(call, hit.reason)

    def _may_run_at_once(self, asked: ApprovalRequest) -> bool:
        """Whether nobody is to be asked and a slot is free; takes it. So calls begin in stream order."""
        if self._action(asked) != "allow":
            return False
        try:
            self._slots.acquire_nowait()
        except trio.WouldBlock:
            return False
        return True

    async def _run(self, job: Job, asked: ApprovalRequest | None) -> None:
        """Run a call; `asked` is None where it has its slot and has begun."""
        outcome: CallOutcome | None = None
        has_slot = asked is None
        with trio.CancelScope(deadline=self._meter.deadline):
            try:
                if asked is not None:
                    outcome = await self._asked(job, asked)
                    if outcome is None:
                        await self._slots.acquire()
                        has_slot = True
                        await self._begin(job)
                if outcome is None:
                    outcome = await self._called(job)
            finally:
                if has_slot:
                    self._slots.release()
        if outcome is None:  # the scope's deadline: a cancellation from outside goes on
            outcome = over_budget(job.call, self._meter.note_time().reason, error=job.clean_up_error)
        await self._settle(job, outcome)

    async def _asked(self, job: Job, request: ApprovalRequest) -> CallOutcome | None:
        """What the call comes to where it may not run."""

        async def pending() -> None:
            await self._context.emit(ToolPending(round=self._context.round, tool=job.ref))

        verdict = await self._approvals.check(request, on_pending=pending)
        match verdict:
            case Allowed():
                return None
            case Denied():
                return told(job.call, "denied", f"The call was {verdict.reason}.", error=verdict.error)
            case _:
                assert_never(verdict)

    def _request(self, call: ToolCall) -> ApprovalRequest | CallOutcome:
        """What somebody may be asked; what the call comes to where the runner can't say: what can't be named
        can't be approved."""
        if not isinstance(self._runner, Describing):
            return ApprovalRequest(
                server="",
                tool=call.name,
                description=self._offered[call.name].description,
                arguments=call.arguments or {},
            )
        try:
            asked = self._runner.approval_request(call)
        except Exception as error:  # noqa: BLE001 - a user's runner, as in `_called`: the other calls go on
            return failed(call, error, self._offered)
        return asked or unknown(call, (name for name in self._offered if name != call.name))

    def _action(self, asked: ApprovalRequest) -> Action:
        destructive = asked.hints.destructive is True
        return self._approvals.policy.action(asked.server, asked.tool, destructive=destructive)

    async def _begin(self, job: Job) -> None:
        job.status = "invoking"
        await self._context.emit(ToolCallBegin(round=self._context.round, tool=job.ref))

    async def _called(self, job: Job) -> CallOutcome:
        call, turn = job.call, self._context.state
        try:
            outcome = await self._call_next(self._context, call)
        except Exception as error:
            # A runner and its middlewares are the user's code. Whatever they raise, the call has a result and
            # the other calls go on; the exception is in the outcome. One of the event callback's came through
            # a progress report, and ends the turn as everywhere else.
            if _shares(error, turn.callback_error):
                raise
            return failed(call, error, self._offered)
        except BaseExceptionGroup as group:
            # A nursery of the runner's, cancelled, in which a clean-up raised. The call is cancelled, and its
            # clean-up ends the turn no more than any other failure of a call.
            cancelled, rest = group.split(trio.Cancelled)
            if cancelled is None or not isinstance(rest, Exception) or _shares(rest, turn.callback_error):
                raise
            job.clean_up_error = rest
            raise cancelled from None
        if (outcome.result.call_id, outcome.result.name) != (call.id, call.name):
            return replace(outcome, result=replace(outcome.result, call_id=call.id, name=call.name))
        return outcome

    async def _settle(self, job: Job, outcome: CallOutcome) -> None:
        """Keep what the call came to, then tell it and play it."""
        job.outcome = outcome
        job.status = _status(outcome.result.status)
        await self._tell(job, outcome)
        for picture in outcome.pictures:
            await self._context.emit(
                ImageComplete(
                    round=self._context.round,
                    tool=job.ref,
                    mime_type=picture.mime_type,
                    size_bytes=picture.size_bytes,
                )
            )
        await self._sounds.play(self._context, job.ref, outcome.media)

    async def _tell(self, job: Job, outcome: CallOutcome) -> None:
        job.is_told = True
        number, result = self._context.round, outcome.result
        if result.status in ("done", "error") and outcome.error is None:
            await self._context.emit(ToolCallResponse(round=number, tool=job.ref, result=_response(outcome)))
        else:
            await self._context.emit(
                ToolCallError(round=number, tool=job.ref, status=result.status, error=result.text)
            )


def over_budget(call: ToolCall, reason: str, *, error: Exception | None = None) -> CallOutcome:
    """The outcome of a call that a budget does not allow, or that was cancelled at its end."""
    return told(call, "over_budget", f"The call was not completed: {reason}.", error=error)


def _shares(error: BaseException, other: BaseException | None) -> bool:
    """Whether one exception is in both; nurseries on the way make other groups of them."""
    if other is None:
        return False
    found = set(map(id, leaves(other)))
    return any(id(leaf) in found for leaf in leaves(error))


def _response(outcome: CallOutcome) -> ToolResponse:
    result = outcome.result
    return ToolResponse(
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
