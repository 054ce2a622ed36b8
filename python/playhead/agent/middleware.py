"""How a turn is put together: middlewares around the turn, the model calls, tool calls, listings and reads.

    around.turn → the tool loop → around.model → prompt mode's parser → the model
                      ├→ around.list → the tool runner
                      └→ around.call → the tool runner ─ media → around.read → the player

The chain is composed once. After the calls of a reply the loop re-enters it at itself (`Api.reenter`), with
the depth in the context: what is in `around.turn` runs once a turn, what is in `around.model` once for every
call of the model, and no middleware can make the count of rounds begin anew by accident.

    def timed(api: Api) -> Callable[[Next], Next]:
        def wrap(next: Next) -> Next:
            async def ask(context: Context, params: TurnParams) -> TurnResult:
                started = trio.current_time()
                result = await next(context, params)
                print(f"model call {context.round}: {trio.current_time() - started:.1f} s")
                return result
            return ask
        return wrap

    await run_turn(model, hub, messages, middlewares=[timed])

What a middleware raises ends the turn, as if the model had failed: calls that run are cancelled, and each
gets its one result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from playhead.agent.budgets import Exhausted
from playhead.agent.calls import CallOutcome, ToolRunner
from playhead.agent.conversation import AssistantMessage, Message, ModelRequest, ToolCall, ToolSpec
from playhead.agent.events import Event
from playhead.agent.model import Model, ReplyPiece, Usage
from playhead.stream.source import Media as Playable

if TYPE_CHECKING:
    from playhead.agent.turn import Turn

Mode = Literal["function", "prompt"]
Emit = Callable[[Event], Awaitable[None]]
OnPiece = Callable[[ReplyPiece], Awaitable[None]]
EndedBy = Literal["answer", "tool_turn", "length", "refused", "aborted"] | Exhausted


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What goes through the chain beside the request; `dataclasses.replace` it to pass on another."""

    depth: int
    """Rounds of tool calls that are over."""
    turn: int
    """The turn's number in its conversation, from 1."""
    mode: Mode
    emit: Emit
    """Tells an event, in order; waits for the user's callback. Raises what that raises."""
    on_piece: OnPiece
    """Gets each piece of the reply as it comes, `ReplyEnd` last. A middleware around the model call that
    changes pieces passes on another: it gets them first, and gives what becomes of them to this one."""
    state: Turn
    """The turn that runs: its budgets, and the handle to abort it."""

    @property
    def round(self) -> int:
        """The number of the model call, from 1, as events have it."""
        return self.depth + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnParams:
    """What the model is asked."""

    request: ModelRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """How a turn, or (inside the tool loop) one model call, came out."""

    message: AssistantMessage
    """The last reply; without parts where the turn was aborted before anything came."""
    messages: tuple[Message, ...]
    """All that was added to the history, in order. Every call in it has its result."""
    usage: Usage
    """The sum; None where no reply told."""
    rounds: int
    """How often the model was called."""
    ended_by: EndedBy
    """`answer`: the model was done. `tool_turn`: a result ended the turn (it plays, or is final). `length`,
    `refused`: the model stopped there. `aborted`: by `Turn.abort`. Otherwise the first budget that was used
    up; `message` is then the last answer, given without tools."""
    reason: str
    """In words: the result's own reason to end the turn, or which budget was used up."""
    outcomes: tuple[CallOutcome, ...] = ()
    """What the tools answered, in the order of the calls: media that can be played, and the whole results."""

    @property
    def text(self) -> str:
        """The last reply's text."""
        return self.message.text


P = TypeVar("P")
R = TypeVar("R")

Next = Callable[[Context, TurnParams], Awaitable[TurnResult]]
Middleware = Callable[["Api"], Callable[[Next], Next]]
CallNext = Callable[[Context, ToolCall], Awaitable[CallOutcome]]
CallMiddleware = Callable[["Api"], Callable[[CallNext], CallNext]]
"""Around a call that may run: known, allowed, within the budgets. Raising gives the call an error result."""
ListNext = Callable[[Context, None], Awaitable[tuple[ToolSpec, ...]]]
ListMiddleware = Callable[["Api"], Callable[[ListNext], ListNext]]
"""Around the listing of what the model is offered, before every model call of the turn. A tool that it leaves
out can't be called."""

ReadNext = Callable[[Context, Playable], Awaitable[Playable]]
ReadMiddleware = Callable[["Api"], Callable[[ReadNext], ReadNext]]
"""Around each medium of a result on its way to the player, which reads what comes out: another medium around
it may watch, keep or change what is read. Raising ends the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """A user's middlewares by what they are around; the first one is the outermost."""

    turn: Sequence[Middleware] = ()
    """The whole turn."""
    model: Sequence[Middleware] = ()
    """Each model call. In prompt mode they see calls, not tags."""
    call: Sequence[CallMiddleware] = ()
    list: Sequence[ListMiddleware] = ()
    read: Sequence[ReadMiddleware] = ()


class Api:
    """What a middleware is given, once, when the chain is composed."""

    def __init__(self, model: Model, tools: ToolRunner) -> None:
        self.model = model
        self.tools = tools
        self._entry: Next | None = None

    async def reenter(self, context: Context, params: TurnParams) -> TurnResult:
        """The chain from the tool loop on. `context.depth` is what bounds it: pass on one more."""
        assert self._entry is not None, "reenter: the chain is not composed yet; call it in a turn"
        return await self._entry(context, params)

    def enter_at(self, entry: Next) -> None:
        """Where `reenter` leads; for whoever composes the chain."""
        self._entry = entry


def compose(
    api: Api,
    middlewares: Sequence[
        Callable[
            [Api], Callable[[Callable[[Context, P], Awaitable[R]]], Callable[[Context, P], Awaitable[R]]]
        ]
    ],
    innermost: Callable[[Context, P], Awaitable[R]],
) -> Callable[[Context, P], Awaitable[R]]:
    """`innermost` with the middlewares around it, the first outermost. Each is called once, here."""
    composed = innermost
    for middleware in reversed(middlewares):
        composed = middleware(api)(composed)
    return composed
