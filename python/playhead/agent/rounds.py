"""One reply and its calls: told as they come, run as soon as they are complete, one result for each.

    on_piece ─ CallReady ─▶ in_progress ─ known? readable? within budget? ─ no ─▶ its result, at once
                                 └ yes ─▶ allowed? ─▶ a slot ─▶ begin ─▶ the runner ─▶ its result
                                            (a task in the round's nursery from here on)

A call's outcome is kept before it is told, so that whatever happens while telling, the history is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

import trio

from playhead.agent.approvals import Action, Allowed, ApprovalRequest, Approvals, Denied
from playhead.agent.calls import CallOutcome, Describing, ToolRunner, bad_arguments, failed, told, unknown
from playhead.agent.conversation import (
    AssistantMessage,
    Message,
    Status,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
)
from playhead.agent.events import (
    CallStatus,
    Event,
    ImageComplete,
    ReplyComplete,
    ReplyCreated,
    TextComplete,
    TextDelta,
    ThinkingDelta,
    ToolCallBegin,
    ToolCallError,
    ToolCallResponse,
    ToolComplete,
    ToolInProgress,
    ToolPending,
    ToolRef,
    ToolResponse,
    Usage,
)
from playhead.agent.middleware import CallNext, Context
from playhead.agent.model import CallReady, CallStarted, ReplyEnd, ReplyPiece
from playhead.agent.model import TextDelta as TextPiece
from playhead.agent.model import ThinkingDelta as ThinkingPiece
from playhead.agent.sounds import Sounds
from playhead.client.groups import leaves

CANCELLED = "The call was cancelled before it had a result."


@dataclass(slots=True)
class _Job:
    """A call, and what became of it."""

    call: ToolCall
    status: CallStatus = "pending"
    outcome: CallOutcome | None = None
    is_told: bool = False

    @property
    def ref(self) -> ToolRef:
        call = self.call
        return ToolRef(id=call.id, name=call.name, arguments=call.arguments, status=self.status)


class Round:
    """One call of the model, with the calls that it asks for. `nursery` is where they run."""

    def __init__(
        self,
        context: Context,
        *,
        nursery: trio.Nursery,
        offered: Mapping[str, ToolSpec],
        runner: ToolRunner,
        call_next: CallNext,
        approvals: Approvals | None,
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
        self._jobs: list[_Job] = []
        self._said: list[str | _Job] = []
        """Runs of text, and the calls between them."""
        self._text: list[str] = []
        self._message: AssistantMessage | None = None
        self._is_open = False
        """The reply was created, and its end not told."""
        self._is_closed = False

    # --- the reply -----------------------------------------------------------------------------------

    async def emit(self, event: Event) -> None:
        """Tell `event`; a reply that is created (again, by a middleware that retries) begins anew."""
        if isinstance(event, ReplyCreated):
            self._text.clear()
            self._is_open = True
        await self._context.emit(event)

    async def on_piece(self, piece: ReplyPiece) -> None:
        """Tell of a piece, and start the call that it completes."""
        number = self._context.round
        match piece:
            case TextPiece():
                self._text.append(piece.text)
                self._said.append(piece.text)
                await self.emit(TextDelta(round=number, text=piece.text))
            case ThinkingPiece():
                await self.emit(ThinkingDelta(round=number, text=piece.text))
            case CallStarted():
                pass
            case CallReady():
                await self._add(piece.call)
            case ReplyEnd():
                usage = piece.usage
                await self._end_reply(piece.stop)
                await self.emit(
                    Usage(round=number, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
                )
            case _:
                assert_never(piece)
        await self._context.on_piece(piece)

    async def _end_reply(self, stop: str) -> None:
        self._is_open = False
        if text := "".join(self._text):
            await self.emit(TextComplete(round=self._context.round, text=text))
        await self.emit(ReplyComplete(round=self._context.round, stop=stop))

    async def take(self, message: AssistantMessage) -> None:
        """The reply as it goes into the history; its calls that no piece told of start now."""
        self._message = message
        pending = [job.call.id for job in self._jobs]
        for call in message.calls:
            if call.id in pending:
                pending.remove(call.id)
            else:
                await self._add(call)

    # --- its calls -----------------------------------------------------------------------------------

    async def _add(self, call: ToolCall) -> None:
        job = _Job(call)
        self._jobs.append(job)
        self._said.append(job)
        await self.emit(ToolInProgress(round=self._context.round, tool=job.ref))
        refused = self._refusal(call)
        if refused is not None:
            await self._settle(job, refused)
            return
        if self._may_run_at_once(call):
            await self._begin(job)
            self._nursery.start_soon(self._run, job, True)
        else:
            self._nursery.start_soon(self._run, job, False)

    def _refusal(self, call: ToolCall) -> CallOutcome | None:
        """Why the call isn't even tried."""
        spent = self._meter.hit if not self._offered else None
        if spent is not None:
            return over_budget(call, spent.reason)
        spec = self._offered.get(call.name)
        if spec is None:
            return unknown(call, self._offered)
        if call.arguments is None:
            return bad_arguments(call, spec)
        hit = self._meter.count_call(call)
        return None if hit is None else over_budget(call, hit.reason)

    def _may_run_at_once(self, call: ToolCall) -> bool:
        """Whether nobody is to be asked and a slot is free; takes it. So calls begin in stream order."""
        if self._approvals is not None:
            asked = self._request(call)
            if asked is None or self._action(self._approvals, asked) != "allow":
                return False
        try:
            self._slots.acquire_nowait()
        except trio.WouldBlock:
            return False
        return True

    async def _run(self, job: _Job, has_slot: bool) -> None:  # positional: what `start_soon` can pass
        outcome: CallOutcome | None = None
        with trio.CancelScope(deadline=self._meter.deadline):
            try:
                if not has_slot:
                    outcome = await self._asked(job)
                    if outcome is None:
                        await self._slots.acquire()
                        has_slot = True
                        await self._begin(job)
                if outcome is None:
                    outcome = await self._called(job.call)
            finally:
                if has_slot:
                    self._slots.release()
        if outcome is None:  # the scope's deadline: a cancellation from outside goes on
            outcome = over_budget(job.call, self._meter.note_time().reason)
        await self._settle(job, outcome)

    async def _asked(self, job: _Job) -> CallOutcome | None:
        """What the call comes to where it may not run."""
        if self._approvals is None:
            return None

        async def pending() -> None:
            await self.emit(ToolPending(round=self._context.round, tool=job.ref))

        request = self._request(job.call)
        if request is None:
            return unknown(job.call, (name for name in self._offered if name != job.call.name))
        verdict = await self._approvals.check(request, on_pending=pending)
        match verdict:
            case Allowed():
                return None
            case Denied():
                return told(job.call, "denied", f"The call was {verdict.reason}.", error=verdict.error)
            case _:
                assert_never(verdict)

    def _request(self, call: ToolCall) -> ApprovalRequest | None:
        """None where the runner no longer knows the tool: what can't be named can't be approved."""
        if isinstance(self._runner, Describing):
            return self._runner.approval_request(call)
        return ApprovalRequest(
            server="",
            tool=call.name,
            description=self._offered[call.name].description,
            arguments=call.arguments or {},
        )

    @staticmethod
    def _action(approvals: Approvals, asked: ApprovalRequest) -> Action:
        return approvals.policy.action(asked.server, asked.tool, destructive=asked.hints.destructive is True)

    async def _begin(self, job: _Job) -> None:
        job.status = "invoking"
        await self.emit(ToolCallBegin(round=self._context.round, tool=job.ref))

    async def _called(self, call: ToolCall) -> CallOutcome:
        try:
            outcome = await self._call_next(self._context, call)
        except Exception as error:
            # A runner and its middlewares are the user's code. Whatever they raise, the call has a result and
            # the other calls go on; the exception is in the outcome. One of the event callback's came through
            # a progress report, and ends the turn as everywhere else.
            if any(leaf is self._context.state.callback_error for leaf in leaves(error)):
                raise
            return failed(call, error, self._offered)
        if (outcome.result.call_id, outcome.result.name) != (call.id, call.name):
            return replace(outcome, result=replace(outcome.result, call_id=call.id, name=call.name))
        return outcome

    async def _settle(self, job: _Job, outcome: CallOutcome) -> None:
        """Keep what the call came to, then tell it and play it."""
        job.outcome = outcome
        job.status = _status(outcome.result.status)
        await self._tell(job, outcome)
        for picture in outcome.pictures:
            await self.emit(
                ImageComplete(
                    round=self._context.round,
                    tool=job.ref,
                    mime_type=picture.mime_type,
                    size_bytes=picture.size_bytes,
                )
            )
        await self._sounds.play(self._context, job.ref, outcome.media)

    async def _tell(self, job: _Job, outcome: CallOutcome) -> None:
        job.is_told = True
        number, result = self._context.round, outcome.result
        if result.status in ("done", "error") and outcome.error is None:
            await self.emit(ToolCallResponse(round=number, tool=job.ref, result=_response(outcome)))
        else:
            await self.emit(
                ToolCallError(round=number, tool=job.ref, status=result.status, error=result.text)
            )

    # --- its end -------------------------------------------------------------------------------------

    def close(self) -> tuple[Message, ...]:
        """What the round adds to the history: the reply, and one result for each of its calls, in their
        order; a call that has none is cancelled. Waits for nothing."""
        for job in self._jobs:
            if job.outcome is None:
                job.outcome = told(job.call, "cancelled", CANCELLED)
                job.status = "cancelled"
        message = self._message = self.message
        self._is_closed = True
        if not message.parts and not message.raw:
            return ()
        if not self._jobs:
            return (message,)
        return message, ToolMessage(results=tuple(outcome.result for outcome in self.outcomes))

    @property
    def message(self) -> AssistantMessage:
        """The reply: what came of it, where it was cut short, with every call that was started."""
        if self._message is None:
            return self._cut_short()
        if self._is_closed:
            return self._message
        known = list(self._message.calls)
        extra = []
        for job in self._jobs:
            match = next((call for call in known if call.id == job.call.id), None)
            if match is None:
                extra.append(job.call)
            else:
                known.remove(match)
        return replace(self._message, parts=(*self._message.parts, *extra)) if extra else self._message

    def _cut_short(self) -> AssistantMessage:
        """Without what the model said to itself: its provider takes thinking back only whole and signed."""
        parts: list[Text | ToolCall] = []
        run = ""
        for said in (*self._said, None):
            if isinstance(said, str):
                run += said
                continue
            if run.strip():
                parts.append(Text(text=run.rstrip()))
            run = ""
            if said is not None:
                parts.append(said.call)
        return AssistantMessage(parts=tuple(parts))

    @property
    def outcomes(self) -> tuple[CallOutcome, ...]:
        """What the calls came to, in the order in which they stand in the message."""
        left = list(self._jobs)
        found = []
        for call in self.message.calls:
            job = next(job for job in left if job.call.id == call.id)
            left.remove(job)
            if job.outcome is not None:
                found.append(job.outcome)
        return tuple(found)

    async def tell_end(self) -> None:
        """Tell what a cut-short round has not told yet, and that all its calls have their results."""
        if self._is_open:
            await self._end_reply("aborted")
        for job in self._jobs:
            if not job.is_told and job.outcome is not None:
                await self._tell(job, job.outcome)
        if self._jobs:
            responses = tuple(_response(outcome) for outcome in self.outcomes)
            await self.emit(ToolComplete(round=self._context.round, responses=responses))


def over_budget(call: ToolCall, reason: str) -> CallOutcome:
    """The outcome of a call that a budget does not allow, or that was cancelled at its end."""
    return told(call, "over_budget", f"The call was not completed: {reason}.")


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
