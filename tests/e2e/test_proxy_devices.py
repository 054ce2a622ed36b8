"""Devices play from a proxy with `playhead play`: over its media port, and as an MCP server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2
import trio

from playhead import connect
from playhead.servers.proxy.result_audio import ADDRESS_META
from tests.e2e.command import AUDIO_SERVER, playhead, start
from tests.e2e.forked import Forked
from tests.servers.wave import wave_header

SONG_BYTES = 9_000_000
"""More than a device and its connection hold, so that each device still has to read when the proxy dies."""
PLAYED_BYTES = 1_000_000
SONGS = ("ember", "tide")


class Proxy(NamedTuple):
    process: Forked
    media_port: int
    url: str


@contextmanager
def proxy(library: Path, state: Path, *options: str, media_port: int = 0) -> Iterator[Proxy]:
    command = ["serve", "proxy", f"{AUDIO_SERVER} --library {library}", "--sink", "none", *options]
    command += ["--transport", "http", "--port", "0", "--media-port", str(media_port)]
    with start(command, XDG_STATE_HOME=str(state)) as process:
        page, url = (process.stderr.readline().decode().split()[-1] for _line in range(2))
        yield Proxy(process, urlsplit(page).port or 0, url)
        process.kill()


async def addresses_of(url: str) -> dict[str, str]:
    async with connect(url) as host:
        results = {song: await host.call_tool("musicPlayer", {"query": song}) for song in SONGS}
    return {song: result.raw["_meta"][ADDRESS_META][0] for song, result in results.items()}


def make_library(directory: Path, *, n_bytes: int) -> dict[str, bytes]:
    """Write the songs, and return their samples."""
    directory.mkdir()
    pcm = {song: (song.encode() * n_bytes)[: n_bytes // 4 * 4] for song in SONGS}
    for song, data in pcm.items():
        (directory / f"{song}.wav").write_bytes(wave_header(44 + len(data)) + data)
    return pcm


def test_a_device_plays_an_address_and_a_link_through_the_proxy(tmp_path: Path) -> None:
    pcm = make_library(library := tmp_path / "library", n_bytes=400_000)
    with proxy(library, tmp_path, "--keep-links", f"{AUDIO_SERVER} --library {library}") as served:
        address = trio.run(addresses_of, served.url)["ember"].rpartition("/")[2]
        for what in (["musicPlayer", "query=ember"], [f"playhead-media://{address}"]):
            heard = playhead("play", served.url, *what, "--sink", "pcm:-")
            assert (heard.code, heard.stdout) == (0, pcm["ember"]), heard.stderr


def test_devices_play_on_when_the_proxy_is_killed_and_started_again(tmp_path: Path) -> None:
    pcm = make_library(library := tmp_path / "library", n_bytes=SONG_BYTES)
    with ThreadPoolExecutor() as threads, ExitStack() as stack:
        with proxy(library, tmp_path) as first:
            addresses = trio.run(addresses_of, first.url)
            devices = [
                (song, stack.enter_context(start(["play", addresses[song], "--sink", "pcm:-"])))
                for song in (*SONGS, SONGS[0])
            ]
            played = [*threads.map(lambda each: each[1].stdout.read(PLAYED_BYTES), devices)]
            assert [len(data) for data in played] == [PLAYED_BYTES] * len(devices)
        with proxy(library, tmp_path, media_port=first.media_port):
            rest = [*threads.map(lambda each: each[1].stdout.read(), devices)]
            for (song, device), begin, end in zip(devices, played, rest, strict=True):
                assert device.wait() == 0, device.stderr.read()
                assert begin + end == pcm[song]
            for song, address in addresses.items():
                assert httpx2.get(address, trust_env=False).content[44:] == pcm[song]
