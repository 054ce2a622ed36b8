"""Prompt mode: tools for a model that can't be offered any, by its system prompt and tags in its text.

`PromptModel` makes a `Model` of text into one that calls tools. On the way there, a request becomes text
(`prompt_text`): the tools go into the system prompt, results into user messages. On the way back,
`ToolUseParser` takes the calls out of the reply. The loop does not see the difference.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import assert_never

from playhead.agent.conversation import (
    AssistantMessage,
    Message,
    ModelRequest,
    Provider,
    Text,
    Thinking,
    ToolCall,
)
from playhead.agent.model import CallReady, CallStarted, Model, ReplyEnd, ReplyPiece, TextDelta, ThinkingDelta
from playhead.agent.prompt_text import DEFAULT_PROMPT, call_text, encode, has_calls
from playhead.agent.templates import PromptTemplate
from playhead.agent.tool_use import CallBroken, CallNamed, CallWritten, TextRun, ToolUseEvent, ToolUseParser
from playhead.errors import ModelError
from playhead.limits import DEFAULT_LIMITS

_ID = "tool_use_"
_OURS = re.compile(r"tool_use_([0-9]{1,9})")


class PromptModel:
    """`inner`, which speaks plain text, as a model that calls tools.

    `template` is the system prompt's. `limit_chars` bounds one call in the text (`Limits.tool_use_chars`).
    Calls are named `tool_use_1`, `tool_use_2`, …: never twice by one `PromptModel`, and never like a call in
    the history that it is given.

    A request without tools, and without calls in its history, goes through as it is: tags mean nothing there.
    """

    def __init__(
        self,
        inner: Model,
        *,
        template: PromptTemplate = DEFAULT_PROMPT,
        limit_chars: int = DEFAULT_LIMITS.tool_use_chars,
    ) -> None:
        self._inner = inner
        self._template = template
        self._limit_chars = limit_chars
        self._last = 0

    @property
    def provider(self) -> Provider:
        return "prompt"

    @property
    def name(self) -> str:
        """The inner model's."""
        return self._inner.name

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ReplyPiece]]:
        """See `Model.stream`. Cancellation leaves the inner model's context, and nothing else is held.

        Raises what `inner` raises, and `ModelError` where its reply stops without a `ReplyEnd`.
        """
        if not request.tools and not has_calls(request.messages):
            async with self._inner.stream(encode(request, template=self._template)) as pieces:
                yield pieces
            return
        self._last = max(self._last, _last_id(request.messages))
        encoded = encode(request, template=self._template)
        async with self._inner.stream(encoded) as pieces, aclosing(self._decode(pieces)) as decoded:
            yield decoded

    def _next_id(self) -> str:
        self._last += 1
        return f"{_ID}{self._last}"

    async def _decode(self, pieces: AsyncIterator[ReplyPiece]) -> AsyncGenerator[ReplyPiece]:
        parser = ToolUseParser(limit_chars=self._limit_chars)
        reply = _Reply(self._next_id)
        async for piece in pieces:
            match piece:
                case TextDelta():
                    reply.raw.append(piece.text)
                    found: Iterable[ReplyPiece] = reply.told(parser.feed(piece.text))
                case ThinkingDelta():
                    found = reply.thought(piece)
                case CallStarted():
                    found = ()
                case CallReady():
                    found = reply.native(piece.call)
                case ReplyEnd():
                    for last in reply.told(parser.finish()):
                        yield last
                    yield reply.end(piece)
                    return
                case _:
                    assert_never(piece)
            for one in found:
                yield one
        raise ModelError(
            f"expected a ReplyEnd as the last piece of the reply of {self.name}, came none; its Model has to "
            "send one",
            provider=self._inner.provider,
        )


class _Reply:
    """One reply, put together from its pieces."""

    def __init__(self, next_id: Callable[[], str]) -> None:
        self.raw: list[str] = []
        """As the model wrote it."""
        self._parts: list[Text | Thinking | ToolCall] = []
        self._run: list[str] = []
        self._run_kind: type[Text | Thinking] = Text
        self._next_id = next_id
        self._open = ""
        """The id of the call whose name was told."""

    def told(self, events: Iterable[ToolUseEvent]) -> Iterator[ReplyPiece]:
        for event in events:
            match event:
                case TextRun():
                    self._add(Text, event.text)
                    yield TextDelta(text=event.text)
                case CallNamed():
                    self._open = self._next_id()
                    yield CallStarted(id=self._open, name=event.name)
                case CallWritten():
                    yield from self._ready(
                        ToolCall(
                            id=self._open,
                            name=event.name,
                            arguments=event.arguments,
                            arguments_text=event.arguments_text,
                        )
                    )
                case CallBroken():
                    yield from self._ready(
                        ToolCall(
                            id=self._open,
                            name=event.name,
                            arguments=None,
                            arguments_text=event.source,
                            problem=event.reason,
                        )
                    )
                case _:
                    assert_never(event)

    def thought(self, piece: ThinkingDelta) -> Iterator[ReplyPiece]:
        self._add(Thinking, piece.text)
        yield piece

    def native(self, call: ToolCall) -> Iterator[ReplyPiece]:
        """A call that the inner model made by its provider's means, though it was offered none there: it runs
        like the others, and stands in the history as if it had been written."""
        self.raw.append(call_text(call))
        yield from self._ready(replace(call, id=""))

    def end(self, piece: ReplyEnd) -> ReplyEnd:
        self._end_run()
        message = AssistantMessage(
            parts=tuple(self._parts), provider="prompt", raw=({"text": "".join(self.raw)},)
        )
        # A reply cut at its length has calls to answer too, and the model may then go on.
        stop = "calls" if message.calls and piece.stop != "refused" else piece.stop
        return replace(piece, message=message, stop=stop)

    def _ready(self, call: ToolCall) -> Iterator[ReplyPiece]:
        if not call.id:
            call = replace(call, id=self._next_id())
            yield CallStarted(id=call.id, name=call.name)
        else:
            self._open = ""
        self._end_run()
        self._parts.append(call)
        yield CallReady(call=call)

    def _add(self, kind: type[Text | Thinking], text: str) -> None:
        if kind is not self._run_kind:
            self._end_run()
            self._run_kind = kind
        self._run.append(text)

    def _end_run(self) -> None:
        if self._run:
            self._parts.append(self._run_kind(text="".join(self._run)))
            self._run.clear()


def _last_id(messages: Iterable[Message]) -> int:
    """The highest number among the ids in the history that look like ours."""
    numbers = [0]
    for message in messages:
        if isinstance(message, AssistantMessage):
            found = (_OURS.fullmatch(call.id) for call in message.calls)
            numbers += [int(match[1]) for match in found if match]
    return max(numbers)
