"""A .wav file an item, as fast as the decoder gives."""

from __future__ import annotations

import wave
from functools import partial
from itertools import count
from os import PathLike, fspath
from pathlib import Path
from typing import BinaryIO

from playhead.errors import PlaybackError
from playhead.playback.feed import PcmFeed
from playhead.playback.threads import run_thread
from playhead.stream.saving import is_device, partial_beside

TAKE_FRAMES = 8192
MAX_DATA_BYTES = 0xFFFF_FFFF - 64
"""RIFF counts its bytes in 32 bits, header included: six hours of CD audio."""


class WaveSink:
    """Writes what is played to `path`, in its own rate and channels.

    The file appears under its name when it is whole; a stream that breaks or is stopped leaves nothing.
    A file that is there under that very name is replaced. A .wav file has one format and a queue may have
    several, so each further item gets a file of its own, the first free one of `song-2.wav`, `song-3.wav`
    and so on; `paths` tells which.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        self._written: list[Path] = []

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that are whole, in order."""
        return tuple(self._written)

    @property
    def name(self) -> str:
        return f"wave:{self._path}"

    async def play(self, feed: PcmFeed) -> None:
        """See `Sink.play`. Raises `OSError` where the file cannot be written, `UsageError` where the path is
        no file's, `PlaybackError` past 4 GiB."""
        self._written.append(await run_thread(partial(self._write, feed), wake=feed.close))

    def _write(self, feed: PcmFeed) -> Path:
        path = self._path
        if is_device(path):
            with path.open("wb") as device:
                _write_wave(device, feed)
            return path
        numbers = count(len(self._written) + 1)
        while self._written and path.exists():
            path = self._path.with_stem(f"{self._path.stem}-{next(numbers)}")
        part = partial_beside(path)
        try:
            with part.open("xb") as file:
                _write_wave(file, feed)
            part.replace(path)
        except OSError as error:
            error.filename = fspath(path)  # the name that was given; a full disk names none
            raise
        finally:
            part.unlink(missing_ok=True)
        return path


def _write_wave(file: BinaryIO, feed: PcmFeed) -> None:
    buffer = memoryview(bytearray(TAKE_FRAMES * feed.format.frame_bytes))
    data_bytes = 0
    with wave.open(file, "wb") as output:
        output.setnchannels(feed.format.channels)
        output.setsampwidth(2)
        output.setframerate(feed.format.rate_hz)
        while sound := feed.take(buffer):
            data_bytes += sound
            if data_bytes > MAX_DATA_BYTES:
                raise PlaybackError(
                    f"a .wav file ends at 4 GiB and the stream goes on: nothing was kept of {feed.format}; "
                    "play to another sink, or a shorter piece"
                )
            output.writeframesraw(buffer[:sound])  # the header is written once, at the end
