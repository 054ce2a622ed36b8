"""Play for long, with a connection of its own for each play: `python -m benches.soak [--plays N]`.

The example audio server runs in a process of its own, over HTTP. Every play connects, calls the tool, plays
the piece to its end (or, each fourth one, seeks in it and is stopped), and disconnects. What a process holds
must not grow with the plays: after each round of 25 a line says what it is. Status 1 if threads, file
descriptors or more than 32 MiB were added since the second round, or if a play ends early.
"""

from __future__ import annotations

import argparse
import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import PIPE, Popen

import psutil
import trio

import playhead
from playhead.limits import MIB
from playhead.playback import NullSink, Player

ROUND = 25
GROWTH_BYTES = 32 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Memory, threads and file descriptors of this process, and the memory of its server."""

    bytes: int
    server_bytes: int
    threads: int
    file_descriptors: int

    def __str__(self) -> str:
        return (
            f"{self.bytes / MIB:.1f} MiB, server {self.server_bytes / MIB:.1f} MiB, {self.threads} threads,"
            f" {self.file_descriptors} file descriptors"
        )


@contextmanager
def audio_server() -> Iterator[tuple[str, int]]:
    """The example audio server over HTTP: its URL and its process id."""
    command = (sys.executable, "-m", "playhead", "serve", "audio", "--mixer", "memory")
    with Popen([*command, "--transport", "http", "--port", "0"], stderr=PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().rpartition(" ")[2].strip()
            yield url, process.pid
        finally:
            process.terminate()


def held(server: int) -> Held:
    gc.collect()  # a pipe that its error leads back to keeps its event until then
    own = psutil.Process()
    return Held(
        bytes=own.memory_info().rss,
        server_bytes=psutil.Process(server).memory_info().rss,
        threads=threading.active_count(),
        file_descriptors=own.num_fds(),
    )


async def play(url: str, *, stops: bool) -> float:
    """Play the piece over a connection of its own, and return the seconds of audio that were played."""
    async with playhead.connect(url) as session:
        result = await session.call_tool("musicPlayer", {"query": "first light"})
        sink = NullSink(real_time=False)
        async with Player(sink) as player:
            await player.play(result.media[0])
            if stops:
                await player.seek(20.0)
                await player.stop()
            else:
                await player.wait_finished()
            return player.snapshot().position_seconds


async def soak(plays: int) -> int:
    began, seconds, settled = time.monotonic(), 0.0, None
    with audio_server() as (url, server):
        for number in range(1, plays + 1):
            with trio.fail_after(300):
                position = await play(url, stops=number % 4 == 0)
            seconds += position
            if number % 4 and position < 60:
                print(f"play {number} ended after {position:.1f} s of audio")
                return 1
            if number % ROUND == 0:
                now = held(server)
                if number == 2 * ROUND:
                    settled = now
                took = time.monotonic() - began
                print(f"{number} plays, {seconds / 3600:.2f} h of audio, {took:.0f} s: {now}", flush=True)
    if settled is None:
        return 0
    grown = (
        now.threads > settled.threads
        or now.file_descriptors > settled.file_descriptors
        or now.bytes > settled.bytes + GROWTH_BYTES
    )
    return int(grown)


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m benches.soak", description=__doc__)
    arguments.add_argument("--plays", type=int, default=1000)
    return trio.run(soak, arguments.parse_args().plays)


if __name__ == "__main__":
    raise SystemExit(main())
