"""The tool loop: call the model, run its tool calls, repeat until an answer, a final result or a budget.

Each model call is one `ModelStep`. While the reply streams, each tool call runs in the step's nursery as soon
as its arguments are complete. When all calls have results, the middleware chain is entered again at the loop,
one level deeper. Budgets are checked at each entry, including those that a middleware makes. When a budget is
used up, the model is called once more, without tools and with the reason; this answer ends the turn.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Final, assert_never

import trio

from playhead.agent.approvals import Approvals
from playhead.agent.audio_playback import AudioPlayback
from playhead.agent.budgets import Hit
from playhead.agent.conversation import (
    AssistantMessage,
    CallReady,
    CallStarted,
    Message,
    ModelRequest,
    ReplyEnd,
    ReplyPiece,
    Text,
    TextPiece,
    ThinkingPiece,
    TokenUsage,
    ToolCall,
    ToolMessage,
    ToolSpec,
)
from playhead.agent.events import (
    Event,
    ReplyComplete,
    ReplyCreated,
    TextComplete,
    TextDelta,
    ThinkingDelta,
    ToolProgress,
    ToolRef,
    Usage,
)
from playhead.agent.middleware import (
    CallNext,
    Context,
    EndedBy,
    Hooks,
    ListNext,
    MiddlewareContext,
    Next,
    TurnParams,
    TurnResult,
    compose,
)
from playhead.agent.tool_calls import RunningCall, ToolCallRun
from playhead.agent.tool_runner import CallOutcome, Prompting
from playhead.concurrency import unwrap_exception_group
from playhead.errors import ModelError
from playhead.stream.source import Playable


class ModelStep:
    """One model call, with the tool calls of its reply."""

    def __init__(self, context: Context, calls: ToolCallRun) -> None:
        self._context = context
        self._calls = calls
        self._pieces: list[str | RunningCall] = []
        """The deltas of text and the calls, in the order of arrival."""
        self._text: list[str] = []
        """The text of the latest reply. A middleware that retries causes several replies."""
        self._message: AssistantMessage | None = None
        self._is_open = False
        """True from `ReplyCreated` until `ReplyComplete` is emitted."""
        self._ordered: tuple[RunningCall, ...] = ()
        """The calls in the order of the message; empty until the step is closed."""

    async def emit(self, event: Event) -> None:
        """Emit `event`. A second `ReplyCreated`, from a middleware that retries, discards the text so far."""
        if isinstance(event, ReplyCreated):
            self._text.clear()
            # The calls of the abandoned reply have run, so they stay.
            self._pieces = [piece for piece in self._pieces if isinstance(piece, RunningCall)]
            self._is_open = True
        await self._context.emit(event)

    async def on_piece(self, piece: ReplyPiece) -> None:
        """Emit a piece, and start the call that it completes."""
        number = self._context.round
        match piece:
            case TextPiece():
                self._text.append(piece.text)
                self._pieces.append(piece.text)
                await self.emit(TextDelta(round=number, text=piece.text))
            case ThinkingPiece():
                await self.emit(ThinkingDelta(round=number, text=piece.text))
            case CallStarted():
                pass  # a call has no event before its arguments are complete
            case CallReady():
                running = self._calls.add(piece.call)
                self._pieces.append(running)
                await self._calls.start(running)
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

    async def reply_received(self, message: AssistantMessage) -> None:
        """Store the complete reply, and start its calls that did not arrive as pieces."""
        self._message = message
        for call in self._calls.missing(message.calls):
            await self._calls.start(self._calls.add(call))

    def close(self) -> tuple[Message, ...]:
        """Return the step's messages for the history: the reply, and one result per call, in call order.

        A tool call without a result counts as cancelled. This method does not wait. A second call of it
        returns the same messages.
        """
        message = self._partial_reply() if self._message is None else self._message
        calls = message.calls
        self._ordered = self._calls.close(calls)
        if [running.call.id for running in self._ordered] != [call.id for call in calls]:
            message = self._with_ids_of_runs(message)
        self._message = message
        if not message.parts and not message.raw:
            return ()
        if not self._ordered:
            return (message,)
        return message, ToolMessage(results=tuple(outcome.result for outcome in self.outcomes))

    def _with_ids_of_runs(self, message: AssistantMessage) -> AssistantMessage:
        """Give the calls of `message` the ids that they ran under, and append the calls that it lacks.

        Those calls belong to a reply that a middleware abandoned. They have run, so the model must see them.
        """
        running_calls = iter(self._ordered)  # begins with the calls of the message, in its order
        parts = [
            replace(part, id=next(running_calls).call.id) if isinstance(part, ToolCall) else part
            for part in message.parts
        ]
        missing = [running.call for running in running_calls]
        # `raw` has the provider's own blocks with the old ids. Their calls would have no results, and the
        # provider refuses such a history.
        return replace(message, parts=(*parts, *missing), raw=())

    @property
    def message(self) -> AssistantMessage:
        """The reply of a closed step; the partial reply if it was cut short."""
        assert self._message is not None, "the step is not closed yet"
        return self._message

    @property
    def outcomes(self) -> tuple[CallOutcome, ...]:
        """The outcomes of a closed step's calls, in the order of the message."""
        return tuple(running.outcome for running in self._ordered if running.outcome is not None)

    async def emit_end(self) -> None:
        """Emit the end events of a closed step, of its reply and its calls, unless they were emitted
        before."""
        if self._is_open:
            await self._end_reply("aborted")
        await self.emit_calls()

    async def emit_calls(self) -> None:
        """Emit the end events of the calls only. A failed step needs this, because its reply never ended and
        gets no `ReplyComplete`."""
        await self._calls.emit_end(self._ordered)

    def _partial_reply(self) -> AssistantMessage:
        """Return the reply so far, without thinking, which providers accept only whole and signed."""
        parts: list[Text | ToolCall] = []
        for _, group in groupby(self._pieces, key=lambda piece: isinstance(piece, str)):
            pieces = list(group)
            if text := "".join(piece for piece in pieces if isinstance(piece, str)).rstrip():
                parts.append(Text(text=text))
            parts += [piece.call for piece in pieces if isinstance(piece, RunningCall)]
        return AssistantMessage(parts=tuple(parts))


LAST_ANSWER: Final = (
    "No tool can be called any more in this turn: {reason}. Answer the user now with what is known, and say"
    " what is missing."
)
"""Added to the system prompt of the last model call, which has no tools."""


class ToolLoop:
    """The tool middleware of one turn."""

    def __init__(
        self, api: MiddlewareContext, hooks: Hooks, *, approvals: Approvals, audio: AudioPlayback
    ) -> None:
        self._api = api
        self._approvals = approvals
        self._audio = audio
        self._call: CallNext = compose(api, hooks.call, self._call_runner)
        self._list: ListNext = compose(api, hooks.list, self._list_from_runner)

    def wrap(self, next: Next) -> Next:
        """Return a function that makes one model call with `next`, and loops while the reply calls tools."""

        async def run(context: Context, params: TurnParams) -> TurnResult:
            request = params.request
            if context.state.aborted:
                return _aborted_result()
            # A request without tools is for the last answer, which no budget prevents.
            hit = context.state.meter.check(context.depth) if request.tools else None
            if hit is not None:
                request = _last_request(request, hit)
            step, reply = await self._run_step(next, context, request)
            if reply is None or context.state.aborted:
                return _aborted_result(step, reply)
            if hit is not None:
                return _at_limit(reply, hit)
            if not request.tools or not reply.outcomes or reply.ended_by == "refused":
                return reply
            for outcome in reply.outcomes:
                if outcome.turn.decision == "stop":
                    return replace(reply, ended_by="tool_turn", reason=outcome.turn.reason)
            next_request = replace(
                request,
                messages=(*request.messages, *reply.messages),
                # A call may have made new tools available. The next entry removes all tools if a budget is
                # used up.
                tools=await self.list_tools(context),
            )
            deeper = replace(context, depth=context.depth + 1)
            return _combined_result(reply, await self._api.reenter(deeper, TurnParams(request=next_request)))

        return run

    async def list_tools(self, context: Context) -> tuple[ToolSpec, ...]:
        """List the tools that the model can call now."""
        return await self._list(context, None)

    async def _run_step(
        self, next: Next, context: Context, request: ModelRequest
    ) -> tuple[ModelStep, TurnResult | None]:
        """Run one reply with all its calls. The result is None if `abort` ended the turn first."""
        turn = context.state
        result: TurnResult | None = None
        step: ModelStep | None = None
        try:
            try:
                with turn.abortable(), unwrap_exception_group():
                    async with trio.open_nursery() as nursery:
                        calls = ToolCallRun(
                            context,
                            nursery=nursery,
                            offered={spec.name: spec for spec in request.tools},
                            runner=self._api.tools,
                            call_next=self._call,
                            approvals=self._approvals,
                            play=self._audio.play,
                        )
                        step = ModelStep(context, calls)
                        inner = replace(context, emit=step.emit, on_piece=step.on_piece)
                        result = await next(inner, TurnParams(request=self._with_tool_prompts(request)))
                        turn.meter.count_tokens(result.usage)
                        await step.reply_received(result.message)
            finally:
                # Even after a cancellation or a failure, every call in the history must have a result.
                # Nothing here waits.
                added = step.close() if step is not None else ()
                turn.add(*added)
        except Exception:  # the turn ends, but a callback that got the begin of a call must get its end
            if step is not None and turn.callback_error is None:
                await step.emit_calls()
            raise
        assert step is not None, "a nursery that can't be opened raises"
        if turn.callback_error is not None:
            # The callback raised this in a progress report, and the tool runner suppressed it.
            raise turn.callback_error
        await step.emit_end()
        if result is None:
            return step, None
        return step, replace(result, message=step.message, messages=added, outcomes=step.outcomes)

    def _with_tool_prompts(self, request: ModelRequest) -> ModelRequest:
        """Add the system prompts of the offered tools."""
        runner = self._api.tools
        if not request.tools or not isinstance(runner, Prompting):
            return request
        added = runner.system_prompt(request.tools)
        return replace(request, system=_joined_paragraphs(request.system, added)) if added else request

    async def _call_runner(self, context: Context, call: ToolCall) -> CallOutcome:
        tool = ToolRef(id=call.id, name=call.name, arguments=call.arguments, status="invoking")

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            await context.emit(
                ToolProgress(round=context.round, tool=tool, progress=progress, total=total, message=message)
            )

        async def on_media(media: Playable) -> None:
            await self._audio.play(context, tool, (media,))

        return await self._api.tools.call(call, on_progress=on_progress, on_media=on_media)

    async def _list_from_runner(self, _context: Context, _: None) -> tuple[ToolSpec, ...]:
        return self._api.tools.specs()


# --- the model call ----------------------------------------------------------------------------------


def model_call(api: MiddlewareContext) -> Next:
    """Make the innermost link of the chain: one request to the model."""

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
                f"expected a ReplyEnd as the last piece of the reply of {model.name}, got none; its Model"
                " must send one",
                provider=model.provider,
            )
        ended_by, reason = _end_reason(end)
        return TurnResult(
            message=end.message,
            messages=(end.message,),
            usage=end.usage,
            rounds=1,
            ended_by=ended_by,
            reason=reason,
        )

    return ask


def _end_reason(end: ReplyEnd) -> tuple[EndedBy, str]:
    detail = f": {end.reason}" if end.reason else ""
    match end.stop:
        case "length":
            return "length", f"the reply reached its maximum length{detail}"
        case "refused":
            return "refused", f"the model refused to continue{detail}"
        case "end" | "calls":
            return "answer", "the model was done"
        case "other":
            return "answer", f"the model ended its reply{detail}"


# --- results -----------------------------------------------------------------------------------------


def _last_request(request: ModelRequest, hit: Hit) -> ModelRequest:
    prompt = LAST_ANSWER.format(reason=hit.reason)
    return replace(request, tools=(), system=_joined_paragraphs(request.system, prompt))


def _at_limit(reply: TurnResult, hit: Hit) -> TurnResult:
    if reply.ended_by != "answer":
        return reply
    return replace(reply, ended_by=hit.budget, reason=hit.reason)


def _aborted_result(step: ModelStep | None = None, reply: TurnResult | None = None) -> TurnResult:
    if reply is not None:
        return replace(reply, ended_by="aborted", reason="the turn was aborted")
    return TurnResult(
        message=step.message if step else AssistantMessage(parts=()),
        messages=step.close() if step else (),
        usage=TokenUsage(),
        rounds=1 if step else 0,
        ended_by="aborted",
        reason="the turn was aborted",
        outcomes=step.outcomes if step else (),
    )


def _combined_result(first: TurnResult, rest: TurnResult) -> TurnResult:
    return replace(
        rest,
        messages=(*first.messages, *rest.messages),
        usage=TokenUsage(
            input_tokens=_add_counts(first.usage.input_tokens, rest.usage.input_tokens),
            output_tokens=_add_counts(first.usage.output_tokens, rest.usage.output_tokens),
        ),
        rounds=first.rounds + rest.rounds,
        outcomes=(*first.outcomes, *rest.outcomes),
    )


def _add_counts(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


def _joined_paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
