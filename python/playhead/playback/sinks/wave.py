"""Sinks that write audio files, .wav or raw PCM: one per item, as fast as the item is decoded."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from os import PathLike, fspath
from pathlib import Path
from typing import BinaryIO

from playhead._core import Dither
from playhead.concurrency import run_thread
from playhead.errors import PlaybackError
from playhead.playback.containers.wav import wave_header
from playhead.playback.conversion import little_endian
from playhead.playback.formats import SampleFormat
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.stream.saving import is_device, partial_beside

TAKE_FRAMES = 8192
MAX_DATA_BYTES = 0xFFFF_FFFF - 64
"""RIFF counts its bytes in 32 bits, header included: six hours of CD audio."""


class AudioFileSink(ABC):
    """Writes each item to a file, in its own rate and channels.

    The file appears under its name when complete; a stream that breaks or is stopped leaves nothing. An
    existing file of that name is replaced. A file has one format and a queue may have several, so each
    further item gets its own file, the first free one of `song-2.wav`, `song-3.wav` and so on; `paths` has
    them all.
    """

    _kind: str

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        self._written: list[Path] = []

    @property
    def paths(self) -> tuple[Path, ...]:
        """The complete files, in order."""
        return tuple(self._written)

    @property
    def name(self) -> str:
        return f"{self._kind}:{self._path}"

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        """See `Sink.play`. Raises `OSError` if the file cannot be written, `UsageError` if the path is not a
        file, `PlaybackError` past 4 GiB."""
        async for buffer in buffers:
            self._written.append(await run_thread(partial(self._write, buffer), wake=buffer.close))

    def _write(self, buffer: PcmBuffer) -> Path:
        path = self._path
        is_file = not is_device(path)
        numbers = count(len(self._written) + 1)
        while is_file and self._written and path.exists():
            path = self._path.with_stem(f"{self._path.stem}-{next(numbers)}")
        part = partial_beside(path) if is_file else path
        try:
            with part.open("xb" if is_file else "wb") as file:
                self._pour(buffer, file)
            if is_file:
                part.replace(path)
        except OSError as error:
            error.filename = fspath(path)  # the caller's own path; a full disk gives no name
            raise
        finally:
            if is_file:
                with suppress(OSError):  # in a directory that cannot be written there is none
                    part.unlink()
        return path

    @abstractmethod
    def _pour(self, buffer: PcmBuffer, file: BinaryIO) -> None:
        """Write the whole buffer to `file`, in a thread."""


class WaveSink(AudioFileSink):
    """Writes each item to a .wav file, in its own rate and channels; see `AudioFileSink`.

    16-bit samples stay 16-bit; deeper ones become 32-bit floats, which hold 24 bits exactly.
    """

    _kind = "wave"

    def _pour(self, buffer: PcmBuffer, file: BinaryIO) -> None:
        file.write(wave_header(buffer.format, data_bytes=0))
        data_bytes = 0
        for pcm in _bounded(buffer):
            file.write(little_endian(pcm, buffer.format.sample))
            data_bytes += len(pcm)
        file.seek(0)
        file.write(wave_header(buffer.format, data_bytes=data_bytes))


class PcmSink(AudioFileSink):
    """Writes each item as bare samples: signed 16-bit little-endian, interleaved, in its own rate and
    channels; see `AudioFileSink`. Floats are dithered with a fixed seed.

    The path `-` is stdout, which gets all items one after another: give the player a rate and channels if
    theirs may differ.
    """

    _kind = "pcm"

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        """See `AudioFileSink.play`. A cancelled write to stdout still waits until its reader takes it."""
        if self._path != Path("-"):
            await super().play(buffers)
            return
        async for buffer in buffers:
            await run_thread(partial(self._pour_to_stdout, buffer), wake=buffer.close)

    def _pour_to_stdout(self, buffer: PcmBuffer) -> None:
        try:
            self._pour(buffer, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        except OSError as error:
            error.filename = error.filename or "stdout"  # as the command line names it
            raise

    def _pour(self, buffer: PcmBuffer, file: BinaryIO) -> None:
        dither = Dither() if buffer.format.sample is SampleFormat.F32 else None
        block = memoryview(bytearray(TAKE_FRAMES * buffer.format.frame_bytes))
        while audio_bytes := buffer.take(block):
            pcm = block[:audio_bytes]
            file.write(little_endian(pcm if dither is None else dither.convert(pcm)))


def _bounded(buffer: PcmBuffer) -> Iterator[memoryview]:
    """Take all audio of `buffer`. Raises `PlaybackError` beyond the most audio of a .wav file."""
    block = memoryview(bytearray(TAKE_FRAMES * buffer.format.frame_bytes))
    data_bytes = 0
    while audio_bytes := buffer.take(block):
        data_bytes += audio_bytes
        if data_bytes > MAX_DATA_BYTES:
            raise PlaybackError(
                f"expected at most 4 GiB for a .wav file, got a longer stream ({buffer.format}); nothing "
                "was saved: play to another sink, or a shorter piece"
            )
        yield block[:audio_bytes]
