"""The rings of all streams of a process share one budget."""

from __future__ import annotations

import pytest

from playhead.errors import UsageError
from playhead.limits import KIB, MIB, Limits
from playhead.stream.options import StreamOptions
from playhead.stream.reader import open_stream
from playhead.stream.ring_writer import RING_BUDGET, SMALL_RING_BYTES, RingBudget
from playhead.testing.pages import ScriptedPages


def test_while_half_is_free_rings_are_full_then_small_then_refused() -> None:
    budget = RingBudget()
    granted = [budget.take(4 * MIB, allowed_bytes=256 * MIB) for _ in range(288)]
    with pytest.raises(UsageError, match=r"Limits\.streams_bytes.*close streams, or raise the limit"):
        budget.take(4 * MIB, allowed_bytes=256 * MIB)
    assert granted == [4 * MIB] * 32 + [512 * KIB] * 256
    budget.release(granted.pop())
    assert budget.take(4 * MIB, allowed_bytes=256 * MIB) == SMALL_RING_BYTES


async def test_a_stream_takes_its_ring_and_gives_it_back() -> None:
    before = RING_BUDGET.taken_bytes
    async with open_stream(ScriptedPages(b"x" * 100), options=StreamOptions(capacity_bytes=MIB)) as stream:
        assert RING_BUDGET.taken_bytes == before + MIB
        assert await stream.read_all() == b"x" * 100
    assert before == RING_BUDGET.taken_bytes


async def test_a_stream_that_does_not_fit_the_limit_is_refused() -> None:
    with pytest.raises(UsageError, match="streams_bytes"):
        async with open_stream(ScriptedPages(b""), limits=Limits(streams_bytes=RING_BUDGET.taken_bytes)):
            pass
