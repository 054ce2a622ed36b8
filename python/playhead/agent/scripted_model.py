"""A scripted model, for tests of the tool loop, of middleware, and of programs that use them.

    model = ScriptedModel([
        reply("One moment. ", call("music__play", {"title": "Blue"})),
        lambda request: reply(f"It said: {request.messages[-1].results[0].text}"),
    ])
    result = await run_turn(model, hub, messages)
    assert len(model.requests) == 2

The parts of a reply are listed in order: a `str` is text, `Thinking` and `ToolCall` stand for themselves, a
`Pause` waits, and an exception is raised at that point. Nothing here reads a clock or opens a connection.
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
    CallReady,
    CallStarted,
    ModelRequest,
    Provider,
    ReplyEnd,
    ReplyPiece,
    StopReason,
    Text,
    TextPiece,
    Thinking,
    ThinkingPiece,
    TokenUsage,
    ToolCall,
)
from playhead.errors import UsageError

_NO_USAGE = TokenUsage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The reply waits here until `until` is set."""

    until: trio.Event = field(default_factory=trio.Event)
    reached: trio.Event = field(default_factory=trio.Event)
    """Set when the model reaches this step. A test waits for it, and then cancels."""


ReplyPart = Text | Thinking | ToolCall | Pause | BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """One reply of a script; `reply(…)` is the short form."""

    parts: tuple[ReplyPart, ...]
    usage: TokenUsage = _NO_USAGE
    """The reported usage. By default there is none, as from many compatible servers."""
    stop: StopReason | None = None
    """The reason to stop. None means the one that a provider would send: `calls` if there are any, else
    `end`."""
    reason: str = ""
    """The provider's words for `stop`."""


Script = Iterable[ScriptedReply | Callable[[ModelRequest], ScriptedReply]]


def reply(
    *parts: str | ReplyPart, usage: TokenUsage = _NO_USAGE, stop: StopReason | None = None, reason: str = ""
) -> ScriptedReply:
    """Make a reply of these parts, in order."""
    return ScriptedReply(
        parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts),
        usage=usage,
        stop=stop,
        reason=reason,
    )


def call(name: str, arguments: Mapping[str, Any] | str = "{}", *, id: str = "") -> ToolCall:
    """Make a call of the tool `name`. `arguments` as a string is the model's own text, valid JSON or not.

    Without an `id`, the scripted model numbers its calls: `call_1`, `call_2`, … over all replies.
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
    """A `Model` that plays `script`, one reply per request.

    A callable in the script makes its reply from the request. The script may be endless
    (`itertools.repeat(reply(call("again")))`). `cut` splits text and thinking into deltas: None leaves each
    whole, 1 splits by character, a sequence gives the sizes to use, over and over.

    `stream` raises an exception at the start of a reply when it is entered, as for a refused request, and a
    later one during iteration. The constructor raises `UsageError` for a size below 1 in `cut`, and so does
    `stream` after the end of the script.
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
            raise UsageError(f"cut: expected sizes of at least 1 character, got {cut!r}")
        self._script = iter(script)
        self._sizes = sizes
        self._provider: Provider = provider
        self._name = name
        self._requests: list[ModelRequest] = []
        self._left_early: list[int] = []
        self._finished: set[int] = set()
        """Indexes of the replies that were played to their end, or failed as scripted."""
        self._calls = 0

    @property
    def provider(self) -> Provider:
        return self._provider

    @property
    def name(self) -> str:
        return self._name

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """Every request so far, in order."""
        return tuple(self._requests)

    @property
    def left_early(self) -> tuple[int, ...]:
        """The indexes of the requests whose contexts were left before their `ReplyEnd`, by cancellation or
        otherwise, without the replies that failed as scripted."""
        return tuple(self._left_early)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ReplyPiece]]:
        """Play the next reply. Every piece is a checkpoint, so cancellation can happen between any two."""
        index = len(self._requests)
        self._requests.append(request)
        scripted = self._with_call_ids(self._next_reply(request, index))
        try:
            await trio.lowlevel.checkpoint()
            if scripted.parts and isinstance(refusal := scripted.parts[0], BaseException):
                self._finished.add(index)
                raise refusal
            async with aclosing(self._pieces(scripted, index)) as pieces:
                yield pieces
        finally:
            if index not in self._finished:
                self._left_early.append(index)

    def _next_reply(self, request: ModelRequest, index: int) -> ScriptedReply:
        try:
            step = next(self._script)
        except StopIteration:
            raise UsageError(
                f"expected at most {index} requests, the length of the script, got another one with"
                f" {len(request.messages)} messages and {len(request.tools)} tools; add a reply"
            ) from None
        return step if isinstance(step, ScriptedReply) else step(request)

    def _with_call_ids(self, scripted: ScriptedReply) -> ScriptedReply:
        parts: list[ReplyPart] = []
        for part in scripted.parts:
            if isinstance(part, ToolCall) and not part.id:
                self._calls += 1
                part = replace(part, id=f"call_{self._calls}")
            parts.append(part)
        return replace(scripted, parts=tuple(parts))

    async def _pieces(self, scripted: ScriptedReply, index: int) -> AsyncGenerator[ReplyPiece]:
        parts: list[Text | Thinking | ToolCall] = []
        for part in scripted.parts:
            await trio.lowlevel.checkpoint()
            match part:
                case Text():
                    for text in self._split(part.text):
                        yield TextPiece(text=text)
                        await trio.lowlevel.checkpoint()
                    parts.append(part)
                case Thinking():
                    for text in self._split(part.text):
                        yield ThinkingPiece(text=text)
                        await trio.lowlevel.checkpoint()
                    parts.append(part)
                case ToolCall():
                    yield CallStarted(id=part.id, name=part.name)
                    await trio.lowlevel.checkpoint()
                    yield CallReady(call=part)
                    parts.append(part)
                case Pause():
                    part.reached.set()
                    await part.until.wait()
                case BaseException():
                    self._finished.add(index)
                    raise part
                case _:
                    assert_never(part)
        await trio.lowlevel.checkpoint()
        message = AssistantMessage(parts=tuple(parts), provider=self._provider)
        stop = scripted.stop or ("calls" if message.calls else "end")
        self._finished.add(index)
        yield ReplyEnd(message=message, stop=stop, usage=scripted.usage, reason=scripted.reason)

    def _split(self, text: str) -> Iterator[str]:
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
