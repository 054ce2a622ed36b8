"""Long runs, to find leaks: `python -m benches.soak [--plays N | --hours N | --skips N]`.

`--plays`: the example audio server runs in a process of its own, over HTTP. Every play connects, calls the
tool, plays the piece to its end (every fourth one seeks in it and is stopped), and disconnects. After each
round of 25 a line shows the resources of both processes.

`--hours`: one player plays for N hours of a simulated clock, from a server in this process: a piece of 24
minutes again and again, with a seek, a pause and a server that is silent for ten seconds in each quarter of
an hour. A page takes 80 ms. After each hour a line shows the resources of the process.

`--skips`: one player skips N items, each as soon as its format is known, first from a file and then from the
example audio server, without a garbage collection. After each fifty a line shows the resources of the
process.

The exit status is 1 if threads, file descriptors or more than 32 MiB were added since the second line, if a
play ends early, or if more than 5 % of the hours were not heard.
"""

from __future__ import annotations

import argparse
import gc
import math
import threading
import time
from dataclasses import dataclass

import psutil
import trio
import trio.testing
from mcp.server.mcpserver import MCPServer
from trio.testing import MockClock

import playhead
from benches.example_server import audio_server
from benches.music import encoded_music
from playhead.limits import MIB
from playhead.playback import AudioFrame, ClearFrames, FileMedia, FramesSink, NullSink, Player, Repeat
from playhead.servers.ranged_resource import ranged_resource

ROUND = 25
SKIPS = 50
GROWTH_BYTES = 32 * MIB
FRAME_MS = 250
"""Frames of the simulated hours: two of them are less than the player decodes ahead."""
QUARTER_SECONDS = 900.0
DISTURBED_SECONDS = 10.0
IN_HAND_SECONDS = 0.5
"""Decoded audio with which the simulated clock goes on at once: two frames."""
DECODING_SECONDS = 0.02
"""Real time that a decoder with less in hand has for more. Then it waits for the server, which waits for the
clock, which goes on by `STEP_SECONDS`."""
STEP_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Memory, threads and file descriptors of this process, and the memory of its server."""

    bytes: int
    server_bytes: int
    threads: int
    file_descriptors: int

    def __str__(self) -> str:
        server = f", server {self.server_bytes / MIB:.1f} MiB" if self.server_bytes else ""
        return (
            f"{self.bytes / MIB:.1f} MiB{server}, {self.threads} threads,"
            f" {self.file_descriptors} file descriptors"
        )

    def has_grown_since(self, settled: Held) -> bool:
        return (
            self.threads > settled.threads
            or self.file_descriptors > settled.file_descriptors
            or self.bytes > settled.bytes + GROWTH_BYTES
        )


def held(server: int | None = None, *, collects: bool = True) -> Held:
    if collects:
        gc.collect()  # a pipe that its error leads back to keeps its event until then
    own = psutil.Process()
    return Held(
        bytes=own.memory_info().rss,
        server_bytes=0 if server is None else psutil.Process(server).memory_info().rss,
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
    return int(settled is not None and now.has_grown_since(settled))


class SilentServer:
    """A server with one long piece, whose answers wait until `silent_until` of trio's clock."""

    PIECE = "music://piece.mp3"
    PAGE_SECONDS = 0.08

    def __init__(self) -> None:
        self.silent_until = -math.inf
        self._data = encoded_music(times=20).read_bytes()
        self.server: MCPServer = MCPServer("soak", log_level="CRITICAL")
        ranged_resource(self.server, self.PIECE, self._read)

    async def _read(self, start: int, end: int) -> bytes:
        await trio.sleep_until(max(trio.current_time() + self.PAGE_SECONDS, self.silent_until))
        return self._data[start:end]


async def disturb(player: Player, server: SilentServer) -> None:
    """A seek, a silent server and a pause in each quarter of an hour."""
    while True:
        await trio.sleep(QUARTER_SECONDS / 3)
        await player.seek(700.0)
        await trio.sleep(QUARTER_SECONDS / 3)
        server.silent_until = trio.current_time() + DISTURBED_SECONDS
        await trio.sleep(QUARTER_SECONDS / 3 - DISTURBED_SECONDS)
        player.hold("soak")
        await trio.sleep(DISTURBED_SECONDS)
        player.release("soak")


async def advance(clock: MockClock, player: Player) -> None:
    """Move the clock whenever every task waits for it. trio does not see the decoder's thread at work."""
    while True:
        await trio.testing.wait_all_tasks_blocked()
        waited = time.monotonic() + DECODING_SECONDS
        while is_dry(player) and time.monotonic() < waited:
            await trio.to_thread.run_sync(time.sleep, 0.0005)
        seconds = trio.lowlevel.current_statistics().seconds_to_next_deadline
        clock.jump(max(0.0, min(seconds, STEP_SECONDS) if is_dry(player) else seconds))


def is_dry(player: Player) -> bool:
    state = player.snapshot()
    return not state.holds and state.buffered_seconds < IN_HAND_SECONDS


async def simulate(hours: int, clock: MockClock) -> int:
    server, began, heard_seconds, settled = SilentServer(), time.monotonic(), 0.0, None

    async def hear(event: AudioFrame | ClearFrames) -> None:
        nonlocal heard_seconds
        if isinstance(event, AudioFrame):
            heard_seconds += FRAME_MS / 1000

    async with playhead.connect(server.server) as session, trio.open_nursery() as nursery:
        sink = FramesSink(hear, frame_ms=FRAME_MS, rate_hz=44_100, channels=2)
        async with Player(sink) as player:
            nursery.start_soon(advance, clock, player)
            await player.play(session.media(server.PIECE))
            player.set_repeat(Repeat.ALL)
            nursery.start_soon(disturb, player, server)
            for hour in range(1, hours + 1):
                await trio.sleep(3600)
                now = held()
                if hour == 2:
                    settled = now
                took = time.monotonic() - began
                print(f"{hour} h, {heard_seconds / 3600:.2f} h heard, {took:.0f} s: {now}", flush=True)
            nursery.cancel_scope.cancel()
    if heard_seconds < 0.95 * 3600 * hours:
        return 1
    return int(settled is not None and now.has_grown_since(settled))


async def skip(skips: int) -> int:
    grown = False
    with audio_server() as (url, _):
        async with playhead.connect(url) as session, Player(NullSink()) as player:
            link = (await session.call_tool("musicPlayer", {"query": "first light"})).media[0]
            for name, media in (("file", FileMedia(encoded_music(times=20))), ("stream", link)):
                await player.play(media)
                gc.collect()
                gc.disable()
                settled: Held | None = None
                for number in range(1, skips + 1):
                    await player.enqueue(media)
                    events = player.events()
                    await player.next()
                    while player.snapshot().format is None:
                        await events.receive()
                    events.close()
                    if number % SKIPS == 0:
                        now = held(collects=False)
                        settled = settled or now
                        grown |= now.has_grown_since(settled)
                        added = (now.bytes - settled.bytes) / MIB
                        print(f"{number} skips of a {name}: {now}, {added:+.1f} MiB", flush=True)
    return int(grown)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benches.soak", description=__doc__)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--plays", type=int, default=1000)
    kind.add_argument("--hours", type=int)
    kind.add_argument("--skips", type=int)
    arguments = parser.parse_args()
    if arguments.skips is not None:
        return trio.run(skip, arguments.skips)
    if arguments.hours is None:
        return trio.run(soak, arguments.plays)
    clock = MockClock()
    return trio.run(simulate, arguments.hours, clock, clock=clock)


if __name__ == "__main__":
    raise SystemExit(main())
