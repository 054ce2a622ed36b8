"""What to make of an answer that no server that honours ranges as asked would give.

Such an answer is longer than asked for, or the same as the one at another offset. It comes from a server
that ignores ranges and sends the whole, or from one that honours `start` and has its own page size. While
it is settled which, nothing else is in flight:

1. If the answer is not at the first missing offset, ask there.
2. Ask at the offset received, once. Nothing there: the first answer was the whole (or the last page).
3. The same again: ranges are ignored, and the first answer is the whole, unless the content could explain
   it; then a read far past any resource decides, where only a server that ignores ranges has bytes.
4. Other bytes: the server's own page size, and go on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from playhead.errors import ContradictionError, RangeNotHonouredError
from playhead.stream.answer import Answer
from playhead.stream.evidence import Verdict, alike, judge
from playhead.stream.statistics import EndedBy

Ask = Callable[[int, int], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What is known now. `answers` follow each other from the first missing offset on."""

    answers: tuple[Answer, ...]
    end: int | None = None
    """The resource's end, where it is proved."""
    proof: EndedBy | None = None
    ranges_ignored: bool = False
    page_bytes: int | None = None
    """The server's own page size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the decision is about."""

    at: int
    """The first missing offset; 0 where there is no reference."""
    want_bytes: int
    """How much was asked for."""
    far: int
    """An offset past any resource that would be read."""
    size_bytes: int | None
    server_name: str

    def unclear(self, surprise: Answer, came: str) -> RangeNotHonouredError:
        start, end = surprise.offset, surprise.offset + self.want_bytes
        return RangeNotHonouredError(
            f"{self.server_name}: expected the bytes [{start}, {end}), got {surprise.n_bytes} bytes, and "
            f"{came}: its answers cannot be put together without guessing; read it with strategy 'whole', "
            "or give the resource's size",
            offset=start,
        )


async def settle(ask: Ask, case: Case, *, surprise: Answer, reference: Answer | None) -> Settlement:
    """Decide what `surprise` is; `reference` is the answer at offset 0, where it has come and is stored.

    `ask` reads one range, retries included. Raises `RangeNotHonouredError` when it cannot be told,
    `ContradictionError` when the server has nothing at an offset before bytes that it sent, and what `ask`
    raises. Cancelled: nothing is left behind.
    """
    if reference is not None:
        if await _ignored(ask, case, reference, surprise):
            return _whole(reference, keep=False)
        mine = (surprise,) if surprise.offset == case.at else ()
        own_size = surprise.n_bytes if surprise.n_bytes > case.want_bytes else None
        return Settlement(answers=mine, page_bytes=own_size)
    first = surprise
    if surprise.offset != case.at:
        first = await ask(case.at, case.at + case.want_bytes)
        if not first.n_bytes:
            raise ContradictionError(
                f"{case.server_name}: got nothing at byte {case.at}, but {surprise.n_bytes} bytes at "
                f"{surprise.offset}: the server contradicts itself; try again, or report it to its author",
                offset=case.at,
            )
        if first.n_bytes <= case.want_bytes:
            if await _ignored(ask, case, first, surprise):
                return _whole(first)
            return Settlement(answers=(first,), page_bytes=surprise.n_bytes)
    other = await ask(first.end, first.end + case.want_bytes)
    if not other.n_bytes:
        return _whole(first)
    if await _ignored(ask, case, first, other):
        return _whole(first)
    return Settlement(answers=(first, other), page_bytes=first.n_bytes)


def _whole(first: Answer, *, keep: bool = True) -> Settlement:
    answers = (first,) if keep else ()
    return Settlement(answers=answers, end=first.end, proof="whole", ranges_ignored=True)


async def _ignored(ask: Ask, case: Case, first: Answer, other: Answer) -> bool:
    verdict = judge(first, other, size_bytes=case.size_bytes)
    if verdict is not Verdict.UNSURE:
        return verdict is Verdict.IGNORED
    if alike(first, other) and other.offset < first.end:
        # They overlap, so `other` speaks of bytes past the end of `first`: is there anything?
        following = await ask(first.end, first.end + case.want_bytes)
        if not following.n_bytes:
            return True
    beyond = await ask(case.far, case.far + case.want_bytes)
    if not beyond.n_bytes:
        return False
    if alike(first, other) and alike(first, beyond):
        return True
    raise case.unclear(other, f"{beyond.n_bytes} bytes at {case.far}, past any end")
