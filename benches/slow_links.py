"""`python -m benches.slow_links`: stalls and seconds to first audio of the real player over slow links.

Each row is a server process behind a link that carries the music a multiple ("3x") as fast as it plays,
counted after base64: the link itself carries 4/3 of that. Rows run side by side, each as long as its music.
`--only WORDS` runs the rows whose names contain the words. The exit status is 1 if a row stalls, or starts
late at 3x and above.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import tempfile
import wave
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import lameenc
import soundfile
import trio

from playhead.client import connect
from playhead.playback import NullSink, Player
from playhead.testing.links import Link
from tests.servers.launch import behind_link, pages_command

SECONDS: Final = 20
RATIOS: Final = (1.15, 1.5, 3.0, 10.0)
LATENCY_SECONDS: Final = 0.02
BASE64: Final = 4 / 3
START_SECONDS: Final = 0.5
"""Audio in hand when a link of 3x and above lets playing start."""
SLACK_SECONDS: Final = 0.6
"""Round trips, the decoder's own buffer (16 KiB of mp3), and a busy machine's pauses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Music:
    name: str
    mime_type: str
    data: bytes

    @property
    def bytes_per_second(self) -> float:
        return len(self.data) / SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    music: Music
    transport: str
    ratio: float

    @property
    def name(self) -> str:
        return f"{self.music.name} {self.transport} {self.ratio:g}x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    underruns: int
    first_audio_seconds: float | None
    error: str = ""


def noise(rate_hz: int, seconds: int) -> array[int]:
    """16-bit stereo that no encoder makes small."""
    return array("h", random.Random(7).randbytes(4 * rate_hz * seconds))


def wave_file(rate_hz: int, sample_bytes: int) -> bytes:
    with io.BytesIO() as file:
        with wave.open(file, "wb") as writer:
            writer.setnchannels(2)
            writer.setsampwidth(sample_bytes)
            writer.setframerate(rate_hz)
            writer.writeframes(random.Random(7).randbytes(2 * sample_bytes * rate_hz * SECONDS))
        return file.getvalue()


def music() -> Sequence[Music]:
    encoder = lameenc.Encoder()
    encoder.set_bit_rate(320)
    encoder.set_in_sample_rate(44_100)
    encoder.set_channels(2)
    encoder.silence()
    mp3 = bytes(encoder.encode(noise(44_100, SECONDS).tobytes()) + encoder.flush())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "noise.flac"
        # Half the loudness: noise at full scale does not compress at all.
        samples = [value // 2 for value in noise(44_100, SECONDS)]
        frames = [samples[at : at + 2] for at in range(0, len(samples), 2)]
        soundfile.write(path, [[left / 32768, right / 32768] for left, right in frames], 44_100, "PCM_16")
        flac = path.read_bytes()
    return (
        Music(name="mp3 320", mime_type="audio/mpeg", data=mp3),
        Music(name="CD WAV", mime_type="audio/wav", data=wave_file(44_100, 2)),
        Music(name="96/24 WAV", mime_type="audio/wav", data=wave_file(96_000, 3)),
        Music(name="FLAC", mime_type="audio/flac", data=flac),
    )


async def hear(row: Row, path: Path) -> Heard:
    rate = row.music.bytes_per_second * row.ratio * BASE64
    link = Link(rate_bytes_per_second=rate, latency_seconds=LATENCY_SECONDS)
    command = pages_command(row.transport, "--file", path, "--mime", row.music.mime_type)
    async with (
        behind_link(link, row.transport, command) as target,
        connect(target) as session,
        Player(NullSink(real_time=True)) as player,
    ):
        (music_link,) = (await session.call_tool("link")).links
        await player.play(music_link)
        await player.wait_finished()
        state = player.snapshot()
    return Heard(underruns=state.underruns, first_audio_seconds=state.first_audio_seconds)


def is_right(row: Row, heard: Heard) -> bool:
    first = heard.first_audio_seconds
    if heard.error or heard.underruns or first is None:
        return False
    return row.ratio < 3 or first <= START_SECONDS / row.ratio + SLACK_SECONDS


async def run(rows: Sequence[Row], paths: dict[str, Path], *, at_once: int) -> bool:
    limit = trio.CapacityLimiter(at_once)
    outcomes: dict[str, Heard] = {}

    async def one(row: Row) -> None:
        async with limit:
            outcomes[row.name] = await hear(row, paths[row.music.name])

    async with trio.open_nursery() as nursery:
        for row in rows:
            nursery.start_soon(one, row)
    print("| row | underruns | first audio, s | |\n|---|---|---|---|")
    for row in rows:
        heard = outcomes[row.name]
        verdict = "" if is_right(row, heard) else "**wrong**"
        print(f"| {row.name} | {heard.underruns} | {heard.first_audio_seconds or 0:.2f} | {verdict} |")
    return all(is_right(row, outcomes[row.name]) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.slow_links", description=__doc__)
    parser.add_argument("--only", default="", help="Run the rows whose names hold these words.")
    parser.add_argument("--at-once", type=int, default=3, help="Rows side by side (default: 3).")
    chosen = parser.parse_args()
    rows = [
        Row(music=piece, transport=transport, ratio=ratio)
        for piece in music()
        for transport in ("stdio", "http")
        for ratio in RATIOS
    ]
    rows = [row for row in rows if chosen.only in row.name]
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for piece in {row.music.name: row.music for row in rows}.values():
            paths[piece.name] = Path(folder) / piece.name.replace(" ", "-").replace("/", "-")
            paths[piece.name].write_bytes(piece.data)
        everything_right = trio.run(lambda: run(rows, paths, at_once=chosen.at_once))
    sys.exit(not everything_right)


if __name__ == "__main__":
    main()
