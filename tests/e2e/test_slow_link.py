"""Music through a slow link into a wave file: sample for sample what a local decode gives."""

from __future__ import annotations

import hashlib
import wave
from pathlib import Path

import miniaudio
import pytest

from playhead.client import connect
from playhead.playback import NullSink, Player, WaveSink
from playhead.testing.links import Link
from tests.local_vorbis import decode_vorbis
from tests.servers.launch import behind_link, pages_command
from tests.unit.playback.test_av_decoder import KINDS, encoded, whole

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

    if name.endswith(".ogg"):
        local = decode_vorbis((DATA / name).read_bytes())
    else:
        about = miniaudio.get_file_info(str(DATA / name))
        rate_hz, channels = about.sample_rate, about.nchannels
        sound = miniaudio.decode_file(str(DATA / name), nchannels=channels, sample_rate=rate_hz)
        local = rate_hz, channels, sound.samples.tobytes()
    with wave.open(str(saved)) as heard:
        assert (heard.getframerate(), heard.getnchannels(), heard.readframes(heard.getnframes())) == local


@pytest.mark.slow("waits for a link of 384 KiB/s, with a server process for each format")
@pytest.mark.parametrize("kind", KINDS)
async def test_the_pcm_of_the_extra_formats_equals_ffmpegs_decode(kind: str, tmp_path: Path) -> None:
    (tmp_path / "music").write_bytes(encoded(kind))
    sink = NullSink(real_time=False)
    async with (
        behind_link(
            Link(rate_bytes_per_second=384 * KIB, latency_seconds=0.02),
            "http",
            pages_command("http", "--file", tmp_path / "music", "--mime", "application/octet-stream"),
        ) as target,
        connect(target) as session,
        Player(sink) as player,
    ):
        (link,) = (await session.call_tool("link")).links
        await player.play(link)
        await player.wait_finished()
    assert sink.report is not None
    assert sink.report.sha256 == hashlib.sha256(whole(kind)).hexdigest()
