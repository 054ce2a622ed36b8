"""Peak memory of a 1 GiB resource, whatever becomes of it: minus memory after connecting, in a fresh process.

The bound is the ring's capacity, the pages in flight as they are received (base64 text) and 8 MiB.
"""

from __future__ import annotations

import pytest
import trio

from benches.board import Board, Comparison
from benches.peers import TRANSPORTS, in_child, serving
from playhead.limits import GIB, MIB

RING_BYTES = 2 * MIB
"""The default: 2 x 8 in flight x 100 KiB, rounded up to a power of two."""

PAGE_TEXT_BYTES = 136_536
SLACK_BYTES = 8 * MIB


@pytest.mark.parametrize("how", ["save", "play"])
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_memory(transport: str, how: str, board: Board, smoke: bool) -> None:
    size = 8 * MIB if smoke else GIB
    with trio.fail_after(900):
        async with serving(transport, "--size", size, "--wave", "--mime", "audio/wav") as target:
            found = await in_child("memory", how, target)
    assert found["bytes"] == size
    allowed = RING_BYTES + float(found["in_flight_max"]) * PAGE_TEXT_BYTES + SLACK_BYTES
    board.add(
        Comparison(
            name=f"peak memory of {size // MIB} MiB, {transport}, {how}",
            unit="MiB",
            baseline_name="ring + pages in flight + 8 MiB",
            ours=[found["added_bytes"] / MIB],
            baseline=[allowed / MIB],
            at_most=1.0,
            notes=dict(found),
        )
    )
