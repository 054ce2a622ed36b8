"""Music through a slow link into a wave file: sample for sample what a local decode gives."""

from __future__ import annotations

import wave
from pathlib import Path

import miniaudio
import pytest

from playhead.client import connect
from playhead.playback import Player, WaveSink
from playhead.testing.links import Link
from tests.servers.launch import behind_link, pages_command

DATA = Path(__file__).parents[1] / "data"
KIB = 1024
FILES = {
    "tagged.mp3": "audio/mpeg",  # ID3v2 with a cover picture, ID3v1, gapless header
    "gapless.mp3": "audio/mpeg",
    "bare.mp3": "audio/mpeg",
    "chord.flac": "audio/flac",
    "chord.wav": "audio/wav",
    "chord.ogg": "audio/ogg",
}


SLOW = pytest.mark.slow("waits for a link of 96 KiB/s, with a server process for each of 12 rows")
"""For all but one file."""


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "tagged.mp3" else SLOW) for name in FILES]
)
async def test_the_pcm_equals_a_local_decode(name: str, transport: str, tmp_path: Path) -> None:
    saved = tmp_path / "heard.wav"
    async with (
        behind_link(
            Link(rate_bytes_per_second=96 * KIB, latency_seconds=0.02),
            transport,
            pages_command(transport, "--file", DATA / name, "--mime", FILES[name]),
        ) as target,
        connect(target) as session,
        Player(WaveSink(saved)) as player,
    ):
        (link,) = (await session.call_tool("link")).links
        await player.play(link)
        await player.wait_finished()

    about = miniaudio.get_file_info(str(DATA / name))
    local = miniaudio.decode_file(str(DATA / name), nchannels=about.nchannels, sample_rate=about.sample_rate)
    with wave.open(str(saved)) as heard:
        assert (heard.getframerate(), heard.getnchannels()) == (local.sample_rate, local.nchannels)
        assert heard.readframes(heard.getnframes()) == local.samples.tobytes()
