"""64 sessions in one process, each playing 72 s of 192 kbit/s MP3 in real time into a null device.

One other process serves them all. No underrun is allowed; the table shows CPU and memory per stream.
"""

from __future__ import annotations

import trio

from benches.board import Board, Comparison
from benches.music import encoded_music
from benches.peers import in_child, serving
from playhead.limits import MIB


async def test_many_streams(board: Board, smoke: bool) -> None:
    streams, seconds = (8, 3.0) if smoke else (64, 120.0)
    with trio.fail_after(300):
        async with serving("http", "--file", encoded_music(), "--mime", "audio/mpeg") as target:
            measurement = await in_child("many", streams, seconds, target)
    assert measurement["played_seconds_min"] >= (1 if smoke else 60)
    board.add(
        Comparison(
            name=f"underruns of {streams} streams",
            unit="count",
            baseline_name="1",
            ours=[measurement["underruns"]],
            baseline=[1.0],
            at_most=0.0,
            notes=dict(measurement),
        )
    )
    cpu = measurement["cpu_seconds"] / measurement["wall_seconds"] / streams
    memory = measurement["added_bytes"] / streams / MIB
    for name, unit, value, baseline_name in (
        (f"CPU a stream, {streams} streams", "% of a core", cpu * 100, "1 %"),
        (f"memory a stream, {streams} streams", "MiB", memory, "1 MiB"),
    ):
        board.add(Comparison(name=name, unit=unit, baseline_name=baseline_name, ours=[value], baseline=[1.0]))
