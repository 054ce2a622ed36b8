"""A provider's answers, independent of the wire format; each provider's module encodes them.

    Reply(Say("One moment. "), Ask("a", "box__echo", '{"label": "a"}'), Hold())

Deltas are cut in many places: text by words, arguments by a few characters. Calls that stand beside each
other are interleaved where the provider's format has an index for that (`interleaved`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Literal

import trio

ProviderName = Literal["openai", "openai-responses", "anthropic", "gemini"]

ARGUMENT_CUTS = (1, 5, 2, 9)
"""So many characters a delta, over and over: in the middle of names, of strings, of escapes."""


@dataclass(frozen=True, slots=True)
class Say:
    """Text; one delta for each word, or `sizes` characters a delta."""

    text: str
    sizes: Sequence[int] | None = None

    @property
    def deltas(self) -> list[str]:
        return re.findall(r"\S+\s*", self.text) if self.sizes is None else list(cut(self.text, self.sizes))


@dataclass(frozen=True, slots=True)
class Think:
    """The model's reasoning. Its provider requires `signature` back with it, unchanged."""

    text: str
    signature: str = "c2lnbmVk"


@dataclass(frozen=True, slots=True)
class Ask:
    """A call. `arguments` is the text that the model writes: good JSON, or not."""

    id: str
    name: str
    arguments: str = "{}"
    sizes: Sequence[int] = ARGUMENT_CUTS

    @property
    def deltas(self) -> list[str]:
        return list(cut(self.arguments, self.sizes))


@dataclass(frozen=True, slots=True)
class Hold:
    """The stream stops here until `released` is set. `reached` tells that all before it was sent; calls
    before it are complete in the stream. As the first part: before the answer's head."""

    released: trio.Event = field(default_factory=trio.Event)
    reached: trio.Event = field(default_factory=trio.Event)


@dataclass(frozen=True, slots=True)
class Broken:
    """A failure in the middle of the stream, which ends it.

    `reset`: the connection closes. `garbage`: an event that isn't JSON. `error`: the provider's own event for
    an error.
    """

    how: Literal["reset", "garbage", "error"]


Part = Say | Think | Ask | Hold | Broken


@dataclass(frozen=True, slots=True, init=False)
class Reply:
    """One answer with HTTP 200."""

    parts: tuple[Part, ...]
    input_tokens: int
    output_tokens: int

    def __init__(self, *parts: Part, input_tokens: int = 10, output_tokens: int = 5) -> None:
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "input_tokens", input_tokens)
        object.__setattr__(self, "output_tokens", output_tokens)

    @property
    def calls(self) -> tuple[Ask, ...]:
        return tuple(part for part in self.parts if isinstance(part, Ask))

    def groups(self) -> Iterator[tuple[Ask, ...] | Say | Think | Hold | Broken]:
        """The parts in order, calls beside each other together."""
        together: list[Ask] = []
        for part in self.parts:
            if isinstance(part, Ask):
                together.append(part)
                continue
            if together:
                yield tuple(together)
                together = []
            yield part
        if together:
            yield tuple(together)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """An HTTP status in place of a reply, with the provider's own body for errors."""

    status: int
    message: str = "no"
    headers: tuple[tuple[str, str], ...] = ()


Frame = bytes | Hold | Broken
"""The elements of a wire: bytes of the body, and events between them."""


def cut(text: str, sizes: Sequence[int]) -> Iterator[str]:
    """`text` in pieces of these sizes, over and over."""
    at, turn = 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        yield text[at : at + size]
        at, turn = at + size, turn + 1


def interleaved(calls: Sequence[Ask]) -> Iterator[tuple[int, str]]:
    """The calls' deltas, one of each in turn, with the index of the call."""
    for row in zip_longest(*(call.deltas for call in calls)):
        for index, delta in enumerate(row):
            if delta is not None:
                yield index, delta
