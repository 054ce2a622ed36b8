"""Pipes and directories: audio that arrives through a descriptor, and the audio files of a directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
import trio.testing

from playhead.errors import ClosedError
from playhead.playback import FileMedia, NullSink, Player, WaveSink
from playhead.playback.files import PipeMedia
from tests.servers.wave import wave_header

WAVE = wave_header(44 + 44_100 * 4) + bytes(44_100 * 4)


async def test_a_pipe_plays_while_it_is_written_and_the_head_counts() -> None:
    receiver, sender = os.pipe()

    async def write() -> None:
        await trio.to_thread.run_sync(os.write, sender, WAVE[64:60_000])
        for at in range(60_000, len(WAVE), 50_000):
            await trio.to_thread.run_sync(os.write, sender, WAVE[at : at + 50_000])
        os.close(sender)

    async with trio.open_nursery() as nursery, Player(NullSink(real_time=False)) as player:
        nursery.start_soon(write)
        await player.play(PipeMedia(receiver, title="pipe", head=WAVE[:64]))
        await player.wait_finished()
        state = player.snapshot()
    assert (state.title, state.position_seconds) == ("pipe", 1.0)
    os.close(receiver)


async def test_a_reader_of_a_silent_pipe_times_out_is_interrupted_and_closed() -> None:
    receiver, sender = os.pipe()
    async with PipeMedia(receiver, title="pipe").open() as reader:
        with pytest.raises(TimeoutError):
            reader.readinto(bytearray(9), 0.001)
        reader.interrupt()
        with pytest.raises(TimeoutError):
            reader.readinto(bytearray(9))
        os.write(sender, b"abc")
        assert reader.readinto(buffer := bytearray(2)) == 2
        assert buffer == b"ab"
        assert reader.readinto(bytearray(9)) == 1

        async def wait() -> None:
            with pytest.raises((TimeoutError, ClosedError)):
                await trio.to_thread.run_sync(reader.readinto, bytearray(9))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            reader.close()  # type: ignore[attr-defined]  # leaving the block calls it, too
    with pytest.raises(ClosedError):
        reader.readinto(bytearray(9))
    os.close(receiver)
    os.close(sender)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has a device that is always full")  # noqa: PTH110
async def test_a_disk_that_fails_is_reported_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(WAVE)
    async with Player(WaveSink("/dev/full")) as player:
        await player.play(FileMedia(tmp_path / "a.wav"))
        with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
            await player.wait_finished()
    async with FileMedia("/proc/self/mem").open() as reader:  # nothing is mapped at its beginning
        with pytest.raises(OSError, match="error: '/proc/self/mem'"):
            reader.readinto(bytearray(9))
