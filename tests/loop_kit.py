"""Helpers for tests of the tool loop: tools made of functions, and the laws that every history obeys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import trio

from playhead.agent.conversation import (
    AssistantMessage,
    CallReady,
    Message,
    ReplyPiece,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from playhead.agent.events import Event
from playhead.agent.middleware import Context, MiddlewareContext, Next, TurnParams, TurnResult
from playhead.agent.scripted_model import ScriptedModel
from playhead.agent.tool_runner import CallOutcome
from playhead.errors import TransportError
from playhead.playback.state import PlayerEvent, PlayerState
from playhead.stream.source import Playable

Tool = Callable[[ToolCall], Awaitable[str | CallOutcome]]


def user(text: str) -> UserMessage:
    return UserMessage(parts=(Text(text=text),))


def done(call: ToolCall, text: str, **more: Any) -> CallOutcome:
    return CallOutcome(result=ToolResult(call_id=call.id, name=call.name, text=text), **more)


async def echo(call: ToolCall) -> str:
    await trio.lowlevel.checkpoint()
    return f"{call.name}:{(call.arguments or {}).get('n', '')}"


@dataclass
class Tools:
    """A runner whose tools are functions. It records each call and how it ended."""

    functions: dict[str, Tool]
    running: int = 0
    most_at_once: int = 0
    finished: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    def specs(self) -> tuple[ToolSpec, ...]:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        return tuple(ToolSpec(name=name, description="", parameters=schema) for name in self.functions)

    async def call(self, call: ToolCall, *, on_progress: Any, on_media: Any) -> CallOutcome:
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            answer = await self.functions[call.name](call)
        except trio.Cancelled:
            self.cancelled.append(call.id)
            raise
        finally:
            self.running -= 1
        self.finished.append(call.id)
        return answer if isinstance(answer, CallOutcome) else done(call, answer)


@dataclass
class Gate:
    """A tool that answers when it is let."""

    open: trio.Event = field(default_factory=trio.Event)
    reached: trio.Event = field(default_factory=trio.Event)

    async def __call__(self, call: ToolCall) -> str:
        self.reached.set()
        await self.open.wait()
        return f"{call.name} is through"


def results_of(messages: Iterable[Message]) -> list[ToolResult]:
    return [each for message in messages if isinstance(message, ToolMessage) for each in message.results]


def assert_whole(messages: Sequence[Message]) -> None:
    """Every call has one result, in the message after it and in the order of the calls, and no result is
    without its call."""
    due: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert [result.call_id for result in message.results] == due
            assert due
            due = []
            continue
        assert not due, f"calls without results: {due}"
        if isinstance(message, AssistantMessage):
            assert message.parts or message.raw
            due = [call.id for call in message.calls]
            assert len(set(due)) == len(due)
    assert not due, f"calls without results: {due}"


def assert_requests_whole(model: ScriptedModel) -> None:
    """No request held an orphaned call, and each ends with what the model is to answer."""
    for request in model.requests:
        assert_whole(request.messages)
        assert isinstance(request.messages[-1], UserMessage | ToolMessage)


def shape(events: Iterable[Event]) -> list[str]:
    """Events as words: `mcp_tool_call_begin(a)`."""
    found = []
    for event in events:
        tool = getattr(event, "tool", None)
        responses = getattr(event, "responses", ())
        what = tool.id if tool is not None else ", ".join(each.id for each in responses)
        found.append(f"{event.type}({what})" if what else event.type)
    return found


def middleware(
    function: Callable[..., Awaitable[Any]],
) -> Callable[[MiddlewareContext], Callable[[Any], Any]]:
    """The middleware that is `function(next, context, params)`."""
    return lambda api: lambda next: partial(function, next)


@middleware
async def silent(next: Next, context: Context, params: TurnParams) -> TurnResult:
    """Keeps `CallReady` back: the calls start from the final message, all at once."""

    async def on_piece(piece: ReplyPiece) -> None:
        if not isinstance(piece, CallReady):
            await context.on_piece(piece)

    return await next(replace(context, on_piece=on_piece), params)


@middleware
async def retrying(next: Next, context: Context, params: TurnParams) -> TurnResult:
    """Asks once more where the connection was lost."""
    try:
        return await next(context, params)
    except TransportError:
        return await next(context, params)


@asynccontextmanager
async def once(event: trio.Event, act: Callable[[], object]) -> AsyncIterator[None]:
    """Beside the body, call `act` when `event` is set."""

    async def wait() -> None:
        await event.wait()
        act()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        yield
        nursery.cancel_scope.cancel()


class NotingPlayer:
    """A player that plays nothing and notes the titles it gets; `tell` makes it say that something ended."""

    def __init__(self, error: Exception | None = None) -> None:
        self.got: list[tuple[str, list[str]]] = []
        self._error = error
        self.state = PlayerState()
        self.tell, self._events = trio.open_memory_channel[PlayerEvent](64)

    async def play(self, media: Iterable[Playable]) -> None:
        for _ in range(10):  # it stops what played before
            await trio.lowlevel.checkpoint()
        self._note("play", media)

    async def enqueue(self, media: Iterable[Playable]) -> None:
        self._note("enqueue", media)

    def _note(self, how: str, media: Iterable[Playable]) -> None:
        self.got.append((how, [item.title for item in media]))
        if self._error is not None:
            raise self._error

    def events(self) -> trio.MemoryReceiveChannel[PlayerEvent]:
        return self._events.clone()

    def snapshot(self) -> PlayerState:
        return self.state


@asynccontextmanager
async def cancelled_after(checkpoints: int) -> AsyncIterator[trio.CancelScope]:
    """The body, cancelled after so many turns of the scheduler."""
    async with trio.open_nursery() as nursery:

        async def count(scope: trio.CancelScope) -> None:
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()
            scope.cancel()

        with trio.CancelScope() as scope:
            nursery.start_soon(count, scope)
            yield scope
        nursery.cancel_scope.cancel()


def tasks() -> int:
    """Count the tasks: any that are left behind show here."""
    return trio.lowlevel.current_statistics().tasks_living
