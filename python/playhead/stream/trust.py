"""Whether a server may be believed that an answer holds the bytes that were asked for.

A server that ignores ranges sends the same to every read. If that is smaller than a page it looks like a
short page, at every offset. So nothing but the answer at offset 0, which is right either way, is stored
before an answer from another offset has differed from it. Pure.
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
        """The answer at offset 0, that the others are held against."""
        self._held: list[Answer] = []

    def admit(self, answer: Answer, *, size_bytes: int | None) -> Admission:
        """Judge a non-empty answer, not longer than asked for."""
        if self.established:
            return Admission(store=(answer,))
        if answer.offset == 0:
            self.reference = answer
            others, self._held = self._held, []
        elif self.reference is None:
            self._held.append(answer)
            return Admission()
        else:
            others = [answer]
        first = (answer,) if answer.offset == 0 else ()
        for other in others:
            if judge(self.reference, other, size_bytes=size_bytes) is not Verdict.HONOURED:
                return Admission(store=first, surprise=other)
        if others:
            self.establish()
        return Admission(store=(*first, *others))

    def establish(self) -> tuple[Answer, ...]:
        """Trust from now on; gives what was held, to be stored."""
        self.established = True
        self.reference = None
        held = tuple(self._held)
        self._held.clear()
        return held

    def forget_held(self) -> None:
        """Drop the answers that wait for a judgement: a seek has made them useless."""
        self._held.clear()
