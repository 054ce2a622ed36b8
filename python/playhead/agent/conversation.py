"""One neutral conversation. Each provider's codec writes it in its own wire shapes; nothing here is theirs.

What a provider wants back exactly as it came (thinking blocks with their signatures, output items with ids)
is kept in `AssistantMessage.raw`, and given only to the provider that made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Provider = Literal["openai", "openai-responses", "anthropic", "gemini", "prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """What a model says to itself."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """An image or sound that a model is given natively."""

    kind: Literal["image", "audio"]
    mime_type: str
    base64: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call that a model asks for. `arguments` is None where `arguments_text` is no JSON object."""

    id: str
    name: str
    arguments: Mapping[str, Any] | None
    arguments_text: str
    """As the model wrote them."""
    problem: str = ""
    """Where `arguments` is None, and the codec knows: what is wrong with the call, for the model to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    parts: tuple[Text | Media, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """One reply, its parts in the order in which the model gave them."""

    parts: tuple[Text | Thinking | ToolCall, ...]
    provider: Provider | None = None
    raw: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """The provider's own blocks or items, as they came; only `provider` gets them back."""

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


Status = Literal["done", "error", "denied", "unknown", "bad_arguments", "timeout", "cancelled", "over_budget"]
"""What became of a call. `error`: the tool said isError, or calling it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The one result of one call, whatever happened to it."""

    call_id: str
    name: str
    """The name that the model used."""
    text: str
    media: tuple[Media, ...] = ()
    status: Status = "done"

    @property
    def is_error(self) -> bool:
        return self.status != "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMessage:
    """The results of one reply's calls: one for each, in the order of the calls."""

    results: tuple[ToolResult, ...]


Message = UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as a model is offered it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of its arguments. Optional ones stay optional."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One call of a model."""

    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    """None leaves it to the provider; Anthropic, which requires one, gets 8192."""
    temperature: float | None = None
