"""A model, as the loop sees it: a request goes in, and a reply comes out piece by piece."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from playhead.agent.conversation import AssistantMessage, ModelRequest, Provider, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """A call whose name is known, and whose arguments are still coming."""

    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReady:
    """A call that is complete in the stream: it can run while the rest still comes."""

    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one model call; None where the provider doesn't say."""

    input_tokens: int | None = None
    output_tokens: int | None = None


StopReason = Literal["end", "calls", "length", "refused", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEnd:
    """The last piece of every reply."""

    message: AssistantMessage
    stop: StopReason
    usage: Usage
    reason: str = ""
    """The provider's own words for `stop`, where it has some: `SAFETY`, why a model refused."""


ReplyPiece = TextDelta | ThinkingDelta | CallStarted | CallReady | ReplyEnd


class Model(Protocol):
    """What the loop calls: a provider behind its SDK, plain HTTP, or a script."""

    @property
    def provider(self) -> Provider: ...

    @property
    def name(self) -> str: ...

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ReplyPiece]]:
        """Send `request`; iterating gives its pieces, `ReplyEnd` last. Leaving the context early ends the
        request on the wire.

        Raises `ModelError` where the provider refused or answered nonsense, `TransportError` where nothing
        came.
        """
        ...
