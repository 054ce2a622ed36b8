"""A turn's handle, parameters and result, and the middleware around its parts.

    hooks.turn → the tool loop → hooks.model → prompt mode's parser → the model
                      ├→ hooks.list → the tool runner
                      └→ hooks.call → the tool runner ─ media → hooks.read → the player

The chain is composed once. After the calls of a reply the loop re-enters it at itself
(`MiddlewareContext.reenter`), with the depth in the context: `hooks.turn` runs once per turn, `hooks.model`
once per model call, and no middleware can restart the count of rounds by accident.

    def timed(api: MiddlewareContext) -> Callable[[Next], Next]:
        def wrap(next: Next) -> Next:
            async def ask(context: Context, params: TurnParams) -> TurnResult:
                started = trio.current_time()
                result = await next(context, params)
                print(f"model call {context.round}: {trio.current_time() - started:.1f} s")
                return result
            return ask
        return wrap

    await run_turn(model, hub, messages, middlewares=[timed])

An exception in a middleware ends the turn, as if the model had failed: running calls are cancelled, and each
gets its one result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

import trio

from playhead.agent.budgets import Budgets, Exhausted, Meter
from playhead.agent.conversation import (
    AssistantMessage,
    Message,
    Model,
    ModelRequest,
    ReplyPiece,
    TokenUsage,
    ToolCall,
    ToolSpec,
)
from playhead.agent.events import Event
from playhead.agent.tool_runner import CallOutcome, ToolRunner
from playhead.errors import UsageError
from playhead.stream.source import Playable


class TurnHandle:
    """A handle on one turn, for `run_turn(…, turn=TurnHandle())`. Any task of the same trio run may `abort`
    the turn. Use a new handle for each turn."""

    def __init__(self) -> None:
        self._meter: Meter | None = None
        self._messages: list[Message] = []
        self._scopes: list[trio.CancelScope] = []
        self._aborted = False
        self.callback_error: Exception | None = None
        """The exception of the event callback. The loop compares it with that of a call, to tell them
        apart."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that the turn has added to the history so far, in whole rounds, with a result for
        every call. This is valid even after cancellation or a failure, which leave no `TurnResult`."""
        return tuple(self._messages)

    @property
    def aborted(self) -> bool:
        return self._aborted

    def abort(self) -> None:
        """End the turn now. This cancels the model's reply and running calls, at their servers, too.

        `run_turn` then returns with `ended_by="aborted"`, the partial reply, and one "cancelled" result for
        each open call, so that the history stays valid. If `abort` is called before the turn, the turn ends
        at its start. After the turn, or a second time, it does nothing.
        """
        self._aborted = True
        for scope in self._scopes:
            scope.cancel()

    # --- for the loop ------------------------------------------------------------------------------

    def begin(self, budgets: Budgets) -> None:
        """Start counting. Raises `UsageError` if the handle was used before."""
        if self._meter is not None:
            raise UsageError("this TurnHandle was used before: make a new one for each turn")
        self._meter = Meter(budgets, clock=trio.current_time)

    @property
    def meter(self) -> Meter:
        """The turn's use of its budgets."""
        assert self._meter is not None, "a turn's meter runs from its begin"
        return self._meter

    def add(self, *messages: Message) -> None:
        """Add messages that belong together to the history."""
        self._messages += messages

    @contextmanager
    def abortable(self) -> Iterator[None]:
        """Let `abort` cancel the `with` block."""
        with trio.CancelScope() as scope:
            self._scopes.append(scope)
            try:
                yield
            finally:
                self._scopes.remove(scope)


Mode = Literal["function", "prompt"]
Emit = Callable[[Event], Awaitable[None]]
OnPiece = Callable[[ReplyPiece], Awaitable[None]]
EndedBy = Literal["answer", "tool_turn", "length", "refused", "aborted"] | Exhausted


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The state that passes along the chain with the request. Use `dataclasses.replace` to pass a changed
    one."""

    depth: int
    """Completed rounds of tool calls."""
    turn: int
    """The turn's number in its conversation, from 1."""
    mode: Mode
    emit: Emit
    """Emits an event, in order. It waits for the user's callback, and passes its exception on."""
    on_piece: OnPiece
    """Receives each piece of the reply as it arrives, `ReplyEnd` last. A middleware that changes pieces
    passes its own callback along the chain. That callback receives the pieces first, and calls this one with
    its output."""
    state: TurnHandle
    """The running turn: its budgets, and the handle to abort it."""

    @property
    def round(self) -> int:
        """The number of the model call, from 1, as in events."""
        return self.depth + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnParams:
    """The request to the model."""

    request: ModelRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The result of a turn, or (inside the tool loop) of one model call."""

    message: AssistantMessage
    """The last reply; without parts if the turn was aborted before anything arrived."""
    messages: tuple[Message, ...]
    """All messages added to the history, in order. Every call has its result."""
    usage: TokenUsage
    """The sum over all replies; None if no reply reported it."""
    rounds: int
    """The number of model calls."""
    ended_by: EndedBy
    """`answer`: the model was done. `tool_turn`: a result ended the turn (its audio plays, or it is final).
    `length`: a reply reached its maximum length. `refused`: the model refused. `aborted`: by
    `TurnHandle.abort`. Any other value is the first exhausted budget; `message` is then the last answer,
    written without tools."""
    reason: str
    """The reason for `ended_by`, in words."""
    outcomes: tuple[CallOutcome, ...] = ()
    """The outcomes of the calls, in call order: playable media and the whole results."""

    @property
    def text(self) -> str:
        """The last reply's text."""
        return self.message.text


P = TypeVar("P")
R = TypeVar("R")

Next = Callable[[Context, TurnParams], Awaitable[TurnResult]]
Middleware = Callable[["MiddlewareContext"], Callable[[Next], Next]]
CallNext = Callable[[Context, ToolCall], Awaitable[CallOutcome]]
CallMiddleware = Callable[["MiddlewareContext"], Callable[[CallNext], CallNext]]
"""Wraps a call that may run: known, allowed, within the budgets. An exception gives the call an error
result."""
ListNext = Callable[[Context, None], Awaitable[tuple[ToolSpec, ...]]]
ListMiddleware = Callable[["MiddlewareContext"], Callable[[ListNext], ListNext]]
"""Wraps the listing of the offered tools, before every model call of the turn. An omitted tool can't be
called."""

ReadNext = Callable[[Context, Playable], Awaitable[Playable]]
ReadMiddleware = Callable[["MiddlewareContext"], Callable[[ReadNext], ReadNext]]
"""Wraps each media item of a result on its way to the player. A wrapper of the item may watch, store or
change what is read. An exception ends the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Middleware by the place it wraps; the first of each list is the outermost."""

    turn: Sequence[Middleware] = ()
    """The whole turn."""
    model: Sequence[Middleware] = ()
    """Each model call. In prompt mode it sees calls, not tags."""
    call: Sequence[CallMiddleware] = ()
    list: Sequence[ListMiddleware] = ()
    read: Sequence[ReadMiddleware] = ()


class MiddlewareContext:
    """The model, the tools, and the entry into the loop. Each middleware gets it once, when the chain is
    composed."""

    def __init__(self, model: Model, tools: ToolRunner) -> None:
        self.model = model
        self.tools = tools
        self._entry: Next | None = None

    async def reenter(self, context: Context, params: TurnParams) -> TurnResult:
        """Run the chain from the tool loop on. `context.depth` bounds it: increase it by one."""
        assert self._entry is not None, "reenter: the chain is not composed yet; call it in a turn"
        return await self._entry(context, params)

    def enter_at(self, entry: Next) -> None:
        """Set the target of `reenter`. `run_turn` calls it when it composes the chain."""
        self._entry = entry


def compose(
    api: MiddlewareContext,
    middlewares: Sequence[
        Callable[
            [MiddlewareContext],
            Callable[[Callable[[Context, P], Awaitable[R]]], Callable[[Context, P], Awaitable[R]]],
        ]
    ],
    innermost: Callable[[Context, P], Awaitable[R]],
) -> Callable[[Context, P], Awaitable[R]]:
    """Wrap `innermost` in the middleware, the first outermost. Each middleware is called only here, once."""
    composed = innermost
    for middleware in reversed(middlewares):
        composed = middleware(api)(composed)
    return composed
