"""The agent: `run_turn` runs one turn with `loop.ToolLoop`, and `Agent` stores the conversation between
turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from inspect import isawaitable

import trio

from playhead.agent.approvals import Approvals
from playhead.agent.audio_playback import AudioPlayback, MediaPlayer
from playhead.agent.budgets import Budgets
from playhead.agent.conversation import (
    Attachment,
    Message,
    Model,
    ModelRequest,
    ReplyPiece,
    Text,
    UserMessage,
)
from playhead.agent.events import Event, Failed
from playhead.agent.loop import ToolLoop, model_call
from playhead.agent.middleware import (
    Context,
    Hooks,
    Middleware,
    MiddlewareContext,
    Mode,
    TurnHandle,
    TurnParams,
    TurnResult,
    compose,
)
from playhead.agent.prompt_mode import PromptModel
from playhead.agent.tool_runner import HubRunner, JoinedRunner, ToolRunner
from playhead.client.hub import Hub
from playhead.concurrency import require_trio, unwrap_exception_group
from playhead.errors import BusyError, PlayheadError, UsageError
from playhead.stream.source import Playable

OnEvent = Callable[[Event], Awaitable[None] | None]
Tools = Hub | ToolRunner | Sequence[Hub | ToolRunner] | None


async def run_turn(
    model: Model,
    tools: Tools,
    messages: Sequence[Message],
    *,
    system: str = "",
    mode: Mode = "function",
    budgets: Budgets | None = None,
    approvals: Approvals | None = None,
    middlewares: Sequence[Middleware] | Hooks = (),
    on_event: OnEvent | None = None,
    player: MediaPlayer | None = None,
    turn: TurnHandle | None = None,
    number: int = 1,
    max_tokens: int | None = None,
    temperature: float | None = None,
) -> TurnResult:
    """Run one turn: the model answers `messages` and calls tools until it is done.

    Args:
        model: With `mode="prompt"`, for models without function calling, the system prompt describes the
            tools, and the model calls them by tags in its text.
        tools: A hub, another runner, several of these in a sequence, or None. A hub stands for all tools that
            it has discovered, and sends their images to the model; for anything else make a `HubRunner`. If
            two offer a tool with the same name, the model gets the first one.
        messages: The history, the user's newest message last. It is not changed: `TurnResult.messages` holds
            the messages that the turn adds.
        system: The system prompt. It gets the configured prompts of the tools that the model can call.
        budgets: Default `Budgets()`.
        approvals: Decides about each call. With the default, `Approvals()`, calls run unless their tool is
            marked as destructive (`destructiveHint: true`), because there is nobody to ask.
        middlewares: They wrap each model call; use `Hooks` for other places.
        on_event: Gets each event in order. If it returns an awaitable, the turn awaits that, so a slow one
            delays the turn.
        player: Receives a result's audio at once. Without a player, `TurnResult.outcomes` holds the media. If
            the turn is interrupted (by `abort` or cancellation) while audio plays, or after some was played,
            the turn's last message tells the model how much was heard: "music: 12.4 s heard".
        turn: A handle to abort this turn from another task.
        number: The turn's number in its conversation, for middleware.
        max_tokens: The limit of one reply; None leaves it to the provider.
        temperature: None leaves it to the provider.

    A call never fails a turn: it gets one result that says what happened. These errors end the turn:
    * `UsageError`: no message, or a `turn` that was used before (yours);
    * `ModelError`, `TransportError`, or any other exception of the model: the request failed. The loop does
      not repeat it; a middleware may;
    * any exception of `on_event` or a middleware, unchanged; several at once in a group.
    Each of them, and cancellation, cancels the calls in flight on the wire and leaves no task.
    `turn.messages` then holds all messages so far, every call with its result. Calls that `on_event` saw
    begin are reported as cancelled before the `error` event, unless `on_event` itself raised or the turn was
    cancelled.
    """
    require_trio("Agent")
    turn = TurnHandle() if turn is None else turn
    if not messages:
        raise UsageError("messages: expected at least the user's message, got none")
    turn.begin(Budgets() if budgets is None else budgets)
    approvals = Approvals() if approvals is None else approvals
    runner = _runner_of(tools)
    hooks = middlewares if isinstance(middlewares, Hooks) else Hooks(model=middlewares)
    api = MiddlewareContext(_model_for_mode(model, mode), runner)
    audio = AudioPlayback(player, compose(api, hooks.read, _return_unchanged))
    loop = ToolLoop(api, hooks, approvals=approvals, audio=audio)
    api.enter_at(loop.wrap(compose(api, hooks.model, model_call(api))))
    chain = compose(api, hooks.turn, api.reenter)
    emit = _Emitter(on_event, turn)
    is_over = False
    context = Context(depth=0, turn=number, mode=mode, emit=emit, on_piece=_ignore_piece, state=turn)
    try:
        with unwrap_exception_group():
            async with audio.watched(emit):
                request = ModelRequest(
                    messages=tuple(messages),
                    system=system,
                    tools=await loop.list_tools(context),
                    max_tokens=max_tokens,
                    temperature=temperature,
                )
                result = await chain(context, TurnParams(request=request))
        is_over = True
    except Exception as error:  # report whatever ends the turn, and raise it unchanged
        is_over = True
        if turn.callback_error is None:
            # Third-party exceptions may quote a key or a header, which no event may contain.
            message = str(error) if isinstance(error, PlayheadError) else "see the exception"
            await emit(Failed(round=emit.round, error=message, kind=type(error).__name__))
        raise
    finally:
        if not is_over:  # the turn was cancelled
            turn.add(*audio.heard())
    if not turn.aborted:
        return result
    heard = audio.heard()
    turn.add(*heard)
    return replace(result, messages=(*result.messages, *heard))


def _model_for_mode(model: Model, mode: Mode) -> Model:
    if mode == "function" or model.provider == "prompt":
        return model
    return PromptModel(model)


def _runner_of(tools: Tools) -> ToolRunner:
    match tools:
        case Hub():
            return HubRunner(tools)
        case None:
            return JoinedRunner(())
        case Sequence():
            return JoinedRunner(map(_runner_of, tools))
        case _:
            return tools


class _Emitter:
    """Emits events one at a time, from any number of tasks, and stores an exception of the callback."""

    def __init__(self, on_event: OnEvent | None, turn: TurnHandle) -> None:
        self._on_event = on_event
        self._turn = turn
        self._lock = trio.Lock()
        self.round = 1
        """The round of the latest event."""

    async def __call__(self, event: Event) -> None:
        self.round = event.round
        if self._on_event is None or self._turn.callback_error is not None:
            return
        if self._lock.locked():
            async with self._lock:
                if self._turn.callback_error is None:
                    await self._call(self._on_event, event)
            return
        self._lock.acquire_nowait()  # unlike `async with`, this is not a checkpoint
        try:
            await self._call(self._on_event, event)
        finally:
            self._lock.release()

    async def _call(self, on_event: OnEvent, event: Event) -> None:
        try:
            result = on_event(event)
            if isawaitable(result):
                await result
        except Exception as error:  # a user's callback may raise anything
            self._turn.callback_error = error
            raise


async def _return_unchanged(_context: Context, media: Playable) -> Playable:
    """The innermost `read`: it passes a result's media to the player unchanged."""
    return media


async def _ignore_piece(_piece: ReplyPiece) -> None:
    """The innermost `on_piece`: outside the loop, it ignores the piece."""


@dataclass(eq=False, repr=False)
class Agent:
    """A model, its tools and the conversation so far. `run_turn` describes the arguments.

        async with open_hub() as hub:
            await hub.connect_all()
            await hub.discover_and_register_all_tools()
            agent = Agent(model, hub, system="You are a voice assistant.")
            print((await agent.say("Play something by Coltrane")).text)

    Attributes may be changed between turns; the history continues. An agent owns no tasks and needs no
    closing: the model and the hub belong to the caller.
    """

    model: Model
    tools: Tools = None
    _: KW_ONLY
    system: str = ""
    history: InitVar[Iterable[Message]] = ()
    mode: Mode = "function"
    budgets: Budgets | None = None
    approvals: Approvals | None = None
    middlewares: Sequence[Middleware] | Hooks = ()
    on_event: OnEvent | None = None
    player: MediaPlayer | None = None
    max_tokens: int | None = None
    temperature: float | None = None

    def __post_init__(self, history: Iterable[Message]) -> None:
        self._messages = list(history)
        self._turns = 0
        self._running: TurnHandle | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history. While a turn runs: as it was before the turn."""
        return tuple(self._messages)

    async def say(self, *parts: str | Text | Attachment) -> TurnResult:
        """Run one turn: the user says this, and the model answers.

        Raises `UsageError` without any parts, `BusyError` while another turn runs, and what `run_turn`
        raises. Whatever ends the turn, including cancellation, all messages and calls until then stay in
        the history, every call with its result, so that the next turn can continue.
        """
        if self._running is not None:
            raise BusyError("a turn is running: wait for it, or end it with `abort`")
        if not parts:
            raise UsageError("say: expected at least one string or attachment, got nothing")
        message = UserMessage(
            parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
        )
        turn = self._running = TurnHandle()
        self._turns += 1
        try:
            return await run_turn(
                self.model,
                self.tools,
                (*self._messages, message),
                system=self.system,
                mode=self.mode,
                budgets=self.budgets,
                approvals=self.approvals,
                middlewares=self.middlewares,
                on_event=self.on_event,
                player=self.player,
                turn=turn,
                number=self._turns,
                max_tokens=self.max_tokens,
                temperature=self.temperature,
            )
        finally:
            self._running = None
            self._messages += [message, *turn.messages]

    def abort(self) -> None:
        """End the running turn, as `TurnHandle.abort` does: `say` returns the partial result. Without a
        running turn, do nothing."""
        if self._running is not None:
            self._running.abort()
