"""Does this server honour ranges? Two answers, at different offsets, tell.

A server that ignores ranges answers every read alike. One that honours them answers alike only where the
resource repeats itself (silence, a test pattern), so a likeness is taken for proof only when the content
cannot explain it; else a read far past any end decides (see `settle`). Pure.
"""

from __future__ import annotations

from enum import Enum

from playhead.limits import KIB, MIB
from playhead.stream.answer import Answer, leading

COMPARED_BYTES = 3 * KIB
CHEAP_BYTES = MIB
"""Up to this size another read costs less than a wrong guess, so a likeness is always looked into."""


class Verdict(Enum):
    HONOURED = "honoured"
    IGNORED = "ignored"
    UNSURE = "unsure"


def alike(one: Answer, other: Answer) -> bool:
    """The same bytes in the same blobs: what a server that ignores ranges sends every time."""
    return one.n_bytes == other.n_bytes and one.blobs == other.blobs


def repeats_itself(answer: Answer) -> bool:
    """Whether the beginning comes again later in the answer, as in silence or a test pattern."""
    first = answer.blobs[0]
    if isinstance(first, bytes):
        return first.find(first[: COMPARED_BYTES // 4], 1) >= 0
    return first.find(first[:KIB], 1) >= 0


def judge(first: Answer, other: Answer, *, size_bytes: int | None) -> Verdict:
    """What two non-empty answers at different offsets say; `size_bytes` is the announced size."""
    if alike(first, other):
        as_announced = first.offset == 0 and size_bytes == first.n_bytes
        too_big_for_chance = size_bytes is None and first.n_bytes > CHEAP_BYTES
        if (as_announced or too_big_for_chance) and not repeats_itself(first):
            return Verdict.IGNORED
        return Verdict.UNSURE
    compared = min(first.n_bytes, other.n_bytes, COMPARED_BYTES)
    if leading(first, compared) == leading(other, compared):
        return Verdict.UNSURE
    return Verdict.HONOURED
