"""A file that ends before its container says is played as far as it goes, and reported; a seek past the end
is the end, and says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from playhead.playback.files import FileMedia
from playhead.playback.player import Player
from playhead.playback.player_tools import PLAYER_TOOLS
from playhead.playback.sinks import NullSink
from playhead.playback.state import ItemEnd, PlayerState
from playhead.results.responses import ErrorResponse
from playhead.stream.source import BytesReader, Playable, Reader
from playhead.testing.media import ScriptedMedia, ScriptedReader
from tests.unit.playback import test_av_decoder
from tests.unit.playback.test_seeking import encoded

MakeReader = Callable[[bytes], Reader]

STATED = {"wav": 60, "wav24": 60, "flac": 60, "cbr-xing": 60, "vbr-xing": 60, "vbri": 60}
"""Kinds whose headers state the duration, in seconds."""
MARKED_AV = ["opus", "flac in ogg", "adts", "m4a, fragments"]
"""Kinds that only mark their end, or the end of each part."""


def data_of(kind: str) -> bytes:
    return test_av_decoder.encoded(kind) if kind in test_av_decoder.KINDS else encoded(kind)


def cut(kind: str) -> bytes:
    data = data_of(kind)
    return data[: len(data) // 2 + 1]


async def play(data: bytes, reader: MakeReader, **options: Any) -> tuple[PlayerState, ItemEnd]:
    async with Player(NullSink(real_time=False), **options) as player:
        events = player.events()
        await player.play(ScriptedMedia(reader=reader(data)))
        await player.wait_finished()
        state = player.snapshot()
    async with events:
        (end,) = [event async for event in events if isinstance(event, ItemEnd)]
    return state, end


READERS = pytest.mark.parametrize("reader", [BytesReader, ScriptedReader], ids=["seekable", "stream"])


@READERS
@pytest.mark.parametrize("kind", [*STATED, "m4a, index first"])
async def test_a_file_that_is_cut_short_is_played_and_then_reported(kind: str, reader: MakeReader) -> None:
    seconds = STATED.get(kind, 30)
    state, end = await play(cut(kind), reader)
    assert state.truncated
    assert seconds * 0.3 < state.position_seconds < seconds * 0.7
    assert state.finding == f"ended at {state.position_seconds:.1f} of {seconds:.1f} s" == end.finding


@READERS
@pytest.mark.parametrize("kind", ["vorbis", *MARKED_AV])
async def test_a_file_without_the_mark_of_its_end_is_reported(kind: str, reader: MakeReader) -> None:
    state, end = await play(cut(kind), reader)
    assert state.position_seconds > 5
    at = f"ended at {state.position_seconds:.1f}"
    assert end.finding in (f"{at} s, without the end of its container", f"{at} of 30.0 s")
    assert state.truncated


@READERS
@pytest.mark.parametrize("kind", ["vorbis", "opus"])
async def test_pages_that_are_missing_in_the_middle_are_reported(kind: str, reader: MakeReader) -> None:
    data = bytearray(data_of(kind))
    data[len(data) // 2 : len(data) // 2 + 20_000] = bytes(20_000)
    state, end = await play(bytes(data), reader)
    seconds = 60 if kind == "vorbis" else test_av_decoder.SECONDS
    assert 5 < state.position_seconds < seconds - 0.2
    assert state.finding == f"ended at {state.position_seconds:.1f} of {seconds:.1f} s" == end.finding


@READERS
@pytest.mark.parametrize(
    "kind", [*STATED, "cbr-bare", "vbr-bare", "vorbis", "m4a, index first", "alac", "webm", *MARKED_AV]
)
async def test_a_whole_file_is_not_reported(kind: str, reader: MakeReader) -> None:
    if kind == "alac" and reader is ScriptedReader:
        pytest.skip("its index is at the end")
    state, end = await play(data_of(kind), reader)
    assert (state.truncated, state.finding, end.finding) == (False, None, None)


@pytest.mark.parametrize("kind", ["wav", "vbr-xing", "vorbis"])
async def test_converted_audio_is_reported_as_the_files_own(kind: str) -> None:
    assert (await play(cut(kind), BytesReader, rate_hz=16_000, channels=1))[0].truncated
    assert not (await play(data_of(kind), BytesReader, rate_hz=16_000, channels=1))[0].truncated


async def test_a_stopped_item_has_no_finding() -> None:
    async with Player(NullSink(real_time=False)) as player:
        player.hold("test")
        events = player.events()
        await player.play(ScriptedMedia(reader=BytesReader(cut("wav"))))
        await player.seek(1.0)
        await player.stop()
    async with events:
        assert [event.finding for event in [e async for e in events] if isinstance(event, ItemEnd)] == [None]


# --- seeks past the end ------------------------------------------------------------------------------------


def held_at(data: bytes) -> Playable:
    return ScriptedMedia(reader=BytesReader(data))


@pytest.mark.parametrize(
    "kind", [*STATED, "cbr-bare", "vorbis", "opus", "flac in ogg", "adts", "m4a", "alac", "webm"]
)
async def test_a_seek_says_whether_audio_follows(kind: str) -> None:
    seconds = 30 if kind in test_av_decoder.KINDS else 60
    async with Player(NullSink(real_time=False)) as player:
        player.hold("test")
        await player.play(held_at(data_of(kind)))
        assert await player.seek(seconds - 2.0)
        assert not await player.seek(seconds + 20.0)
        assert await player.seek(1.0)
        player.release("test")
        await player.wait_finished()


async def test_a_seek_past_the_end_goes_on_with_the_next_item() -> None:
    async with Player(NullSink()) as player:
        await player.play([held_at(encoded("wav")), held_at(encoded("flac"))])
        events = player.events()
        assert not await player.seek(100.0)
        with trio.fail_after(10):
            async for event in events:
                if isinstance(event, ItemEnd):
                    assert (event.index, event.stopped, event.finding) == (0, False, None)
                    return


async def test_the_model_is_told_that_a_seek_past_the_end_ended_the_item(tmp_path: Path) -> None:
    (path := tmp_path / "song.wav").write_bytes(encoded("wav"))
    async with Player(NullSink()) as player:
        await player.play(FileMedia(path))
        assert await player.seek(1.0)
        answer = await PLAYER_TOOLS["seek"].call(player, {"seconds": 500})
        assert isinstance(answer, ErrorResponse)
        assert '"song" has ended: the new time is not before its end at 60.0 s' in str(answer)
