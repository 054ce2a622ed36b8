"""A provider-neutral conversation: messages, the request to a model, and the pieces of its reply.

The codec of each provider translates it to that provider's wire format. Some data must return to its provider
unchanged (thinking blocks with their signatures, output items with ids); it is in `AssistantMessage.raw`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Provider = str
"""The name of a provider: one of `models.providers.PROVIDERS`, or that of a program's own model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """A model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """An image or audio that is sent to a model natively."""

    kind: Literal["image", "audio"]
    mime_type: str
    base64: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call in a reply. `arguments` is None if `arguments_text` is not a JSON object."""

    id: str
    name: str
    arguments: Mapping[str, Any] | None
    arguments_text: str
    """The arguments as the model wrote them."""
    problem: str = ""
    """The mistake in the call, for the model to read, if `arguments` is None and the codec knows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    parts: tuple[Text | Attachment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """One reply, its parts in the model's order."""

    parts: tuple[Text | Thinking | ToolCall, ...]
    provider: Provider | None = None
    raw: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """The provider's own blocks or items, unchanged. They are sent back to `provider` only."""

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


Status = Literal["done", "error", "denied", "unknown", "bad_arguments", "timeout", "cancelled", "over_budget"]
"""The outcome of a call. `error` means that the tool returned isError, or that the call failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The single result of one call, whatever happened to it."""

    call_id: str
    name: str
    """The name that the model used."""
    text: str
    media: tuple[Attachment, ...] = ()
    status: Status = "done"

    @property
    def is_error(self) -> bool:
        return self.status != "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMessage:
    """The results of one reply's calls: one per call, in call order."""

    results: tuple[ToolResult, ...]


Message = UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as it is offered to a model."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """The JSON Schema of the tool's arguments. Optional arguments stay optional."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One call of a model."""

    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    """None leaves it to the provider; Anthropic, which requires one, gets 8192."""
    temperature: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPiece:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingPiece:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """A call whose name is known and whose arguments are still streaming."""

    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReady:
    """A call that is complete in the stream. It can run while the rest is still streaming."""

    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Tokens of one model call; None if the provider doesn't report them."""

    input_tokens: int | None = None
    output_tokens: int | None = None


StopReason = Literal["end", "calls", "length", "refused", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEnd:
    """The last piece of every reply."""

    message: AssistantMessage
    stop: StopReason
    usage: TokenUsage
    reason: str = ""
    """The provider's own text about `stop`, if any: `SAFETY`, or the reason of a refusal."""


ReplyPiece = TextPiece | ThinkingPiece | CallStarted | CallReady | ReplyEnd


class Model(Protocol):
    """A model that the loop can call: a provider, or a script."""

    @property
    def provider(self) -> Provider: ...

    @property
    def name(self) -> str: ...

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[ReplyPiece]]:
        """Send `request` and iterate over the pieces of the reply, `ReplyEnd` last. Leaving the context early
        ends the request on the wire.

        Raises `ModelError` if the provider refused or sent an invalid reply, `TransportError` if there was no
        reply.
        """
        ...
