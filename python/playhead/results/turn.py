"""Whether the model is called again after a result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

from playhead.results.plan import (
    Disposition,
    KeepReference,
    PlaySound,
    ReportUnknown,
    Respond,
    SendText,
    ShowImage,
    Turn,
)
from playhead.results.policy import Policy, Stopper

_FAILED: Final = Turn(decision="continue", reason="the tool failed, and the model has to know")
_NOTHING_STOPS: Final = Turn(decision="continue", reason="nothing in the result ends the turn")


def decide(dispositions: Iterable[Disposition], *, is_error: bool, policy: Policy) -> Turn:
    """The first disposition that stops, stops. An error goes to the model whatever the policy says; otherwise
    `Policy.turn`, if set, decides alone."""
    if is_error:
        return _FAILED
    if policy.turn is not None:
        return Turn(decision=policy.turn, reason=f"the policy decides: {policy.turn}")
    for each in dispositions:
        if (why := _stopped_by(each, policy)) is not None:
            return Turn(decision="stop", reason=f"block {each.index}: {why}")
    return _NOTHING_STOPS


def decide_reply(turns: Iterable[Turn]) -> Turn:
    """The turn after one reply of a model that made several calls: it stops if any of them stops."""
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
    disposition: SendText | PlaySound | ShowImage | KeepReference | ReportUnknown,
) -> Stopper:
    match disposition:
        case PlaySound(source=source):
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
