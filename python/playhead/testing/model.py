"""A model that says what a test tells it to: for tests of the tool loop, of middleware, and of their users.

    model = ScriptedModel([
        reply("One moment. ", call("music__play", {"title": "Blue"})),
        lambda request: reply(f"It said: {request.messages[-1].results[0].text}"),
    ])
    result = await run_turn(model, hub, messages)
    assert len(model.requests) == 2

A reply's parts are given in their order: a `str` is text, `Thinking` and `ToolCall` are themselves, a `Pause`
waits, and an exception is raised at that place. Nothing here reads a clock or opens a connection.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any, assert_never

import trio

from playhead.agent.conversation import (
    AssistantMessage,
    ModelRequest,
    Provider,
    Text,
    Thinking,
    ToolCall,
)
from playhead.agent.model import (
    CallReady,
    CallStarted,
    ReplyEnd,
    ReplyPiece,
    StopReason,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from playhead.errors import UsageError

_UNTOLD = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The reply stops here until `until` is set: for ever, where nobody sets it."""

    until: trio.Event = field(default_factory=trio.Event)
    reached: trio.Event = field(default_factory=trio.Event)
    """Set by the model when it gets here; a test waits for it, and then cancels."""


ReplyPart = Text | Thinking | ToolCall | Pause | BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply of a script; `reply(…)` is the short way to write it."""

    parts: tuple[ReplyPart, ...]
    usage: Usage = _UNTOLD
    """Nothing told, as from many compatible servers."""
    stop: StopReason | None = None
    """None is what a provider would say: `calls` where there are any, else `end`."""
    reason: str = ""
    """The provider's words for `stop`."""


Script = Iterable[Reply | Callable[[ModelRequest], Reply]]


def reply(
    *parts: str | ReplyPart, usage: Usage = _UNTOLD, stop: StopReason | None = None, reason: str = ""
) -> Reply:
    """A reply of these parts, in this order."""
    return Reply(
        parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts),
        usage=usage,
        stop=stop,
        reason=reason,
    )


def call(name: str, arguments: Mapping[str, Any] | str = "{}", *, id: str = "") -> ToolCall:
    """A call of the tool `name`. `arguments` as a text is what the model wrote, good JSON or not.

    Without `id` the model that plays it counts: `call_1`, `call_2`, … over all its replies.
    """
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    return ToolCall(
        id=id, name=name, arguments=parsed if isinstance(parsed, dict) else None, arguments_text=text
    )


class ScriptedModel:
    """A `Model` that plays `script`, one reply for each request.

    A callable in the script makes its reply from the request. The script may be endless
    (`itertools.repeat(reply(call("again")))`). `cut` is how text and thinking become deltas: None gives
    each whole, 1 character by character, a sequence those numbers of characters, over and over.

    An exception that begins a reply is raised when the context is entered, as for a request that is refused;
    a later one while the pieces are iterated over. Raises `UsageError`: from the constructor for a size below
    1 in `cut`, from `stream` when the script is over and the model is called again.
    """

    def __init__(
        self,
        script: Script,
        *,
        cut: int | Sequence[int] | None = None,
        provider: Provider = "openai",
        name: str = "scripted",
    ) -> None:
        sizes = () if cut is None else (cut,) if isinstance(cut, int) else tuple(cut)
        if any(size < 1 for size in sizes):
            raise UsageError(f"cut: expected sizes of at least 1 character, came {cut!r}")
        self._script = iter(script)
        self._sizes = sizes
        self._provider: Provider = provider
        self._name = name
        self._requests: list[ModelRequest] = []
        self._left_early: list[int] = []
        self._calls = 0

    @property
    def provider(self) -> Provider:
        return self._provider

    @property
    def name(self) -> str:
        return self._name

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """Every request so far, in the order in which they came."""
        return tuple(self._requests)

    @property
    def left_early(self) -> tuple[int, ...]:
        """Indexes of the requests that were left, by cancellation or otherwise, before their `ReplyEnd`.

        A reply that the script itself made fail is not among them.
        """
        return tuple(self._left_early)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ReplyPiece]]:
        """The next reply's pieces. Every piece is a checkpoint, so a cancellation gets in between any two."""
        index = len(self._requests)
        self._requests.append(request)
        playing = _Playing(self._numbered(self._next(request, index)), self._provider, self._sizes)
        try:
            await trio.lowlevel.checkpoint()
            playing.refuse()
            async with aclosing(playing.pieces()) as pieces:
                yield pieces
        finally:
            if not playing.over:
                self._left_early.append(index)

    def _next(self, request: ModelRequest, index: int) -> Reply:
        try:
            step = next(self._script)
        except StopIteration:
            raise UsageError(
                f"the script has {index} replies, and the model was called a {index + 1}th time, with"
                f" {len(request.messages)} messages and {len(request.tools)} tools; add a reply"
            ) from None
        return step if isinstance(step, Reply) else step(request)

    def _numbered(self, told: Reply) -> Reply:
        parts: list[ReplyPart] = []
        for part in told.parts:
            if isinstance(part, ToolCall) and not part.id:
                self._calls += 1
                part = replace(part, id=f"call_{self._calls}")
            parts.append(part)
        return replace(told, parts=tuple(parts))


class _Playing:
    """One reply on its way."""

    def __init__(self, told: Reply, provider: Provider, sizes: tuple[int, ...]) -> None:
        self._told = told
        self._provider = provider
        self._sizes = sizes
        self.over = False
        """It was told to its end, or failed as the script says."""

    def refuse(self) -> None:
        if self._told.parts and isinstance(self._told.parts[0], BaseException):
            self.over = True
            raise self._told.parts[0]

    async def pieces(self) -> AsyncGenerator[ReplyPiece]:
        said: list[Text | Thinking | ToolCall] = []
        for part in self._told.parts:
            await trio.lowlevel.checkpoint()
            match part:
                case Text():
                    for text in self._cut(part.text):
                        yield TextDelta(text=text)
                        await trio.lowlevel.checkpoint()
                    said.append(part)
                case Thinking():
                    for text in self._cut(part.text):
                        yield ThinkingDelta(text=text)
                        await trio.lowlevel.checkpoint()
                    said.append(part)
                case ToolCall():
                    yield CallStarted(id=part.id, name=part.name)
                    await trio.lowlevel.checkpoint()
                    yield CallReady(call=part)
                    said.append(part)
                case Pause():
                    part.reached.set()
                    await part.until.wait()
                case BaseException():
                    self.over = True
                    raise part
                case _:
                    assert_never(part)
        await trio.lowlevel.checkpoint()
        message = AssistantMessage(parts=tuple(said), provider=self._provider)
        stop = self._told.stop or ("calls" if message.calls else "end")
        self.over = True
        yield ReplyEnd(message=message, stop=stop, usage=self._told.usage, reason=self._told.reason)

    def _cut(self, text: str) -> Iterator[str]:
        if not self._sizes:
            if text:
                yield text
            return
        start = 0
        for size in cycle(self._sizes):
            if start >= len(text):
                return
            yield text[start : start + size]
            start += size
