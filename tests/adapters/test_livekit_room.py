"""The sink in a room of a real LiveKit server: what a second participant hears, through Opus and WebRTC."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

import playhead
from playhead.playback import FileMedia, Player
from playhead.portals import AsyncioPortal
from tests.adapters.install import LIVEKIT_SERVER
from tests.servers.loopback import free_port
from tests.servers.wave import write_wave

pytest.importorskip("livekit.agents", reason="needs `make extra NAME=adapters`")
if not LIVEKIT_SERVER.is_file():
    pytest.skip(
        "needs a LiveKit server, which `make extra NAME=adapters` builds with Go", allow_module_level=True
    )

import numpy as np
from livekit import api, rtc
from livekit.agents import BackgroundAudioPlayer
from numpy.typing import NDArray

from playhead.adapters.livekit import RATE_HZ, LiveKitSink

Samples = NDArray[np.float64]

KEY, SECRET = "playhead", "a secret of at least 32 characters"
LOUD = 1000
"""Between the noise of the codec and the music, whose level is 6000."""
SEGMENT = RATE_HZ // 5
"""Part of the source that is looked for in one piece: WebRTC stretches audio by milliseconds now and then."""
PLAYS = 5


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a server on loopback, without any other address."""
    port, tcp, udp = (free_port(kind) for kind in (socket.SOCK_STREAM, socket.SOCK_STREAM, socket.SOCK_DGRAM))
    config = f"""
port: {port}
bind_addresses: [127.0.0.1]
rtc: {{tcp_port: {tcp}, udp_port: {udp}, node_ip: 127.0.0.1, enable_loopback_candidate: true}}
keys: {{{KEY}: {SECRET}}}
logging: {{level: error}}
"""
    with subprocess.Popen([LIVEKIT_SERVER, "--config-body", config]) as process:
        try:
            while not answers(f"http://127.0.0.1:{port}/"):
                assert process.poll() is None, "the server has ended"
                time.sleep(0.05)  # it tells nobody when it listens
            yield f"ws://127.0.0.1:{port}"
        finally:
            process.terminate()


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except URLError:
        return False


async def join(room: rtc.Room, url: str, name: str) -> None:
    token = api.AccessToken(KEY, SECRET).with_identity(name)
    await room.connect(url, token.with_grants(api.VideoGrants(room_join=True, room="music")).to_jwt())


class Listener:
    """The second participant: everything that it hears, and when."""

    def __init__(self, room: rtc.Room) -> None:
        self.blocks: list[tuple[float, Samples]] = []
        self._heard = asyncio.Event()
        self._listening: list[asyncio.Task[None]] = []
        room.on("track_subscribed", self._subscribe)

    def _subscribe(self, track: rtc.Track, *_: object) -> None:
        self._listening.append(asyncio.create_task(self._listen(track)))

    async def _listen(self, track: rtc.Track) -> None:
        async for event in rtc.AudioStream(track, sample_rate=RATE_HZ, num_channels=1):
            samples = np.frombuffer(bytes(event.frame.data), np.int16).astype(np.float64)
            self.blocks.append((time.monotonic(), samples))
            self._heard.set()

    async def wait_until(self, *, loud: bool, blocks: int) -> None:
        """Wait until that many blocks in a row are so."""
        run = 0
        count = len(self.blocks)
        while run < blocks:
            while len(self.blocks) == count:
                self._heard.clear()
                await self._heard.wait()
            is_loud = bool(np.abs(self.blocks[count][1]).max() > LOUD)
            run = run + 1 if is_loud is loud else 0
            count += 1

    def heard(self, *, after: int) -> Samples:
        """Return everything heard but for the first `after` blocks."""
        return np.concatenate([samples for _, samples in self.blocks[after:]])


@asynccontextmanager
async def in_a_room(url: str) -> AsyncIterator[tuple[AsyncioPortal, Player, Listener]]:
    agent, guest = rtc.Room(), rtc.Room()
    listener, background = Listener(guest), BackgroundAudioPlayer()
    await join(agent, url, "agent")
    await background.start(room=agent)
    await join(guest, url, "guest")
    await listener.wait_until(loud=False, blocks=10)
    async with playhead.asyncio_portal() as portal:
        player = await portal.enter(Player(LiveKitSink(background, portal)))
        yield portal, player, listener
    await background.aclose()
    await guest.disconnect()
    await agent.disconnect()


def music(path: Path, seconds: float) -> Samples:
    """A tone that rises from 200 Hz by 400 Hz per second: each moment of it is at one place only."""
    at = np.arange(int(RATE_HZ * seconds)) / RATE_HZ
    samples = 6000 * np.sin(2 * np.pi * (200 * at + 200 * at**2))
    write_wave(path, samples.astype(np.int16).tobytes(), rate_hz=RATE_HZ)
    return samples


def best_correlation(segment: Samples, heard: Samples) -> tuple[float, int]:
    """The highest correlation of `segment` with a part of `heard`, and where that part begins."""
    size = 1 << (len(heard) + len(segment)).bit_length()
    products = np.fft.irfft(np.fft.rfft(heard, size) * np.conj(np.fft.rfft(segment, size)), size)
    last = len(heard) - len(segment) + 1
    energy = np.cumsum(np.concatenate([[0.0], heard**2]))
    norms = np.sqrt(np.maximum(energy[len(segment) :] - energy[: -len(segment)], 1.0))
    found = products[:last] / norms[:last] / np.linalg.norm(segment)
    return float(found.max()), int(found.argmax())


def is_source(heard: Samples, source: Samples) -> bool:
    """All of the source, in order and in its own time."""
    loud = np.flatnonzero(np.abs(heard) > LOUD)
    seconds = (loud[-1] - loud[0]) / RATE_HZ
    segments = [source[start : start + SEGMENT] for start in range(0, len(source), SEGMENT)]
    found = [best_correlation(segment, heard) for segment in segments]
    correlations = sorted(correlation for correlation, _ in found)
    median = correlations[len(correlations) // 2]
    print(f"{seconds:.3f} s heard of 5; correlations from {correlations[0]:.3f}, median {median:.4f}")
    places = [place for _, place in found]
    return (
        abs(seconds - len(source) / RATE_HZ) < 0.1
        and median > 0.98
        and correlations[0] > 0.8
        and places == sorted(places)
    )


def test_a_participant_hears_the_source(server: str, tmp_path: Path) -> None:
    """One of five plays: WebRTC stretches the first second of a track, and drops audio on a busy machine."""
    source = music(tmp_path / "a.wav", 5)

    async def main() -> bool:
        async with in_a_room(server) as (portal, player, listener):
            for _ in range(PLAYS):
                before = len(listener.blocks)
                await portal.call(player.play, FileMedia(tmp_path / "a.wav"))
                await portal.call(player.wait_finished)
                await listener.wait_until(loud=False, blocks=20)
                if is_source(listener.heard(after=before), source):
                    return True
        return False

    assert asyncio.run(main())


def test_a_stop_is_heard_by_the_participant(server: str, tmp_path: Path) -> None:
    music(tmp_path / "a.wav", 30)

    async def main() -> list[float]:
        silences = []
        async with in_a_room(server) as (portal, player, listener):
            for _ in range(5):
                await portal.call(player.play, FileMedia(tmp_path / "a.wav"))
                await listener.wait_until(loud=True, blocks=50)
                asked = time.monotonic()
                await portal.call(player.stop)
                await listener.wait_until(loud=False, blocks=50)
                last = max(at for at, samples in listener.blocks if np.abs(samples).max() > LOUD)
                silences.append(last - asked)
        return silences

    silences = asyncio.run(main())
    print("last music at the participant after the stop, s:", [round(each, 3) for each in silences])
    assert max(silences) < 1.0
