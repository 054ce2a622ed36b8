"""Time from a seek to the first new audio at the sink, for each format and latency of the server.

    python -m benches.seeks                         # about two minutes
    python -m benches.seeks --only cbr --rounds 5

Far seeks leave the buffered bytes, near seeks stay inside them. The server delays each answer by the latency.
A round trip is the latency and a tool call on the same session, measured between two seeks. The bound of a
far seek is 50 ms and one round trip for WAV, MP3 and M4A, three for FLAC and Ogg; that of a near seek is 20
ms.

A stream holds 512 KiB for far seeks, so that they leave it. Near seeks use a stream with the defaults,
because 1.25 s of decoded audio would leave too few of those bytes behind the playhead.

The exit status is 1 if a median misses its bound.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import trio

from benches.peers import serving
from playhead.client import connect
from playhead.playback import Player
from playhead.playback.pcm_buffer import DECODED_SECONDS, SEEK_FADE_SECONDS
from playhead.stream.options import StreamOptions
from playhead.stream.source import Playable, Reader
from tests.unit.playback.test_av_decoder import SECONDS as FFMPEG_SECONDS
from tests.unit.playback.test_av_decoder import encoded as encoded_by_ffmpeg
from tests.unit.playback.test_player_seeking import SteppedSink
from tests.unit.playback.test_seeking import SECONDS, encoded

MIME_TYPES = {"wav": "audio/wav", "cbr": "audio/mpeg", "vbr-xing": "audio/mpeg", "flac": "audio/flac"}
MIME_TYPES |= {"vorbis": "audio/ogg", "opus": "audio/ogg", "m4a, index first": "audio/mp4"}
ROUND_TRIPS = {"flac": 3, "vorbis": 3, "opus": 3}
ADDED_SECONDS = 0.05
IN_HAND_SECONDS = 0.02


class SmallRing:
    """A link whose stream has little room."""

    def __init__(self, link: Playable) -> None:
        self.title, self.mime_type, self.uri = link.title, link.mime_type, link.uri
        self.size_bytes = link.size_bytes
        self._link = link

    def open(self, options: StreamOptions | None = None) -> AbstractAsyncContextManager[Reader]:
        return self._link.open(StreamOptions(capacity_bytes=512 << 10))


def is_by_ffmpeg(kind: str) -> bool:
    return kind.startswith(("opus", "m4a"))


def data_of(kind: str) -> bytes:
    return encoded_by_ffmpeg(kind) if is_by_ffmpeg(kind) else encoded(kind)


async def seek_seconds(player: Player, sink: SteppedSink, to: float) -> float:
    begin = time.perf_counter()
    await player.seek(to)
    # The first audio is the old one's fade, if it was heard; a frame more is new.
    await sink.heard(int(SEEK_FADE_SECONDS * sink.buffer.format.rate_hz) + 1)
    return time.perf_counter() - begin


async def measure(
    kind: str, delay_seconds: float, rounds: int
) -> tuple[list[float], list[float], list[float]]:
    """Seconds of far seeks, of seeks inside the bytes in hand, and of round trips."""
    far: list[float] = []
    near: list[float] = []
    trips: list[float] = []
    draw = random.Random(3)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "music"
        path.write_bytes(data_of(kind))
        sink, seconds = SteppedSink(), FFMPEG_SECONDS if is_by_ffmpeg(kind) else SECONDS
        options = ("--file", path, "--mime", MIME_TYPES[kind], "--delay", delay_seconds)
        async with serving("http", *options) as target, connect(target) as session:
            (link,) = (await session.call_tool("link")).links
            async with Player(sink) as player:
                await player.play(SmallRing(link))
                await sink.heard(1000)
                for number in range(rounds):
                    begin = time.perf_counter()
                    await session.call_tool("link")
                    trips.append(time.perf_counter() - begin + delay_seconds)
                    to = draw.uniform(0, 5) + (0 if number % 2 else seconds - 10)
                    far.append(await seek_seconds(player, sink, to))
                    await sink.heard(4000)
            sink = SteppedSink()
            async with Player(sink) as player:
                await player.play(link)
                for _ in range(rounds):
                    await sink.heard(4000)
                    # The bytes after the place are in hand too, as many as a device starts with.
                    while player.snapshot().buffered_seconds < DECODED_SECONDS:  # noqa: ASYNC110  # no event says it
                        await trio.sleep(0.005)
                    near.append(await seek_seconds(player, sink, player.snapshot().position_seconds - 0.06))
    return far, near, trips


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=MIME_TYPES)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    missed = 0
    print(f"{'format':>18} {'latency':>8} {'trip':>7} {'far':>7} {'bound':>7} {'in hand':>8}   (medians, ms)")
    for kind in [options.only] if options.only else MIME_TYPES:
        for delay_ms in (0, 20, 100):
            samples = trio.run(measure, kind, delay_ms / 1000, options.rounds)
            far, near, trip = (statistics.median(each) for each in samples)
            bound = ROUND_TRIPS.get(kind, 1) * trip + ADDED_SECONDS
            is_kept = far <= bound and near <= IN_HAND_SECONDS
            missed += not is_kept
            row = " ".join(f"{1000 * each:7.1f}" for each in (trip, far, bound, near))
            print(f"{kind:>18} {delay_ms:>5} ms {row}{'' if is_kept else '   MISSED'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
