"""A WAV whose header does not state its size, as programs write it to a pipe, is played to its end."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from playhead.playback.player import Player
from playhead.playback.sinks import NullSink
from playhead.stream.source import BytesReader, Reader
from playhead.testing.media import ScriptedMedia, ScriptedReader
from tests.unit.playback.test_seeking import decoded, encoded

READERS = pytest.mark.parametrize("reader", [BytesReader, ScriptedReader], ids=["seekable", "stream"])


def streamed_wave(*, riff: int, data: int, tags: bytes = b"") -> bytes:
    """Return a WAV as a program writes it to a pipe, which cannot go back to state the sizes."""
    wave = encoded("wav")
    begin = wave.index(b"data")
    return (
        wave[:4]
        + struct.pack("<I", riff)
        + wave[8:begin]
        + tags
        + b"data"
        + struct.pack("<I", data)
        + wave[begin + 8 :]
    )


@READERS
@pytest.mark.parametrize(
    ("riff", "data"), [(0xFFFF_FFFF, 0xFFFF_FFFF), (0x7FFF_FFFF, 0x7FFF_FFFF - 36), (0, 0), (0xFFFF_FFFF, 0)]
)
@pytest.mark.parametrize("tags", [b"", b"LIST" + struct.pack("<I", 26) + bytes(26)], ids=["plain", "tags"])
async def test_a_wave_whose_header_states_no_size_is_played_to_its_end(
    riff: int, data: int, tags: bytes, reader: Callable[[bytes], Reader]
) -> None:
    sink = NullSink(real_time=False)
    async with Player(sink) as player:
        await player.play(ScriptedMedia(reader=reader(streamed_wave(riff=riff, data=data, tags=tags))))
        await player.wait_finished()
        state = player.snapshot()
    assert (state.position_seconds, state.duration_seconds) == (60.0, None)
    whole = NullSink(real_time=False)
    async with Player(whole) as player:
        await player.play(ScriptedMedia(reader=reader(encoded("wav"))))
        await player.wait_finished()
    assert sink.report == whole.report


async def test_a_wave_whose_header_states_no_size_is_sought_to_the_sample() -> None:
    file = streamed_wave(riff=0xFFFF_FFFF, data=0xFFFF_FFFF)
    assert decoded(file) == decoded(encoded("wav"))
