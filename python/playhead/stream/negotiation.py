"""Negotiation of the form in which ranges are asked for.

The forms are tried in order until one delivers a byte at offset 0; from then on the form stays. After the
last one all are tried once more: the server may have been starting up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from playhead.errors import (
    ContradictionError,
    HttpRefusedError,
    HttpStatusError,
    PlayheadError,
    ServerError,
    TextContentError,
)
from playhead.stream.answer import EndedBy, ReadRange

ROUNDS = 2
ROUND_SECONDS = 1.0
"""Pause between the two rounds: a mistyped URI fails in about two seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeForm:
    """A form in which ranges are asked for; see `strategies`."""

    name: str
    read: ReadRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Refusal of a form: an error, or an answer without a byte at offset 0."""

    error: PlayheadError | None = None
    claims_end: EndedBy | None = None


def is_refusal(error: PlayheadError) -> bool:
    """Return whether an answer at offset 0 says that the server does not take this form."""
    if isinstance(error, HttpStatusError):
        return error.status not in {429, 503}
    return isinstance(error, (ServerError, TextContentError, HttpRefusedError))


class FormNegotiation:
    """The form that a stream uses now, and the refusals of those before it."""

    def __init__(self, forms: Sequence[RangeForm], *, server_name: str) -> None:
        self._forms = tuple(forms)
        self._server_name = server_name
        self._index = 0
        self._round = 1
        self._refusals: list[tuple[str, Refusal]] = []
        self.resumes_at = -math.inf
        """Nothing is sent before this time."""

    @property
    def form(self) -> RangeForm:
        return self._forms[self._index]

    def refuse(self, refusal: Refusal, *, now: float, has_bytes_past_0: bool) -> EndedBy | None:
        """Move on from the current form, which was refused before its first byte.

        Returns the evidence that the resource is empty if the last form was refused for the last time and one
        of them claimed the end. Otherwise the next form is current.

        Raises the first error of the refusals if no form claimed the end, and `ContradictionError` if one did
        although bytes past offset 0 were served.
        """
        self._refusals.append((self.form.name, refusal))
        self._index += 1
        if self._index < len(self._forms):
            return None
        self._index = 0
        if self._round < ROUNDS:
            self._round += 1
            self.resumes_at = now + ROUND_SECONDS
            return None
        claims = [refusal.claims_end for _, refusal in self._refusals if refusal.claims_end is not None]
        if not claims:
            raise self._all_refused()
        if has_bytes_past_0:
            raise ContradictionError(
                f"{self._server_name}: claimed repeatedly that the resource ends at byte 0, and served bytes "
                "past it; the server contradicts itself: try again, or report it to its author",
                offset=0,
            )
        return claims[0]

    def _all_refused(self) -> PlayheadError:
        tried = {name: refusal.error for name, refusal in self._refusals if refusal.error is not None}
        first = next(iter(tried.values()))
        reasons = "; ".join(f"{name}: {error}" for name, error in tried.items())
        error = type(first).__new__(type(first))
        error.__dict__.update(first.__dict__)  # its code and data, under a message that names every form
        error.args = (
            f"{self._server_name}: every form of ranged read failed; each was tried twice ({reasons})",
        )
        return error
