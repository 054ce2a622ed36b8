"""Measurements in a separate process: peak memory of one stream, and many streams at once.

    python -m benches.children memory save TARGET…          TARGET: a URL, or a command line
    python -m benches.children memory play TARGET…
    python -m benches.children many 64 SECONDS TARGET…

Prints one JSON object. The process is fresh, so all of its memory belongs to the measured work.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from benches.workers import Target, cpu_seconds, reset_peak, status_bytes
from playhead.client import connect
from playhead.playback.player import Player
from playhead.playback.sinks.null import NullSink
from playhead.stream.options import StreamOptions

IN_FLIGHT_MAX = 16
"""The reads in flight of a player's stream; up to 64 if the server caps its pages."""


def target_of(arguments: Sequence[str]) -> Target:
    return arguments[0] if arguments[0].startswith(("http", "ws")) else list(arguments)


async def memory(how: str, target: Target) -> dict[str, object]:
    """Peak memory of one whole resource, minus what there was once connected."""
    async with connect(target) as session:
        (link,) = (await session.call_tool("link")).links
        gc.collect()
        before = status_bytes("VmRSS")
        reset_peak()
        started = time.perf_counter()
        if how == "save":
            with tempfile.TemporaryDirectory() as folder:
                async with session.open(link, options=StreamOptions(profile="save")) as stream:
                    statistics = await stream.save(Path(folder) / "saved")
            n_bytes, in_flight_max = statistics.bytes, statistics.in_flight_max
        else:
            async with Player(NullSink(real_time=False)) as player:
                await player.play(link)
                await player.wait_finished()
                n_bytes, in_flight_max = link.size_bytes or 0, IN_FLIGHT_MAX
        spent = time.perf_counter() - started
    return {
        "bytes": n_bytes,
        "in_flight_max": in_flight_max,
        "connected_bytes": before,
        "added_bytes": status_bytes("VmHWM") - before,
        "seconds": spent,
    }


async def many(streams: int, seconds: float, target: Target) -> dict[str, object]:
    """`streams` sessions, each playing into its own real-time null device, at most for `seconds`."""
    underruns: list[int] = []
    played: list[float] = []
    connected: list[int] = []
    start = trio.Event()

    async def one() -> None:
        async with connect(target) as session:
            (link,) = (await session.call_tool("link")).links
            connected.append(1)
            await start.wait()
            async with Player(NullSink(real_time=True)) as player:
                await player.play(link)
                with trio.move_on_after(seconds):
                    await player.wait_finished()
                snapshot = player.snapshot()
                underruns.append(snapshot.underruns)
                played.append(snapshot.position_seconds)

    async with trio.open_nursery() as nursery:
        for _ in range(streams):
            nursery.start_soon(one)
        while len(connected) < streams:  # noqa: ASYNC110 - a benchmark's set-up, not measured
            await trio.sleep(0.05)
        before, cpu, started = status_bytes("VmRSS"), cpu_seconds(), time.perf_counter()
        reset_peak()
        start.set()
    wall = time.perf_counter() - started
    return {
        "streams": streams,
        "underruns": sum(underruns),
        "played_seconds_min": min(played),
        "wall_seconds": wall,
        "cpu_seconds": cpu_seconds() - cpu,
        "connected_bytes": before,
        "added_bytes": status_bytes("VmHWM") - before,
    }


def main(arguments: list[str]) -> None:
    if arguments[0] == "memory":
        work = partial(memory, arguments[1], target_of(arguments[2:]))
    else:
        work = partial(many, int(arguments[1]), float(arguments[2]), target_of(arguments[3:]))
    print(json.dumps(trio.run(work)))


if __name__ == "__main__":
    main(sys.argv[1:])
