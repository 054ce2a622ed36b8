"""Wave files: one per item, written as fast as the item is decoded."""

from __future__ import annotations

import wave
from functools import partial
from itertools import count
from os import PathLike, fspath
from pathlib import Path
from typing import BinaryIO

from playhead.concurrency import run_thread
from playhead.errors import PlaybackError
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.stream.saving import is_device, partial_beside

TAKE_FRAMES = 8192
MAX_DATA_BYTES = 0xFFFF_FFFF - 64
"""RIFF counts its bytes in 32 bits, header included: six hours of CD audio."""


class WaveSink:
    """Writes each item to a file, in its own rate and channels.

    The file appears under its name when complete; a stream that breaks or is stopped leaves nothing. An
    existing file of that name is replaced. A .wav file has one format and a queue may have several, so each
    further item gets its own file, the first free one of `song-2.wav`, `song-3.wav` and so on; `paths` has
    them all.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        self._written: list[Path] = []

    @property
    def paths(self) -> tuple[Path, ...]:
        """The complete files, in order."""
        return tuple(self._written)

    @property
    def name(self) -> str:
        return f"wave:{self._path}"

    async def play(self, buffer: PcmBuffer) -> None:
        """See `Sink.play`. Raises `OSError` if the file cannot be written, `UsageError` if the path is not a
        file, `PlaybackError` past 4 GiB."""
        self._written.append(await run_thread(partial(self._write, buffer), wake=buffer.close))

    def _write(self, buffer: PcmBuffer) -> Path:
        path = self._path
        if is_device(path):
            with path.open("wb") as device:
                _write_wave(device, buffer)
            return path
        numbers = count(len(self._written) + 1)
        while self._written and path.exists():
            path = self._path.with_stem(f"{self._path.stem}-{next(numbers)}")
        part = partial_beside(path)
        try:
            with part.open("xb") as file:
                _write_wave(file, buffer)
            part.replace(path)
        except OSError as error:
            error.filename = fspath(path)  # the name that was given; a full disk gives no name
            raise
        finally:
            part.unlink(missing_ok=True)
        return path


def _write_wave(file: BinaryIO, buffer: PcmBuffer) -> None:
    block = memoryview(bytearray(TAKE_FRAMES * buffer.format.frame_bytes))
    data_bytes = 0
    with wave.open(file, "wb") as output:
        output.setnchannels(buffer.format.channels)
        output.setsampwidth(2)
        output.setframerate(buffer.format.rate_hz)
        while audio_bytes := buffer.take(block):
            data_bytes += audio_bytes
            if data_bytes > MAX_DATA_BYTES:
                raise PlaybackError(
                    f"expected at most 4 GiB for a .wav file, got a longer stream ({buffer.format}); nothing "
                    "was saved: play to another sink, or a shorter piece"
                )
            output.writeframesraw(block[:audio_bytes])  # the header is written once, at the end
