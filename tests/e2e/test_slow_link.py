"""Music through a slow link into a wave file: sample for sample what a local decode gives."""

from __future__ import annotations

import re
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import miniaudio
import pytest

from playhead.client import connect
from playhead.playback import Player, WaveSink
from playhead.testing.links import Link, slow_command, slow_tcp
from tests.servers.launch import http_process, pages_command

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


@asynccontextmanager
async def far_away(transport: str, *options: object) -> AsyncIterator[str | list[str]]:
    link = Link(rate_bytes_per_second=96 * KIB, latency_seconds=0.02)
    command = pages_command(transport, *options)
    if transport == "stdio":
        yield slow_command(link, command)
        return
    async with http_process(command) as url:
        place = re.search(r"//([^/:]+):(\d+)/", url)
        assert place is not None
        async with slow_tcp(link, host=place.group(1), port=int(place.group(2))) as port:
            yield f"http://127.0.0.1:{port}/mcp"


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("name", FILES)
async def test_the_pcm_equals_a_local_decode(name: str, transport: str, tmp_path: Path) -> None:
    saved = tmp_path / "heard.wav"
    async with (
        far_away(transport, "--file", DATA / name, "--mime", FILES[name]) as target,
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
