"""The tool loop: call the model, run its tool calls, repeat until an answer, a final result or a budget.

Each model call is one `ModelStep`: the reply streams, its calls run in the step's nursery as soon as they are
complete, and when all have results the chain is entered again, one level deeper. Budgets are checked on
entry, whoever enters. When one is used up, the model is called once more without tools, with the reason; its
answer ends the turn.

More than 500 lines with `AudioPlayback`, whose events are part of a turn's and which nothing else uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, Protocol, assert_never

import trio

from playhead.agent.approvals import Approvals
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
    UserMessage,
)
from playhead.agent.events import (
    AudioEnd,
    AudioResumed,
    AudioStart,
    AudioWaiting,
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
    Emit,
    EndedBy,
    Hooks,
    ListNext,
    MiddlewareContext,
    Next,
    ReadNext,
    TurnParams,
    TurnResult,
    compose,
)
from playhead.agent.tool_calls import RunningCall, ToolCallRun
from playhead.agent.tool_runner import CallOutcome, Prompting
from playhead.concurrency import unwrap_exception_group
from playhead.errors import ModelError, PlayheadError
from playhead.playback.state import (
    ItemEnd,
    ItemError,
    ItemResumed,
    ItemStart,
    ItemWaiting,
    PlayerEvent,
    PlayerState,
    StateChange,
    Status,
)
from playhead.stream.source import Playable


class ModelStep:
    """One model call, with the tool calls of its reply."""

    def __init__(self, context: Context, calls: ToolCallRun) -> None:
        self._context = context
        self._calls = calls
        self._pieces: list[str | RunningCall] = []
        """Runs of text, and the calls between them."""
        self._text: list[str] = []
        """The text of the latest reply; there are several if a middleware retries."""
        self._message: AssistantMessage | None = None
        self._is_open = False
        """A reply was created, and its end not emitted yet."""
        self._ordered: tuple[RunningCall, ...] = ()

    async def emit(self, event: Event) -> None:
        """Emit `event`; a reply that is created again (by a middleware that retries) starts over."""
        if isinstance(event, ReplyCreated):
            self._text.clear()
            # The calls of the abandoned reply did run.
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
                pass
            case CallReady():
                job = self._calls.add(piece.call)
                self._pieces.append(job)
                await self._calls.start(job)
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
        """Take the reply for the history; start its calls that no piece announced."""
        self._message = message
        for call in self._calls.missing(message.calls):
            await self._calls.start(self._calls.add(call))

    def close(self) -> tuple[Message, ...]:
        """Return the step's messages for the history: the reply, and one result for each of its calls in call
        order; a call without one is cancelled. Does not wait."""
        message = self._cut_short() if self._message is None else self._message
        calls = message.calls
        self._ordered = self._calls.close(calls)
        # Including calls that ran although the final reply lacks them: the model must know about them.
        if [job.call.id for job in self._ordered] != [call.id for call in calls]:
            jobs = iter(self._ordered)
            parts = [
                replace(part, id=next(jobs).call.id) if isinstance(part, ToolCall) else part
                for part in message.parts
            ]
            # The provider's own blocks would hold calls without results here, which it refuses.
            message = replace(message, parts=(*parts, *(job.call for job in jobs)), raw=())
        self._message = message
        if not message.parts and not message.raw:
            return ()
        if not self._ordered:
            return (message,)
        return message, ToolMessage(results=tuple(outcome.result for outcome in self.outcomes))

    @property
    def message(self) -> AssistantMessage:
        """The reply of a closed step; the partial reply if it was cut short."""
        assert self._message is not None, "the step is not closed yet"
        return self._message

    @property
    def outcomes(self) -> tuple[CallOutcome, ...]:
        """The outcomes of a closed step's calls, in the order of the message."""
        return tuple(job.outcome for job in self._ordered if job.outcome is not None)

    async def emit_end(self) -> None:
        """Emit what a closed step has not emitted yet."""
        if self._is_open:
            await self._end_reply("aborted")
        await self.emit_calls()

    async def emit_calls(self) -> None:
        """Emit only the ends of the calls: for a failed step, whose reply has no end."""
        await self._calls.emit_end(self._ordered)

    def _cut_short(self) -> AssistantMessage:
        """The partial reply without thinking: its provider accepts that only whole and signed."""
        parts: list[Text | ToolCall] = []
        run = ""
        for piece in (*self._pieces, None):
            if isinstance(piece, str):
                run += piece
                continue
            if run.strip():
                parts.append(Text(text=run.rstrip()))
            run = ""
            if piece is not None:
                parts.append(piece.call)
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
        self._call: CallNext = compose(api, hooks.call, self._run_call)
        self._list: ListNext = compose(api, hooks.list, self._list_specs)

    def wrap(self, next: Next) -> Next:
        """Wrap `next`, which is one model call."""

        async def run(context: Context, params: TurnParams) -> TurnResult:
            request = params.request
            if context.state.aborted:
                return _aborted()
            hit = context.state.meter.check(context.depth) if request.tools else None
            if hit is not None:
                request = _last_request(request, hit)
            step, reply = await self._step(next, context, request)
            turn = context.state
            if reply is None or turn.aborted:
                return _aborted(step, reply)
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
                # Listed again: a call may have made new tools available. If a budget is exhausted, the entry
                # removes them.
                tools=await self.list_tools(context),
            )
            deeper = replace(context, depth=context.depth + 1)
            return _sum(reply, await self._api.reenter(deeper, TurnParams(request=again)))

        return run

    async def list_tools(self, context: Context) -> tuple[ToolSpec, ...]:
        """List the tools that the model is offered now."""
        return await self._list(context, None)

    async def _step(
        self, next: Next, context: Context, request: ModelRequest
    ) -> tuple[ModelStep, TurnResult | None]:
        """Run one reply with all its calls; no result if it was aborted before the reply was complete."""
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
                        result = await next(inner, TurnParams(request=self._prompted(request)))
                        turn.meter.count_tokens(result.usage)
                        await step.take(result.message)
            finally:
                # Also after cancellation or failure, and without waiting: no call is left without a result.
                added = step.close() if step is not None else ()
                turn.add(*added)
        except Exception:  # whatever ends the turn: the observer has seen calls begin, and sees their end
            if step is not None and turn.callback_error is None:
                await step.emit_calls()
            raise
        assert step is not None, "a nursery that can't be opened raises"
        if turn.callback_error is not None:
            raise turn.callback_error  # swallowed by a runner, from a progress report
        await step.emit_end()
        if result is None:
            return step, None
        return step, replace(result, message=step.message, messages=added, outcomes=step.outcomes)

    def _prompted(self, request: ModelRequest) -> ModelRequest:
        """Add the system prompts of the offered tools."""
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
        ended_by, reason = _ended_by(end)
        return TurnResult(
            message=end.message,
            messages=(end.message,),
            usage=end.usage,
            rounds=1,
            ended_by=ended_by,
            reason=reason,
        )

    return ask


def _ended_by(end: ReplyEnd) -> tuple[EndedBy, str]:
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
    return replace(request, tools=(), system=_joined(request.system, prompt))


def _at_limit(reply: TurnResult, hit: Hit) -> TurnResult:
    if reply.ended_by != "answer":
        return reply
    return replace(reply, ended_by=hit.budget, reason=hit.reason)


def _aborted(step: ModelStep | None = None, reply: TurnResult | None = None) -> TurnResult:
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


def _sum(first: TurnResult, rest: TurnResult) -> TurnResult:
    return replace(
        rest,
        messages=(*first.messages, *rest.messages),
        usage=TokenUsage(
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


# --- the audio of a turn ---------------------------------------------------------------------------------


class MediaPlayer(Protocol):
    """The part of `playback.Player` that the loop uses."""

    async def play(self, media: Iterable[Playable]) -> None: ...
    async def enqueue(self, media: Iterable[Playable]) -> None: ...
    def events(self) -> trio.MemoryReceiveChannel[PlayerEvent]: ...
    def snapshot(self) -> PlayerState: ...


_SOUNDING: Final = frozenset({Status.BUFFERING, Status.PLAYING, Status.PAUSED})


class AudioPlayback:
    """One turn's audio: the first result with media replaces the current item, later ones are queued."""

    def __init__(self, player: MediaPlayer | None, read: ReadNext) -> None:
        self._player = player
        self._read = read
        self._lock = trio.Lock()
        self._begun = False
        self._due: Counter[str] = Counter()
        self._round = 1

    @asynccontextmanager
    async def watched(self, emit: Emit) -> AsyncIterator[None]:
        """Report audio of this turn that waits or ends while the body runs. What keeps playing afterwards is
        reported by the player (`Player.events`)."""
        if self._player is None:
            yield
            return
        with self._player.events() as events:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, events, emit)
                yield
                nursery.cancel_scope.cancel()

    def heard(self) -> tuple[UserMessage, ...]:
        """Return the note for the history of a turn that is interrupted now: the model would otherwise take
        its music for heard to the end. Empty if no audio of this turn was played and none plays.

        It is a message of its own, since the results in the history may have been sent already, and names no
        title: a server's words would stand in the user's message.
        """
        if self._player is None:
            return ()
        now = self._player.snapshot()
        if not self._begun and now.status not in _SOUNDING:
            return ()
        note = f"[The turn was interrupted; music: {now.heard_seconds:.1f} s heard]"
        return (UserMessage(parts=(Text(text=note),)),)

    async def play(self, context: Context, tool: ToolRef, media: tuple[Playable, ...]) -> None:
        """Hand `media` to the player. If it refuses them, that is reported as their end."""
        if self._player is None or not media:
            return
        # One at a time: nothing may be enqueued before the `play` that empties the queue.
        async with self._lock:
            await self._play(self._player, context, tool, media)

    async def _play(
        self, player: MediaPlayer, context: Context, tool: ToolRef, media: tuple[Playable, ...]
    ) -> None:
        media = tuple([await self._read(context, item) for item in media])
        self._round = context.round
        for item in media:
            await context.emit(
                AudioStart(round=context.round, tool=tool, title=item.title, mime_type=item.mime_type)
            )
        self._due.update(item.title for item in media)
        begun, self._begun = self._begun, True
        try:
            await (player.enqueue(media) if begun else player.play(media))
        except PlayheadError as error:
            for item in media:
                await self._end(item.title, str(error), context.emit)

    async def _watch(self, events: trio.MemoryReceiveChannel[PlayerEvent], emit: Emit) -> None:
        async for event in events:
            match event:
                case ItemEnd():
                    await self._end(event.title, None, emit, finding=event.finding)
                case ItemError():
                    await self._end(event.title, str(event.error), emit)
                case ItemWaiting() if self._due[event.title]:
                    why = None if event.last_error is None else str(event.last_error)
                    await emit(
                        AudioWaiting(
                            round=self._round,
                            title=event.title,
                            seconds=event.seconds,
                            last_error=why,
                            patience_seconds=event.patience_seconds,
                        )
                    )
                case ItemResumed() if self._due[event.title]:
                    await emit(AudioResumed(round=self._round, title=event.title, seconds=event.seconds))
                case ItemWaiting() | ItemResumed() | ItemStart() | StateChange():
                    pass
                case _:
                    assert_never(event)

    async def _end(self, title: str, error: str | None, emit: Emit, *, finding: str | None = None) -> None:
        if not self._due[title]:
            return  # from an earlier turn
        self._due[title] -= 1
        ended: Event = AudioEnd(round=self._round, title=title, error=error, finding=finding)
        await emit(ended)
