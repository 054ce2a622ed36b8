"""Start and seeks at a server that answers one read at a time, in 333 ms each, whatever its length.

    python -m benches.serial_server                 # about a minute
    python -m benches.serial_server --rounds 5

It serves an MP3 of 60 minutes at 128 and at 320 kbit/s, over stdio. The start is the time from the link to
the first audio at the sink. A seek goes 20 minutes on, while the ring fills and when it is full.

The exit status is 1 if a median misses its bound.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import trio

from benches.seeks import seek_seconds
from playhead.client import connect
from playhead.playback import Player
from tests.unit.playback.test_player_seeking import SteppedSink

PAGE_SECONDS = 0.333
MINUTES = 60
BOUNDS = {128: (0.5, 1.1, 0.8), 320: (0.9, 1.1, 0.8)}
"""The bounds by bit rate: start, seek while the ring fills, seek in a full ring."""
FRAME_HEADERS = {128: b"\xff\xfb\x90\xc4", 320: b"\xff\xfb\xe0\xc4"}
"""MPEG-1 layer III at 44.1 kHz, joint stereo, without a checksum."""


def silence(kilobits: int) -> bytes:
    """An MP3 of so many frames of silence, each with an empty bit reservoir; a frame has 1152 samples."""
    frame_bytes = 144 * kilobits * 1000 // 44_100
    frame = FRAME_HEADERS[kilobits].ljust(frame_bytes, b"\0")
    return frame * (MINUTES * 60 * 44_100 // 1152)


async def measure(kilobits: int, path: Path) -> tuple[float, float, float]:
    command = [sys.executable, "-m", "tests.servers.dialects", "path-start-end", "--file", str(path)]
    async with connect([*command, "--delay", str(PAGE_SECONDS)]) as session:
        (link,) = (await session.call_tool("song")).links
        sink = SteppedSink()
        async with Player(sink) as player:
            begin = time.perf_counter()
            await player.play(link)
            await sink.heard(1)
            start = time.perf_counter() - begin
            await trio.sleep(3 - start)
            filling = await seek_seconds(player, sink, 20 * 60.0)
            await trio.sleep(20)  # 3 MiB in pages that grow to 1 MiB
            full = await seek_seconds(player, sink, 40 * 60.0)
    return start, filling, full


async def main(rounds: int) -> int:
    missed = 0
    with tempfile.TemporaryDirectory() as directory:
        for kilobits, bounds in BOUNDS.items():
            path = Path(directory) / f"{kilobits}.mp3"
            path.write_bytes(silence(kilobits))
            runs = [await measure(kilobits, path) for _ in range(rounds)]
            for name, bound, seconds in zip(
                ("start", "seek, filling", "seek, full"), bounds, zip(*runs, strict=True), strict=True
            ):
                median = statistics.median(seconds)
                missed += median > bound
                spread = f"{min(seconds):.3f} to {max(seconds):.3f}"
                print(f"{kilobits} kbit/s  {name:14} {median:.3f} s (bound {bound} s; {spread})")
    return 1 if missed else 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=1)
    sys.exit(trio.run(main, arguments.parse_args().rounds))
