"""The tool middleware: round after round, until the model is done, a result ends it, or a budget does.

Each model call is one `Round`: the reply streams, its calls run in the round's nursery as soon as they are
complete, and when all have their results the chain is entered again, one deeper. What bounds it is checked on
entering, so it holds whoever enters: where a budget is used up, the model is asked without tools and told
why, and what it answers is the turn's end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import trio

from playhead.agent.approvals import Approvals
from playhead.agent.budgets import Hit
from playhead.agent.calls import CallOutcome, Prompting
from playhead.agent.conversation import AssistantMessage, ModelRequest, ToolCall, ToolSpec
from playhead.agent.events import ReplyCreated, ToolProgress, ToolRef
from playhead.agent.jobs import Jobs
from playhead.agent.middleware import (
    Api,
    Around,
    CallNext,
    Context,
    EndedBy,
    ListNext,
    Next,
    TurnParams,
    TurnResult,
    compose,
)
from playhead.agent.model import ReplyEnd, Usage
from playhead.agent.rounds import Round
from playhead.agent.sounds import Sounds
from playhead.client.groups import bare
from playhead.errors import ModelError

LAST_ANSWER: Final = (
    "No tool can be called any more in this turn: {reason}. Answer the user now with what is known, and say"
    " what is missing."
)
"""Added to the system prompt of the last call, which is made without tools."""


class ToolLoop:
    """The tool middleware of one turn."""

    def __init__(self, api: Api, around: Around, *, approvals: Approvals, sounds: Sounds) -> None:
        self._api = api
        self._approvals = approvals
        self._sounds = sounds
        self._call: CallNext = compose(api, around.call, self._run_call)
        self._list: ListNext = compose(api, around.list, self._list_specs)

    def wrap(self, next: Next) -> Next:
        """The middleware around `next`, which is one model call."""

        async def run(context: Context, params: TurnParams) -> TurnResult:
            request = params.request
            if context.state.aborted:
                return _aborted_before()
            hit = context.state.meter.check(context.depth) if request.tools else None
            if hit is not None:
                request = _last_request(request, hit)
            round_, reply = await self._round(next, context, request)
            turn = context.state
            if reply is None or turn.aborted:
                return _aborted(round_, reply)
            if hit is not None:
                return _at_limit(reply, hit)
            if not request.tools or not reply.outcomes or reply.ended_by == "refused":
                return reply
            for outcome in reply.outcomes:
                if outcome.turn.decision == "stop":
                    return replace(reply, ended_by="tool_turn", reason=outcome.turn.reason)
            again = replace(
                request,
                messages=(*request.messages, *reply.messages),
                # Listed anew: what a call has just made available can be called next. Where the budget is
                # used up, the entry takes them away.
                tools=await self.list_tools(context),
            )
            deeper = replace(context, depth=context.depth + 1)
            return _sum(reply, await self._api.reenter(deeper, TurnParams(request=again)))

        return run

    async def list_tools(self, context: Context) -> tuple[ToolSpec, ...]:
        """What the model is offered now."""
        return await self._list(context, None)

    async def _round(
        self, next: Next, context: Context, request: ModelRequest
    ) -> tuple[Round, TurnResult | None]:
        """One reply with all its calls; no result where it was aborted before the reply was whole."""
        turn = context.state
        result: TurnResult | None = None
        round_: Round | None = None
        try:
            try:
                with turn.abortable(), bare():
                    async with trio.open_nursery() as calls:
                        jobs = Jobs(
                            context,
                            nursery=calls,
                            offered={spec.name: spec for spec in request.tools},
                            runner=self._api.tools,
                            call_next=self._call,
                            approvals=self._approvals,
                            sounds=self._sounds,
                        )
                        round_ = Round(context, jobs)
                        inner = replace(context, emit=round_.emit, on_piece=round_.on_piece)
                        result = await next(inner, TurnParams(request=self._prompted(request)))
                        turn.meter.count_tokens(result.usage)
                        await round_.take(result.message)
            finally:
                # Also when cancelled or failed, and without waiting: no call is left without its result.
                added = round_.close() if round_ is not None else ()
                turn.add(*added)
        except Exception:
            if round_ is not None and turn.callback_error is None:
                await round_.tell_calls()  # an observer has seen them begin
            raise
        assert round_ is not None, "a nursery that can't be opened raises"
        if turn.callback_error is not None:
            raise turn.callback_error  # a runner that took it for its own, from a progress report
        await round_.tell_end()
        if result is None:
            return round_, None
        return round_, replace(result, message=round_.message, messages=added, outcomes=round_.outcomes)

    def _prompted(self, request: ModelRequest) -> ModelRequest:
        """With the system prompts of the tools that are offered."""
        runner = self._api.tools
        if not request.tools or not isinstance(runner, Prompting):
            return request
        added = runner.system_prompt(request.tools)
        return replace(request, system=_joined(request.system, added)) if added else request

    async def _run_call(self, context: Context, call: ToolCall) -> CallOutcome:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            tool = ToolRef(id=call.id, name=call.name, arguments=call.arguments, status="invoking")
            await context.emit(
                ToolProgress(round=context.round, tool=tool, progress=progress, total=total, message=message)
            )

        return await self._api.tools.call(call, on_progress=on_progress)

    async def _list_specs(self, _context: Context, _: None) -> tuple[ToolSpec, ...]:
        return self._api.tools.specs()


# --- the model call ----------------------------------------------------------------------------------


def asking(api: Api) -> Next:
    """The innermost of the chain: one request to the model."""

    async def ask(context: Context, params: TurnParams) -> TurnResult:
        model = api.model
        await context.emit(ReplyCreated(round=context.round, provider=model.provider, model=model.name))
        end: ReplyEnd | None = None
        async with model.stream(params.request) as pieces:
            async for piece in pieces:
                await context.on_piece(piece)
                if isinstance(piece, ReplyEnd):
                    end = piece
        if end is None:
            raise ModelError(
                f"expected a ReplyEnd as the last piece of the reply of {model.name}, came none; its Model"
                " has to send one",
                provider=model.provider,
            )
        ended_by, reason = _how(end)
        return TurnResult(
            message=end.message,
            messages=(end.message,),
            usage=end.usage,
            rounds=1,
            ended_by=ended_by,
            reason=reason,
        )

    return ask


def _how(end: ReplyEnd) -> tuple[EndedBy, str]:
    said = f": {end.reason}" if end.reason else ""
    match end.stop:
        case "length":
            return "length", f"the reply reached the length that one may have{said}"
        case "refused":
            return "refused", f"the model refused to go on{said}"
        case "end" | "calls":
            return "answer", "the model was done"
        case "other":
            return "answer", f"the model ended its reply{said}"


# --- results -----------------------------------------------------------------------------------------


def _last_request(request: ModelRequest, hit: Hit) -> ModelRequest:
    told = LAST_ANSWER.format(reason=hit.reason)
    return replace(request, tools=(), system=_joined(request.system, told))


def _at_limit(reply: TurnResult, hit: Hit) -> TurnResult:
    if reply.ended_by != "answer":
        return reply
    return replace(reply, ended_by=hit.budget, reason=hit.reason)


def _aborted_before() -> TurnResult:
    return TurnResult(
        message=AssistantMessage(parts=()),
        messages=(),
        usage=Usage(),
        rounds=0,
        ended_by="aborted",
        reason="the turn was aborted",
    )


def _aborted(round_: Round, reply: TurnResult | None) -> TurnResult:
    if reply is not None:
        return replace(reply, ended_by="aborted", reason="the turn was aborted")
    return TurnResult(
        message=round_.message,
        messages=round_.close(),
        usage=Usage(),
        rounds=1,
        ended_by="aborted",
        reason="the turn was aborted",
        outcomes=round_.outcomes,
    )


def _sum(first: TurnResult, rest: TurnResult) -> TurnResult:
    return replace(
        rest,
        messages=(*first.messages, *rest.messages),
        usage=Usage(
            input_tokens=_added(first.usage.input_tokens, rest.usage.input_tokens),
            output_tokens=_added(first.usage.output_tokens, rest.usage.output_tokens),
        ),
        rounds=first.rounds + rest.rounds,
        outcomes=(*first.outcomes, *rest.outcomes),
    )


def _added(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
