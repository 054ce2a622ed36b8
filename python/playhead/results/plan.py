"""The plan for a result: one disposition a block, in the blocks' order, and the decision about the turn.

Values only. `classify` makes a plan; whoever holds the session, the player and the model carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from playhead.content import Block, Finding
from playhead.results.responses.base import StructuredResponse

Decision = Literal["continue", "stop"]
Sound = Literal["audio", "blob", "link"]
"""Where sound comes from: an audio block, an embedded blob, or a link that is read in ranges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Disposition:
    index: int
    """Of the block in the result, from 0; -1 for `structuredContent`."""
    block: Block | None
    """None for `structuredContent`, and for what a structured response brings along."""
    reason: str
    """Why it goes where it goes, in words for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendText(_Disposition):
    """Text for the model, and for the user too where `to_user`."""

    text: str
    """As it came. It may hold base64 all the same; what a model gets, `routing.text_for_model` makes."""
    to_user: bool
    is_error: bool
    uri: str | None = None
    """Of an embedded resource's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaySound(_Disposition):
    """Sound for the player. `uri` for a link or blob, `base64` for an audio block or blob."""

    source: Sound
    title: str
    """Empty where the server gave none."""
    mime_type: str | None
    uri: str | None
    base64: str | None
    size_bytes: int | None = None
    """Decoded; for a link what the server announces, if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowImage(_Disposition):
    """An image for the user, and for a model that can see."""

    mime_type: str
    base64: str
    size_bytes: int
    """Decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepReference(_Disposition):
    """What is neither played nor shown, for the caller to read: a link or an embedded blob that isn't sound,
    sound in an error result, an image or sound whose base64 is broken."""

    title: str
    """Empty where the server gave none."""
    mime_type: str | None
    uri: str | None
    """None for a block that holds its bytes itself and has no name for them."""
    size_bytes: int | None = None
    """Decoded; for a link what the server announces, if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportUnknown(_Disposition):
    """A block that nobody here understands; its raw object is kept."""


Part = SendText | PlaySound | ShowImage | KeepReference


@dataclass(frozen=True, slots=True, kw_only=True)
class Respond(_Disposition):
    """A structured response in place of its text block; `parts` are the dispositions of its `content()`."""

    response: StructuredResponse
    parts: tuple[Part, ...]


Disposition = Part | ReportUnknown | Respond


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Whether the model is called again after this result, and why."""

    decision: Decision
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to happen with each block of a result."""

    dispositions: tuple[Disposition, ...]
    turn: Turn
    is_error: bool
    findings: tuple[Finding, ...] = ()
    """What was wrong with the blocks; paths begin at the result: `$.content[2].name`."""
    unsettled: tuple[int, ...] = ()
    """Links whose labels don't say whether they are sound, by block index: look at their first bytes and
    classify again."""
