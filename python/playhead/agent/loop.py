"""A turn: `run_turn` puts the chain together and runs it; what happens in it is in tool_loop.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable

import trio

from playhead.agent.approvals import Approvals
from playhead.agent.budgets import Budgets
from playhead.agent.calls import CallOutcome, HubRunner, ToolRunner
from playhead.agent.conversation import Message, ModelRequest, ToolCall, ToolSpec
from playhead.agent.events import Event, Failed
from playhead.agent.middleware import Api, Around, Context, Middleware, Mode, TurnParams, TurnResult, compose
from playhead.agent.model import Model, ReplyPiece
from playhead.agent.prompt_mode import PromptModel
from playhead.agent.sounds import MediaPlayer, Sounds
from playhead.agent.tool_loop import ToolLoop, asking
from playhead.agent.turn import Turn
from playhead.client.groups import bare
from playhead.client.hub import Hub
from playhead.errors import PlayheadError, UsageError
from playhead.stream.source import Media as Playable

OnEvent = Callable[[Event], Awaitable[None] | None]


async def run_turn(
    model: Model,
    tools: Hub | ToolRunner | None,
    messages: Sequence[Message],
    *,
    system: str = "",
    mode: Mode = "function",
    budgets: Budgets | None = None,
    approvals: Approvals | None = None,
    middlewares: Sequence[Middleware] | Around = (),
    on_event: OnEvent | None = None,
    player: MediaPlayer | None = None,
    turn: Turn | None = None,
    number: int = 1,
    max_tokens: int | None = None,
    temperature: float | None = None,
) -> TurnResult:
    """One turn: the model answers `messages`, calls tools, hears about them, and goes on until it is done.

    Args:
        model: Who answers. With `mode="prompt"` it is given its tools in the system prompt, and calls them
            by tags in its text, for models that know nothing of function calls.
        tools: A hub (all the tools it has discovered, images go to the model; make a `HubRunner` for other
            wishes), any other runner, or None.
        messages: The history, the user's newest message last. It is not changed: what the turn adds is
            `TurnResult.messages`.
        system: The system prompt; tools' own configured ones are added while they are offered.
        budgets: Default `Budgets()`.
        approvals: Asked before each call. Default: `Approvals()`, for this turn: calls run, except of tools
            that say of themselves that they destroy (`destructiveHint: true`); nobody is there to be asked.
        middlewares: Around each model call; an `Around` for other places.
        on_event: Awaited, or called where it is no coroutine function, with each event in order. One that
            is slow holds up the turn.
        player: Gets a result's sound at once; without it `TurnResult.outcomes` has what can be played.
        turn: A handle, to abort this turn from another task.
        number: The turn's number in its conversation, for middlewares.
        max_tokens: Of one reply; None leaves it to the provider.
        temperature: None leaves it to the provider.

    A call never fails a turn: it gets one result that says what happened. What ends it:
    * `UsageError`: no message, or a `turn` that was used before (yours);
    * `ModelError`, `TransportError`, and what else the model raises: the request failed. The loop does not
      repeat it: a middleware may;
    * whatever `on_event` or a middleware raises, as it is; several at once in a group.
    In each case calls in flight are cancelled on the wire, and `turn.messages` holds what was added until
    then, every call with its result. Cancelled: the same, and no task is left. What `on_event` has seen begin
    is told as cancelled before the `error`, except where `on_event` itself raised or the turn was cancelled.
    """
    turn = Turn() if turn is None else turn
    if not messages:
        raise UsageError("messages: expected the user's message at least, came none")
    turn.begin(Budgets() if budgets is None else budgets)
    approvals = Approvals() if approvals is None else approvals
    runner = HubRunner(tools) if isinstance(tools, Hub) else _NoTools() if tools is None else tools
    around = middlewares if isinstance(middlewares, Around) else Around(model=middlewares)
    api = Api(_in_mode(model, mode), runner)
    sounds = Sounds(player, compose(api, around.read, _as_it_is))
    loop = ToolLoop(api, around, approvals=approvals, sounds=sounds)
    api.enter_at(loop.wrap(compose(api, around.model, asking(api))))
    chain = compose(api, around.turn, api.reenter)
    emit = _Teller(on_event, turn)
    context = Context(depth=0, turn=number, mode=mode, emit=emit, on_piece=_ignore, state=turn)
    try:
        with bare():
            async with sounds.watched(emit):
                request = ModelRequest(
                    messages=tuple(messages),
                    system=system,
                    tools=await loop.list_tools(context),
                    max_tokens=max_tokens,
                    temperature=temperature,
                )
                return await chain(context, TurnParams(request=request))
    except Exception as error:  # whatever ends the turn is told, and goes on to the caller as it is
        if turn.callback_error is None:
            # Other people's exceptions may quote what no event must hold: a key, a header.
            words = str(error) if isinstance(error, PlayheadError) else "see the exception"
            await emit(Failed(round=emit.round, error=words, kind=type(error).__name__))
        raise


def _in_mode(model: Model, mode: Mode) -> Model:
    if mode == "function" or model.provider == "prompt":
        return model
    return PromptModel(model)


class _NoTools:
    """No tools at all."""

    def specs(self) -> tuple[ToolSpec, ...]:
        return ()

    async def call(self, call: ToolCall, *, on_progress: object) -> CallOutcome:
        raise UsageError(f"there are no tools, and {call.name!r} was called")


class _Teller:
    """Tells events one after the other, however many tasks have some, and notes what the callback raises."""

    def __init__(self, on_event: OnEvent | None, turn: Turn) -> None:
        self._on_event = on_event
        self._turn = turn
        self._lock = trio.Lock()
        self.round = 1
        """Of the newest event."""

    async def __call__(self, event: Event) -> None:
        self.round = event.round
        if self._on_event is None or self._turn.callback_error is not None:
            return
        if self._lock.locked():
            async with self._lock:
                if self._turn.callback_error is None:
                    await self._tell(self._on_event, event)
            return
        self._lock.acquire_nowait()  # free, and no other task runs before it is taken: no checkpoint to pay
        try:
            await self._tell(self._on_event, event)
        finally:
            self._lock.release()

    async def _tell(self, on_event: OnEvent, event: Event) -> None:
        try:
            waiting = on_event(event)
            if isawaitable(waiting):
                await waiting
        except Exception as error:  # a user's callback: noted, and raised again
            self._turn.callback_error = error
            raise


async def _as_it_is(_context: Context, media: Playable) -> Playable:
    """What is done with a result's media before they play, unless a middleware does more."""
    return media


async def _ignore(_piece: ReplyPiece) -> None:
    """What is done with the pieces outside the loop, unless a middleware wants them."""
