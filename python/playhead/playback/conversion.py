"""Conversion of PCM to another rate, channel count and sample format, by miniaudio's converter.

pyminiaudio exposes the converter as part of a decoder only. So a converter here is miniaudio's WAV decoder on
an endless RF64 file whose samples are the PCM to convert: it resamples (linear, with a low-pass filter of
fourth order) and mixes channels, and keeps its state between calls.

It works in floats, and the result is dithered if it is to be 16-bit. 16-bit samples that need no arithmetic
(the same rate, and the same channels or one that is repeated) pass through unchanged.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING

import miniaudio

from playhead._core import Dither
from playhead.errors import PlaybackError, UsageError
from playhead.playback.containers.wav import rf64_header
from playhead.playback.decoder import MiniaudioDecoder, NativeDecoder, PcmDecoder
from playhead.playback.formats import (
    MAX_CHANNELS,
    MAX_RATE_HZ,
    MIN_CONVERTED_HZ,
    PIECE_FRAMES,
    PcmFormat,
    SampleFormat,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_ENDLESS_BYTES = 1 << 62


class PcmConverter:
    """Converts one stream of PCM from `source` to `target`: `read` returns what `feed` took.

    The result is the same however the stream is divided.
    """

    def __init__(self, source: PcmFormat, target: PcmFormat) -> None:
        self.target = target
        self._file = _EndlessWave(source)
        self._native = NativeDecoder(self._file)
        plain = (
            source.sample is target.sample
            and source.rate_hz == target.rate_hz
            and source.channels in (1, target.channels)
        )
        computed = target.sample if plain else SampleFormat.F32
        self._dither = Dither() if computed is not target.sample else None
        self._frame_bytes = computed.sample_bytes * target.channels
        result = self._native.start(
            miniaudio.FileFormat.WAV, computed, channels=target.channels, rate_hz=target.rate_hz
        )
        if not self._native.is_open:
            raise PlaybackError(f"miniaudio cannot convert {source} to {target} (result {result})")
        self._buffer = miniaudio.ffi.new("int8_t[]", PIECE_FRAMES * self._frame_bytes)

    def feed(self, pcm: Buffer) -> None:
        """Take the next samples in `source`, whole frames, once `read` has returned all earlier samples.
        They must stay valid until then."""
        self._file.samples = memoryview(pcm).cast("B")

    def read(self) -> Buffer:
        """Return up to `PIECE_FRAMES` in `target`, valid until the next call; empty if `feed` is next."""
        if not self._native.is_open:
            return b""
        frames, _result = self._native.read(self._buffer, PIECE_FRAMES)
        if self._file.error_in_readcallback is not None:
            raise self._file.error_in_readcallback
        pcm: Buffer = miniaudio.ffi.buffer(self._buffer, frames * self._frame_bytes)
        return pcm if self._dither is None else self._dither.convert(pcm)

    def close(self) -> None:
        """Free the converter; `read` returns nothing from now on. Idempotent."""
        self._native.close()


class _EndlessWave:
    """The RF64 file: a header, then samples. miniaudio's callbacks call `read` and `seek`."""

    def __init__(self, source: PcmFormat) -> None:
        self.error_in_readcallback: Exception | None = None
        self.samples = memoryview(b"")
        self._header = rf64_header(source, data_bytes=_ENDLESS_BYTES)
        self._frame_bytes = source.frame_bytes

    def read(self, wanted_bytes: int) -> Buffer:
        if self._header:
            data, self._header = self._header[:wanted_bytes], self._header[wanted_bytes:]
            return data
        most_bytes = wanted_bytes - wanted_bytes % self._frame_bytes
        piece, self.samples = self.samples[:most_bytes], self.samples[most_bytes:]
        return piece

    def seek(self, offset: int, origin: miniaudio.SeekOrigin) -> bool:
        """Skip parts of the header. Seeks to the end and back, in search of more chunks, have no effect."""
        if origin is miniaudio.SeekOrigin.CURRENT:
            self._header = self._header[offset:]
        return True


class ConvertedDecoder:
    """A decoder whose PCM has another rate or channel count. Its frames are counted at the new rate."""

    def __init__(self, decoder: PcmDecoder, format: PcmFormat) -> None:
        self.format = format
        self._decoder = decoder
        self._converter = PcmConverter(decoder.format, format)
        self.position_frames = 0

    @property
    def position_is_exact(self) -> bool:
        return self._decoder.position_is_exact

    @property
    def lacks_end(self) -> bool:
        return self._decoder.lacks_end

    @property
    def duration_seconds(self) -> float | None:
        return self._decoder.duration_seconds

    @property
    def bytes_per_second(self) -> float:
        return self._decoder.bytes_per_second

    def read(self) -> Buffer:
        while not len(memoryview(pcm := self._converter.read())):
            before, own = self._decoder.position_frames, self._decoder.format
            piece = self._decoder.read()
            if not (piece_bytes := memoryview(piece).nbytes):
                return b""
            self._converter.feed(piece)
            skipped = self._decoder.position_frames - before - piece_bytes // own.frame_bytes
            self.position_frames += skipped * self.format.rate_hz // own.rate_hz
        self.position_frames += memoryview(pcm).nbytes // self.format.frame_bytes
        return pcm

    def seek(self, frame: int) -> None:
        """Seek as `PcmDecoder.seek`, at the new rate; the converter begins anew there."""
        own_hz, rate_hz = self._decoder.format.rate_hz, self.format.rate_hz
        wanted = frame * own_hz // rate_hz
        self._decoder.seek(wanted)
        self._converter.close()
        self._converter = PcmConverter(self._decoder.format, self.format)
        actual = self._decoder.position_frames  # elsewhere past the end, and in a stream without an index
        self.position_frames = frame if actual == wanted else actual * rate_hz // own_hz

    def close(self) -> None:
        self._converter.close()
        self._decoder.close()


def convert_decoder(
    decoder: PcmDecoder, *, rate_hz: int | None, channels: int | None, sample: SampleFormat | None = None
) -> PcmDecoder:
    """Return `decoder`, or one of the same samples at `rate_hz`, with `channels` and as `sample`. None keeps
    its own."""
    own = decoder.format
    format = PcmFormat(
        rate_hz=own.rate_hz if rate_hz is None else rate_hz,
        channels=own.channels if channels is None else channels,
        sample=sample or own.sample,
    )
    if format == own or (isinstance(decoder, MiniaudioDecoder) and decoder.convert(format)):
        return decoder
    return ConvertedDecoder(decoder, format)


def little_endian(pcm: Buffer, sample: SampleFormat = SampleFormat.S16) -> bytes:
    """Return samples of the machine's byte order as files and devices take them."""
    samples = bytes(pcm)
    if sys.byteorder == "little":
        return samples
    swapped = array("h" if sample is SampleFormat.S16 else "f", samples)
    swapped.byteswap()
    return swapped.tobytes()


def check_rate_and_channels(rate_hz: int | None, channels: int | None) -> None:
    """Raise `UsageError` for a rate or a channel count that no device takes."""
    if rate_hz is not None and not MIN_CONVERTED_HZ <= rate_hz <= MAX_RATE_HZ:
        raise UsageError(f"rate_hz: expected {MIN_CONVERTED_HZ} to {MAX_RATE_HZ} Hz, got {rate_hz}")
    if channels is not None and not 0 < channels <= MAX_CHANNELS:
        raise UsageError(f"channels: expected 1 to {MAX_CHANNELS}, got {channels}")
