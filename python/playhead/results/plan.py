"""The plan for a result: one disposition per block, in order, and the decision about the turn.

Values only. `classify` makes a plan; the owner of the session, the player and the model carries it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, assert_never

from playhead.content import ABSENT, Block, Finding
from playhead.content.formats import Base64Holder, Base64Text, Postponed
from playhead.results.candidates import Candidate
from playhead.results.kinds import Kind
from playhead.results.responses.types import StructuredResponse

Decision = Literal["continue", "stop"]
AudioSource = Literal["audio", "blob", "link"]
"""Sources of audio: an audio block, an embedded blob, or a link that is read in ranges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Disposition(Postponed):
    index: int
    """Index of the block in the result, from 0; -1 for `structuredContent`."""
    block: Block | None
    """None for `structuredContent`, and for the parts of a structured response."""
    reason: str
    """Human-readable reason for the disposition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendText(_Disposition):
    """Text for the model, and for the user as well if `to_user`."""

    text: str
    """The text as received, with a line in place of audio that plays. It may contain other base64;
    `text_for_model` makes the text for the model."""
    to_user: bool
    is_error: bool
    uri: str | None = None
    """The URI of the embedded resource that the text is from, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayAudio(_Disposition, Base64Holder[Base64Text | None]):
    """Audio for the player. `uri` is set for a link or blob, `base64` for audio in the result itself."""

    source: AudioSource
    title: str
    """The title; empty if the server gave none."""
    mime_type: str | None
    uri: str | None
    base64: str | None
    size_bytes: int | None = None
    """The decoded size; for a link the announced size, if any."""
    is_local: bool = False
    """True if `uri` is a file of this machine that the user allowed, not a resource of the server."""
    is_in_text: bool = False
    """True if the audio was in text, which has a line in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowImage(_Disposition, Base64Holder[Base64Text]):
    """An image for the user, and for a vision model."""

    mime_type: str
    base64: str
    size_bytes: int
    """The decoded size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepReference(_Disposition):
    """Content neither played nor shown, for the caller to read: a link or an embedded blob other than audio,
    audio in an error result, or an image or audio with invalid base64."""

    kind: Kind
    title: str
    """The title; empty if the server gave none."""
    mime_type: str | None
    uri: str | None
    """None for a block with inline data and no URI."""
    size_bytes: int | None = None
    """The decoded size; for a link the announced size, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportUnknown(_Disposition):
    """A block of unknown type; `block.raw` is the object received."""


Part = SendText | PlayAudio | ShowImage | KeepReference


@dataclass(frozen=True, slots=True, kw_only=True)
class Respond(_Disposition):
    """A structured response in place of its text block; `parts` are the dispositions of its `content()`."""

    response: StructuredResponse
    parts: tuple[Part, ...]


Disposition = Part | ReportUnknown | Respond


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDecision:
    """Decision to call the model again after this result or to end the turn, and its reason."""

    decision: Decision
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The handling of each block of a result."""

    dispositions: tuple[Disposition, ...]
    turn: TurnDecision
    is_error: bool
    findings: tuple[Finding, ...] = ()
    """Findings about the blocks, with paths relative to the result: `$.content[2].name`."""
    unsettled: tuple[int, ...] = ()
    """Block indexes of links whose type and suffix are unknown: sniff their first bytes and classify
    again."""
    candidates: tuple[Candidate, ...] = ()
    """Audio that the result may hold or name elsewhere than in a block: ask for the first bytes of those
    without a verdict and classify again."""
    structured: object = ABSENT
    """`structuredContent`, with a line in place of audio that plays."""

    @property
    def refused(self) -> tuple[Candidate, ...]:
        """The candidates that nobody asked because they are not allowed."""
        return tuple(each for each in self.candidates if each.verdict is not None and each.verdict.permission)

    def parts(self) -> Iterator[Part | ReportUnknown]:
        """Iterate over the dispositions, with each structured response expanded into its parts."""
        for item in self.dispositions:
            if isinstance(item, Respond):
                yield from item.parts
            else:
                yield item


Stopper = Literal[
    "audio", "link", "blob", "structured", "text", "image", "reference", "embedded_text", "unknown"
]
"""Kinds of block for the turn. `link` and `blob` are playable, `reference` is any other link or blob;
`structured` is a structured response that marks itself as terminal."""

DEFAULT_STOPPERS: Final[frozenset[Stopper]] = frozenset({"audio", "link", "blob", "structured"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules of classification."""

    trust_structured: bool = True
    """True to treat text that looks like a structured response as one. A forgery cannot be detected; at worst
    it ends the turn or plays audio. Disable it for tools that relay untrusted text (web pages, mail)."""
    stops: frozenset[Stopper] = DEFAULT_STOPPERS
    """Kinds of block that end the turn; by default those that play audio, to avoid speech over music."""
    turn: Decision | None = None
    """Decision that overrides the blocks. An error result still goes to the model."""
    sniff_links: bool = True
    """True to read the first bytes of a link whose type and suffix are unknown, and of a URL or path in text
    or in `structuredContent`, to detect audio."""


DEFAULT_POLICY: Final = Policy()


_FAILED: Final = TurnDecision(decision="continue", reason="the tool failed, and the model must see the error")
_NOTHING_STOPS: Final = TurnDecision(decision="continue", reason="nothing in the result ends the turn")


def decide(dispositions: Iterable[Disposition], *, is_error: bool, policy: Policy) -> TurnDecision:
    """Stop at the first disposition that ends the turn. An error always goes to the model; otherwise
    `Policy.turn`, if set, overrides the dispositions."""
    if is_error:
        return _FAILED
    if policy.turn is not None:
        return TurnDecision(decision=policy.turn, reason=f"the policy decides: {policy.turn}")
    for each in dispositions:
        if (why := _stopped_by(each, policy)) is not None:
            return TurnDecision(decision="stop", reason=f"block {each.index}: {why}")
    return _NOTHING_STOPS


def decide_reply(turns: Iterable[TurnDecision]) -> TurnDecision:
    """Combine the decisions for all calls in one model reply: stop if any of them stops."""
    return next((turn for turn in turns if turn.decision == "stop"), _NOTHING_STOPS)


def _stopped_by(disposition: Disposition, policy: Policy) -> str | None:
    if isinstance(disposition, Respond):
        response = disposition.response
        if "structured" in policy.stops:
            if response.is_terminal:
                return f"the {response.type} response is terminal"
            if response.stops_model:
                return f"the {response.type} response silences the model"
        return next(filter(None, (_stopped_by(part, policy) for part in disposition.parts)), None)
    kind = _kind_of(disposition)
    return _WHY[kind] if kind in policy.stops else None


def _kind_of(
    disposition: SendText | PlayAudio | ShowImage | KeepReference | ReportUnknown,
) -> Stopper:
    match disposition:
        case PlayAudio(source=source):
            return source
        case SendText(uri=uri):
            return "text" if uri is None else "embedded_text"
        case ShowImage():
            return "image"
        case KeepReference():
            return "reference"
        case ReportUnknown():
            return "unknown"
        case _:
            assert_never(disposition)


_WHY: Final[dict[Stopper, str]] = {
    "audio": "audio plays",
    "link": "a playable link plays",
    "blob": "a blob plays",
    "structured": "a structured response ends the turn",
    "text": "the policy stops at text",
    "image": "the policy stops at an image",
    "reference": "the policy stops at a reference",
    "embedded_text": "the policy stops at embedded text",
    "unknown": "the policy stops at an unknown block",
}
