"""A thousand seeks while playing from a real server: no wrong sample, nothing left behind."""

from __future__ import annotations

import random
import threading
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import psutil
import pytest
import trio

from playhead.client import connect
from playhead.playback import Player
from playhead.stream.options import StreamOptions
from playhead.stream.source import PlayableWrapper, Reader
from playhead.testing.links import Link
from tests.servers.launch import behind_link, pages_command
from tests.unit.playback.test_player_seeking import SteppedSink
from tests.unit.playback.test_seeking import decoded, encoded

RING = StreamOptions(capacity_bytes=1 << 18)
"""Smaller than each file: most seeks leave the ring, and few pages are read past the place that is heard."""
GROWTH_BYTES = 16 << 20
"""The allocator's noise after the first hundred; a ring leaked by each later seek would be 225 MiB."""


class SmallRing(PlayableWrapper):
    def open(self, options: StreamOptions | None = None) -> AbstractAsyncContextManager[Reader]:
        return self.inner.open(RING)


@pytest.mark.slow("a thousand seeks through a server process, for each format")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("transport", "kind", "mime_type"),  # a format seeks alike over each transport
    [("stdio", "flac", "audio/flac"), ("stdio", "vorbis", "audio/ogg"), ("http", "wav", "audio/wav")],
)
async def test_a_thousand_seeks_give_no_wrong_sample(
    transport: str, kind: str, mime_type: str, tmp_path: Path
) -> None:
    (tmp_path / "music").write_bytes(encoded(kind))
    pcm, draw, sink = decoded(encoded(kind)), random.Random(8), SteppedSink()
    process, resident, threads = psutil.Process(), 0, 0
    async with (
        behind_link(
            Link(latency_seconds=0.0),
            transport,
            pages_command(transport, "--file", tmp_path / "music", "--mime", mime_type),
        ) as target,
        connect(target) as session,
        Player(sink) as player,
    ):
        (link,) = (await session.call_tool("link")).links
        await player.play(SmallRing(link))
        await sink.heard(1000)
        rate_hz, size = sink.buffer.format.rate_hz, sink.buffer.format.frame_bytes
        for number in range(1000):
            frame = draw.randrange(len(pcm) // size - 2 * rate_hz)
            await player.seek(frame / rate_hz)
            assert player.snapshot().position_is_exact
            heard = await sink.heard_after_seek(draw.randrange(500, 3000))
            near = pcm[frame * size : (frame + 4000) * size]
            assert near.find(heard) >= 0, f"seek {number} to frame {frame}"
            if number == 100:
                resident, threads = process.memory_info().rss, threading.active_count()
        assert process.memory_info().rss < resident + GROWTH_BYTES
        assert threading.active_count() <= threads + 2
        await trio.lowlevel.checkpoint()
