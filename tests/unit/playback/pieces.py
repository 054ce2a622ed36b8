"""Pieces of the test data behind scripted readers, a fast sink, and a device whose periods a test makes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio
from trio.testing import wait_all_tasks_blocked

from playhead.errors import StreamBrokenError
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.sinks import NullSink
from playhead.stream.options import StreamOptions
from playhead.testing.media import ScriptedMedia, ScriptedReader

DATA = Path(__file__).parents[2] / "data"
MUSIC = ["bare.mp3", "gapless.mp3", "tagged.mp3", "chord.flac", "chord.ogg", "chord.wav"]
BROKEN = StreamBrokenError("cut", offset=7)


def piece(name: str, **script: object) -> ScriptedMedia:
    reader = ScriptedReader((DATA / name).read_bytes(), **script)  # type: ignore[arg-type]
    return ScriptedMedia(reader=reader, title=name)


def reader_of(media: ScriptedMedia) -> ScriptedReader:
    assert isinstance(media.reader, ScriptedReader)
    return media.reader


async def held(reader: ScriptedReader) -> None:
    """Wait until a thread is blocked in the reader."""
    assert await trio.to_thread.run_sync(reader.blocked.wait, 20)


async def wait_until(condition: Callable[[], object]) -> None:
    with trio.fail_after(20):
        while not condition():
            await trio.lowlevel.checkpoint()


@dataclass
class FreshMedia:
    """Silence of so many frames, or `data`, read anew each time it is opened; counts what is open."""

    frames: int = 800
    data: bytes | None = None
    hold_at: int | None = None
    open_now: int = 0
    title: str = "fresh"
    mime_type: str | None = "audio/L16;rate=8000;channels=1"
    uri: str | None = None
    size_bytes: int | None = None

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[ScriptedReader]:
        data = bytes(self.frames * 2) if self.data is None else self.data
        reader = ScriptedReader(data, sizes=[400], hold_at=self.hold_at)
        self.open_now += 1
        try:
            await trio.lowlevel.checkpoint()
            yield reader
        finally:
            self.open_now -= 1
            reader.close()


class DeafReader(ScriptedReader):
    """Blocks, and does not notice that it was closed."""

    def close(self) -> None:
        self.closed = True


def fast() -> NullSink:
    return NullSink(real_time=False)


class SteppedSink:
    """A device whose periods a test makes; `last` is the audio of the newest."""

    name = "stepped"
    output_latency_seconds = 0.0

    def __init__(self) -> None:
        self.buffer: PcmBuffer
        self.opened = trio.Event()
        self.last = b""

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        async for buffer in buffers:
            await buffer.wait_ready()
            self.buffer = buffer
            self.opened.set()
            while not buffer.over:
                await buffer.wait_change()

    async def periods(self, count: int, *, seconds: float = 0.04) -> list[int]:
        """Return the bytes of audio in each of the next periods."""
        with trio.fail_after(20):
            await self.opened.wait()
        out = bytearray(int(seconds * self.buffer.format.rate_hz) * self.buffer.format.frame_bytes)
        audio_bytes = []
        for _ in range(count):
            audio_bytes.append(self.buffer.fill(out))
            self.last = bytes(out)
            await wait_all_tasks_blocked()
        return audio_bytes
