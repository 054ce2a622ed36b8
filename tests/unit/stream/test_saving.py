"""A saved file may replace a file, and nothing else."""

from __future__ import annotations

import os
import stat
import tty
from pathlib import Path

import pytest
import trio

from playhead.errors import UsageError
from playhead.playback.formats import PcmFormat
from playhead.playback.pcm_buffer import PcmSequence
from playhead.playback.sinks import WaveSink
from playhead.stream.saving import whole_file
from playhead.testing.sinks import buffer_of, tone


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


async def test_a_pipe_is_not_replaced_by_a_file(fifo: Path) -> None:
    with pytest.raises(UsageError, match="expected a file to write"):
        async with whole_file(fifo) as file:
            file.write(b"never")
    assert await trio.Path(fifo).is_fifo()


async def test_a_directory_is_refused_before_a_byte_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a directory"):
        async with whole_file(tmp_path):
            raise AssertionError("the block must not run")


async def test_a_device_is_written_to_and_stays_one() -> None:
    # A terminal of its own: what fails here must not put a file in the place of /dev/null.
    ours, theirs = os.openpty()
    try:
        tty.setraw(theirs)
        path = Path(os.ttyname(theirs))
        async with whole_file(path) as file:
            file.write(b"bytes")
        assert os.read(ours, 100) == b"bytes"
        assert stat.S_ISCHR(os.fstat(theirs).st_mode)
    finally:
        os.close(ours)
        os.close(theirs)


async def test_a_failed_write_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "none" / "song.mp3"
    with pytest.raises(OSError, match="No such file") as caught:
        async with whole_file(path):
            pass
    assert caught.value.filename == str(path)


async def test_a_wave_sink_does_not_replace_a_pipe(fifo: Path) -> None:
    feed = buffer_of(tone(PcmFormat(rate_hz=8000, channels=1), frames=10))
    with pytest.raises(UsageError, match="expected a file to write"):
        await WaveSink(fifo).play(PcmSequence(feed))
    assert await trio.Path(fifo).is_fifo()
