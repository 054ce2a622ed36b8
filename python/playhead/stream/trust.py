"""Whether a server may be believed that an answer holds the bytes that were asked for.

A server that ignores ranges sends the same to every read. If that is smaller than a page it looks like a
short page, at every offset. So nothing but the answer at offset 0, which is right either way, is stored
before two answers from different offsets have differed. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from playhead.stream.answer import Answer
from playhead.stream.evidence import Verdict, judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What to do now: `store` these, in order; then settle what `surprise` is."""

    store: tuple[Answer, ...] = ()
    surprise: Answer | None = None


class Trust:
    """Grows with two answers that differ, and is kept."""

    def __init__(self) -> None:
        self.established = False
        self.reference: Answer | None = None
        """The answer at the first missing offset, that the others are held against."""
        self._held: list[Answer] = []

    def admit(self, answer: Answer, *, at: int, size_bytes: int | None) -> Admission:
        """Judge a non-empty answer, not longer than asked for; `at` is the first missing offset."""
        if self.established:
            return Admission(store=(answer,))
        reference = self.reference
        if reference is None:
            if answer.offset != at:
                self._held.append(answer)
                return Admission()
            self.reference = answer
            return self._weigh_held(answer, size_bytes)
        if answer.offset == reference.offset:
            return Admission()  # a copy of it
        if judge(reference, answer, size_bytes=size_bytes) is not Verdict.HONOURED:
            return Admission(surprise=answer)
        return Admission(store=(*self.establish(), answer))

    def _weigh_held(self, reference: Answer, size_bytes: int | None) -> Admission:
        others, self._held = self._held, []
        first = (reference,) if reference.offset == 0 else ()
        if not first:
            self._held.append(reference)
        for other in others:
            if judge(reference, other, size_bytes=size_bytes) is not Verdict.HONOURED:
                return Admission(store=first, surprise=other)
        if not others:
            return Admission(store=first)
        return Admission(store=(*first, *self.establish(), *others))

    def establish(self) -> tuple[Answer, ...]:
        """Trust from now on; gives what was held."""
        self.established = True
        return self.restart()

    def restart(self) -> tuple[Answer, ...]:
        """Forget what was held, and give it; trust stays as it is."""
        held, self._held = tuple(self._held), []
        self.reference = None
        return held
