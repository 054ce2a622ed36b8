"""The Wyoming sink on a service made of the `wyoming` package."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import playhead
from playhead.adapters.wyoming import WyomingSink
from playhead.playback import FileMedia, Player
from tests.servers.wave import numbered_wave

pytest.importorskip("wyoming", reason="needs `make extra NAME=adapters`")

from wyoming.audio import AudioChunk, AudioFormat, AudioStart, AudioStop
from wyoming.event import Event
from wyoming.info import Attribution, Describe, Info, SndProgram
from wyoming.server import AsyncEventHandler, AsyncTcpServer
from wyoming.snd import Played

RATE = 22_050
FORMAT = AudioFormat(rate=RATE, width=2, channels=1)
SPEAKER = SndProgram(
    name="speaker",
    attribution=Attribution(name="test", url="http://localhost"),
    installed=True,
    description="a loudspeaker",
    version="1",
    snd_format=FORMAT,
)


class Service:
    """Parses every event by the package's classes, and answers as its services do."""

    def __init__(self) -> None:
        self.starts: list[AudioStart] = []
        self.chunks: list[AudioChunk] = []
        self.stopped = asyncio.Event()
        self.heard = asyncio.Event()

    def handler(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncEventHandler:
        service = self

        class Handler(AsyncEventHandler):  # type: ignore[misc]
            async def handle_event(self, event: Event) -> bool:
                if Describe.is_type(event.type):
                    await self.write_event(Info(snd=[SPEAKER]).event())
                elif AudioStart.is_type(event.type):
                    service.starts.append(AudioStart.from_event(event))
                elif AudioChunk.is_type(event.type):
                    service.chunks.append(AudioChunk.from_event(event))
                    service.heard.set()
                elif AudioStop.is_type(event.type):
                    AudioStop.from_event(event)
                    service.stopped.set()
                    await self.write_event(Played().event())
                return True

        return Handler(reader, writer)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Service, int]]:
    service = Service()
    server = AsyncTcpServer("127.0.0.1", 0)
    await server.start(service.handler)
    try:
        yield service, server._server.sockets[0].getsockname()[1]
    finally:
        await server.stop()


def test_the_service_hears_the_samples_of_the_source_in_its_own_format(tmp_path: Path) -> None:
    pcm = numbered_wave(tmp_path / "a.wav", 1.2, rate_hz=RATE)

    async def main() -> None:
        async with serving() as (service, port), playhead.asyncio_portal() as portal:
            sink = await portal.call(WyomingSink.discover, "127.0.0.1", port)
            player = await portal.enter(Player(sink))
            await portal.call(player.play, FileMedia(tmp_path / "a.wav"))
            await portal.call(player.wait_finished)
            await service.stopped.wait()
            assert [(start.rate, start.width, start.channels) for start in service.starts] == [(RATE, 2, 1)]
            assert {(chunk.rate, chunk.width, chunk.channels) for chunk in service.chunks} == {(RATE, 2, 1)}
            assert b"".join(chunk.audio for chunk in service.chunks) == pcm
            assert [chunk.timestamp for chunk in service.chunks] == [60 * at for at in range(20)]

    asyncio.run(main())


def test_a_stop_ends_the_audio(tmp_path: Path) -> None:
    numbered_wave(tmp_path / "a.wav", 30, rate_hz=RATE)

    async def main() -> None:
        async with serving() as (service, port), playhead.asyncio_portal() as portal:
            player = await portal.enter(Player(WyomingSink("127.0.0.1", port, rate_hz=RATE)))
            await portal.call(player.play, FileMedia(tmp_path / "a.wav"))
            await service.heard.wait()
            await portal.call(player.stop)
            await service.stopped.wait()
            assert len(service.chunks) < 100

    asyncio.run(main())
