"""Peak memory of a resource of 1 GiB that is saved or played, less the memory after connecting, in a fresh
process.

The bound is the ring's capacity, the pages in flight as received (base64 text), and 4 MiB.
"""

from __future__ import annotations

import pytest
import trio

from benches.board import Board, Comparison
from benches.peers import TRANSPORTS, in_child, serving
from playhead.limits import GIB, MIB

RING_BYTES = {"save": 8 * MIB, "play": 4 * MIB}
AHEAD_BYTES = {"save": 8 * MIB, "play": 3 * MIB}
"""Nothing is asked for beyond them, so no more is in flight."""

PAGE_TEXT_BYTES = MIB * 4 / 3
SLACK_BYTES = 4 * MIB


@pytest.mark.parametrize("how", ["save", "play"])
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_memory(transport: str, how: str, board: Board, smoke: bool) -> None:
    size = 8 * MIB if smoke else GIB
    with trio.fail_after(900):
        async with serving(transport, "--size", size, "--wave", "--mime", "audio/wav") as target:
            measurement = await in_child("memory", how, target)
    assert measurement["bytes"] == size
    in_flight = min(float(measurement["in_flight_max"]) * PAGE_TEXT_BYTES, AHEAD_BYTES[how] * 4 / 3)
    allowed = RING_BYTES[how] + in_flight + SLACK_BYTES
    board.add(
        Comparison(
            name=f"peak memory of {size // MIB} MiB, {transport}, {how}",
            unit="MiB",
            baseline_name="ring + pages in flight + 4 MiB",
            ours=[measurement["added_bytes"] / MIB],
            baseline=[allowed / MIB],
            at_most=1.0,
            notes=dict(measurement),
        )
    )
