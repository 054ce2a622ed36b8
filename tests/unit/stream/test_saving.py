"""A saved file may replace a file, and nothing else."""

from __future__ import annotations

import errno
import os
import stat
import tty
from pathlib import Path
from typing import NoReturn

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


@pytest.mark.parametrize("writer", ["whole_file", "wave"])
async def test_a_read_only_directory_is_refused_with_the_name_that_was_asked_for(
    writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, *_args: object, **_options: object) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))  # also for what does not exist

    for name in ("open", "unlink"):
        monkeypatch.setattr(Path, name, refuse)
    monkeypatch.setattr("playhead.stream.saving._create", refuse)
    path = tmp_path / "song.wav"
    with pytest.raises(OSError, match="Read-only") as caught:  # noqa: PT012 - one of two writers
        if writer == "wave":
            await WaveSink(path).play(
                PcmSequence(buffer_of(tone(PcmFormat(rate_hz=8000, channels=1), frames=10)))
            )
        else:
            async with whole_file(path):
                pass
    assert caught.value.filename == str(path)


async def test_a_wave_sink_does_not_replace_a_pipe(fifo: Path) -> None:
    feed = buffer_of(tone(PcmFormat(rate_hz=8000, channels=1), frames=10))
    with pytest.raises(UsageError, match="expected a file to write"):
        await WaveSink(fifo).play(PcmSequence(feed))
    assert await trio.Path(fifo).is_fifo()
