"""Decoders of a stream that is still arriving: miniaudio's for MP3, FLAC and WAV, and raw samples.

miniaudio's `stream_any` needs the rate and channels before it has seen the stream, and resamples to them.
Playhead decodes to the file's own rate unless it is given another, so that the device resamples once at most,
and a wave file equals a local decode. So this module calls the three functions of miniaudio's C interface
itself, with rate 0 and channels 0, which mean "the file's own".
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import miniaudio

from playhead._core import Dither
from playhead.content.audio import SNIFF_BYTES, AudioFormat
from playhead.errors import DecodeError, PlaybackError, SeekError, UnsupportedFormatError
from playhead.playback.byte_rate import ByteRate
from playhead.playback.containers.flac import FlacLocator
from playhead.playback.containers.mpeg import MpegLocator
from playhead.playback.containers.wav import WavLocator
from playhead.playback.decoder_source import (
    LARGE_STEP_BYTES,
    MOST_HEADER_BYTES,
    STEP_BYTES,
    WHOLE_STEP_BYTES,
    DecoderSource,
)
from playhead.playback.formats import (
    FIRST_FRAMES,
    LARGE_PIECE_SECONDS,
    PIECE_FRAMES,
    PcmFormat,
    SampleFormat,
    require_playable,
)
from playhead.playback.identification import EXTRA_DECODED, Identified, RawPcm, identify
from playhead.playback.locator import Locator

if TYPE_CHECKING:
    from typing_extensions import Buffer

_ffi, _lib = miniaudio.ffi, miniaudio.lib

MP3_LOOKAHEAD_BYTES = 20 * 1024
"""The bytes that the MP3 decoder reads before it keeps pace with the audio: the 16 KiB that it holds until
the end, and two steps."""
SEARCH_BYTES = {AudioFormat.MP3: 512 * 1024}
"""Limits the bytes in which to search for the first audio. MPEG audio has almost no signature, so the search
through noise or an error page must end here."""
WAVE_HEAD_BYTES = 4096
"""The bytes of a WAV in which to look for the size of its data: as many as its first audio needs."""
WAVE_FORMAT_BYTES = 1 << 16
"""The bytes of a WAV in which to look for its format if it is not at the very beginning. Broadcast recorders
write chunks of a few kilobytes before it."""

MINIAUDIO_SAMPLES = {
    SampleFormat.S16: miniaudio.SampleFormat.SIGNED16,
    SampleFormat.F32: miniaudio.SampleFormat.FLOAT32,
}
_ENCODINGS: dict[AudioFormat, tuple[miniaudio.FileFormat, Callable[[], Locator]]] = {
    AudioFormat.MP3: (miniaudio.FileFormat.MP3, MpegLocator),
    AudioFormat.FLAC: (miniaudio.FileFormat.FLAC, FlacLocator),
    AudioFormat.WAV: (miniaudio.FileFormat.WAV, WavLocator),
}


class PcmDecoder(Protocol):
    """A blocking decoder, for one thread."""

    @property
    def format(self) -> PcmFormat: ...
    @property
    def duration_seconds(self) -> float | None: ...
    @property
    def bytes_per_second(self) -> float:
        """Stream bytes per second of audio, over the densest ten seconds so far. Known after the first
        `read`."""
        ...

    @property
    def position_frames(self) -> int:
        """The PCM frame that the next `read` begins with."""
        ...

    @property
    def position_is_exact(self) -> bool:
        """False after a seek whose position could only be estimated."""
        ...

    @property
    def lacks_end(self) -> bool:
        """True, after the end, if the container marks its end and the stream has no such mark."""
        ...

    def read(self) -> Buffer:
        """Return the next piece of PCM, whole frames, valid until the next call; empty at the end.

        Raises the stream's own error, after the audio before it, and `DecodeError` if the bytes are damaged.
        """
        ...

    def seek(self, frame: int) -> None:
        """Continue at PCM frame `frame`, also after the end, or after `read` raised `TimeoutError`.

        Blocks while it searches. The audio equals an uninterrupted decode from there, unless
        `position_is_exact` is False. A frame past the end is the end.

        Raises `SeekError` if that is not possible; then `read` goes on as before. Also raises the stream's
        own error.
        """
        ...

    def close(self) -> None:
        """Free the decoder. Idempotent."""
        ...


@contextmanager
def naming(title: str) -> Iterator[None]:
    """Put `title` at the beginning of a decoder's errors."""
    try:
        yield
    except PlaybackError as error:
        # Change this error, because the decoder may raise it again, and a new one would keep its frames
        # alive.
        if not str(error).startswith(f"{title!r}: "):
            error.args = (f"{title!r}: {error}",)
        raise


def open_decoder(
    source: DecoderSource, *, mime_type: str | None, uri: str | None, size_bytes: int | None = None
) -> PcmDecoder:
    """Identify the stream, and read up to its rate and channels. Blocks while bytes arrive.

    Raises `UnsupportedFormatError` if no decoder takes it, `DecodeError`, and the stream's own error.
    """
    head = source.peek(SNIFF_BYTES)
    try:
        identity = identify(head, mime_type=mime_type, uri=uri)
    except UnsupportedFormatError:
        if source.broken is not None and len(head) < SNIFF_BYTES:
            raise source.broken from None  # the head was cut off
        raise
    if identity.raw is not None:
        return RawPcmDecoder(source, identity.raw, size_bytes=size_bytes)
    if identity.format is AudioFormat.VORBIS:
        from playhead.playback.vorbis_decoder import VorbisDecoder

        return VorbisDecoder(source)
    if identity.format in EXTRA_DECODED:
        from playhead.playback.av_decoder import AvDecoder  # 0.2 s

        return AvDecoder(source, identity.format)
    source.search_bytes = SEARCH_BYTES.get(identity.format, MOST_HEADER_BYTES)
    if identity.format is AudioFormat.WAV:
        source.step_bytes = WHOLE_STEP_BYTES
    return MiniaudioDecoder(source, identity, head=head)


class NativeDecoder:
    """A decoder of miniaudio's C interface. It calls `read` and `seek` of its source."""

    def __init__(self, source: miniaudio.StreamableSource) -> None:
        self._handle = _ffi.new_handle(source)  # C holds no reference to it
        self._decoder = _ffi.new("ma_decoder *")
        self._frames_read = _ffi.new("ma_uint64 *")
        self.is_open = False

    def start(
        self, encoding: miniaudio.FileFormat, sample: SampleFormat, *, channels: int = 0, rate_hz: int = 0
    ) -> int:
        """Open the decoder at the source's position, and return miniaudio's result. 0 means the file's own
        value."""
        config = _lib.ma_decoder_config_init(MINIAUDIO_SAMPLES[sample].value, channels, rate_hz)
        config.encodingFormat = encoding.value
        result: int = _lib.ma_decoder_init(
            _lib._internal_decoder_read_callback,
            _lib._internal_decoder_seek_callback,
            self._handle,
            _ffi.addressof(config),
            self._decoder,
        )
        self.is_open = result == _lib.MA_SUCCESS
        self.rate_hz: int = self._decoder.outputSampleRate
        self.channels: int = self._decoder.outputChannels
        return result

    def read(self, buffer: object, most_frames: int) -> tuple[int, int]:
        """Decode into `buffer`, an array of the C interface. Return the number of frames and miniaudio's
        result."""
        self._frames_read[0] = 0
        result = _lib.ma_decoder_read_pcm_frames(self._decoder, buffer, most_frames, self._frames_read)
        return self._frames_read[0], result

    def close(self) -> None:
        """Free the decoder. Idempotent."""
        if self.is_open:
            self.is_open = False
            _lib.ma_decoder_uninit(self._decoder)


class MiniaudioDecoder:
    """One of miniaudio's decoders for MP3, FLAC and WAV on a source.

    A seek opens the decoder again where its locator says, and drops all audio before the wanted frame.
    """

    lacks_end = False

    def __init__(self, source: DecoderSource, identity: Identified, *, head: bytes) -> None:
        self._source = source
        self._audio_format = identity.format
        self._name = identity.format.value
        self._native = NativeDecoder(source)
        self._encoding, make_locator = _ENCODINGS[identity.format]
        self._locator = make_locator()
        self._locator.feed(0, head)
        if isinstance(self._locator, WavLocator):
            self._locator.feed(0, source.peek(WAVE_HEAD_BYTES))
        if self._locator.sample is None:
            self._locator.feed(0, source.peek(WAVE_FORMAT_BYTES))
        self._sample = self._locator.sample or SampleFormat.F32  # a float holds any sample
        if isinstance(self._locator, WavLocator) and self._locator.is_endless:
            # miniaudio would look for the end first, and fail.
            landing = self._locator.locate(0, source, bytes_per_frame=0.0)
            source.restart(landing.offset, landing.prefix)
        source.on_read = self._locator.feed
        result = self._start()
        if result != _lib.MA_SUCCESS:
            if source.broken is not None:
                raise source.broken
            raise UnsupportedFormatError(
                f"expected {self._name}, as its bytes or name say, got a stream that miniaudio cannot open "
                f"(result {result}): it is damaged, cut off, or in another format"
            )
        try:
            self.format = require_playable(
                PcmFormat(rate_hz=self._native.rate_hz, channels=self._native.channels, sample=self._sample)
            )
        except UnsupportedFormatError:
            self.close()
            raise
        # None unless the headers state it: a guess from size and bit rate is wrong for variable rates.
        end = self._locator.end_frame
        self._own_hz = self.format.rate_hz
        """The rate of the file, by which its locator counts."""
        self.duration_seconds = None if end is None else end / self._own_hz
        self._lookahead_bytes = MP3_LOOKAHEAD_BYTES if identity.format is AudioFormat.MP3 else 0
        self._byte_rate = ByteRate(self._locator.bytes_per_second, lookahead_bytes=self._lookahead_bytes)
        self._started_bytes = 0
        """`read_bytes` of the source when this decoder started, at `_started_frames`."""
        self._started_frames = 0
        self.position_frames = 0
        self.position_is_exact = True
        self._end_frames: int | None = None
        """The end of the audio, if the decoder would not stop there by itself."""
        self._dither: Dither | None = None
        self._make_buffer()

    def _make_buffer(self) -> None:
        self._frames = FIRST_FRAMES
        self._frame_bytes = self._sample.sample_bytes * self.format.channels
        self._large_frames = max(PIECE_FRAMES, int(LARGE_PIECE_SECONDS * self.format.rate_hz))
        self._buffer = _ffi.new("int8_t[]", self._large_frames * self._frame_bytes)

    def convert(self, format: PcmFormat) -> bool:
        """Decode to another rate, before the first `read`. Returns False, and changes nothing, if
        `PcmConverter` has to convert.

        The file is opened once more, because miniaudio tells the file's own rate, which the locator needs,
        only if it does not convert. The conversion is done in floats, because in 16 bits it adds 12 dB of
        noise to quiet music. A WAV is not converted here: it would gain nothing, because `PcmConverter`
        decodes WAVs.
        """
        if self._encoding is miniaudio.FileFormat.WAV or format.rate_hz == self._own_hz:
            return False
        try:
            self._source.restart(0)
        except SeekError:  # behind a large picture, in a stream that is read once
            return False
        self.close()
        self._dither = Dither() if format.sample is SampleFormat.S16 else None
        self.format, self._sample = format, SampleFormat.F32
        result = self._start(channels=format.channels, rate_hz=format.rate_hz)
        if result != _lib.MA_SUCCESS:
            raise PlaybackError(f"miniaudio cannot convert {self._name} to {format} (result {result})")
        self._started_bytes = self._source.read_bytes
        self._make_buffer()
        return True

    def _start(self, *, channels: int = 0, rate_hz: int = 0) -> int:
        result = self._native.start(self._encoding, self._sample, channels=channels, rate_hz=rate_hz)
        if self._source.failure is not None:
            self.close()
            raise self._source.failure
        return result

    @property
    def bytes_per_second(self) -> float:
        return self._byte_rate.bytes_per_second

    def read(self) -> Buffer:
        frames = self._read(self._frames)
        if not frames:
            return b""
        self._byte_rate.add(
            self._source.read_bytes - self._started_bytes,
            (self.position_frames - self._started_frames) / self.format.rate_hz,
        )
        self._prepare_next()
        piece: Buffer = _ffi.buffer(self._buffer, frames * self._frame_bytes)
        return piece if self._dither is None else self._dither.convert(piece)

    def _read(self, most_frames: int) -> int:
        """Decode up to `most_frames` into the buffer, and return how many; 0 is the end."""
        if not self._native.is_open:
            return 0
        if self._end_frames is not None:
            most_frames = min(most_frames, max(0, self._end_frames - self.position_frames))
        frames, result = self._native.read(self._buffer, most_frames) if most_frames else (0, _lib.MA_SUCCESS)
        if frames:
            self.position_frames += frames + self._skipped_frames()
            self._source.time.add_audio(frames / self.format.rate_hz)
            return frames
        self.close()
        if self._source.failure is not None:
            raise self._source.failure
        if result not in (_lib.MA_SUCCESS, _lib.MA_AT_END):
            raise DecodeError(
                f"the {self._name} decoder failed in mid-stream (miniaudio's result {result}): the bytes are "
                "damaged"
            )
        return 0

    def _skipped_frames(self) -> int:
        """Return the length of what the stream lacks before the newest audio."""
        if not (skipped_bytes := self._source.take_skipped(self._lookahead_bytes)):
            return 0
        self.position_is_exact &= self._encoding is miniaudio.FileFormat.WAV
        frame_bytes = self._locator.bytes_per_frame or self._bytes_per_frame
        skipped = self._converted(round(skipped_bytes / frame_bytes))
        self._started_frames += skipped
        return skipped

    def seek(self, frame: int) -> None:
        self._source.seek_or_stay(self._seek, frame, before=self.position_frames)

    def _seek(self, frame: int) -> None:
        end = self._locator.end_frame
        end = None if end is None else self._converted(end)
        if end is not None and frame >= end:
            self.close()
            self.position_frames, self.position_is_exact = end, True
            return
        own_frame = frame * self._own_hz // self.format.rate_hz
        landing = self._locator.locate(own_frame, self._source, bytes_per_frame=self._bytes_per_frame)
        self._source.restart(landing.offset, landing.prefix)
        if self._source.step_bytes != WHOLE_STEP_BYTES:
            self._source.step_bytes = STEP_BYTES
        self.close()
        rate = self.bytes_per_second
        begin = self._converted(landing.frame)
        self.position_frames, self.position_is_exact = begin, landing.is_exact
        if self._audio_format is AudioFormat.MP3:
            self._end_frames = end
        # A damaged file may continue with other channels, and the buffer has room for these.
        result = self._start(channels=self.format.channels, rate_hz=self.format.rate_hz)
        if not self._native.is_open and not self._source.is_at_end:
            raise DecodeError(
                f"expected {self._name} to continue at byte {landing.offset}, got bytes that the decoder "
                f"cannot open there (miniaudio's result {result}): they are damaged"
            )
        self._source.audio_began()
        while self.position_frames < frame and self._read(min(frame - self.position_frames, PIECE_FRAMES)):
            pass
        if self.position_frames == begin:
            self.position_frames = frame  # no audio is there, and the position of the end is unknown
        self.position_frames = max(0, self.position_frames)
        self._byte_rate = ByteRate(rate, lookahead_bytes=self._lookahead_bytes)
        self._started_bytes, self._started_frames = self._source.read_bytes, self.position_frames
        self._frames = FIRST_FRAMES

    def _converted(self, own_frame: int) -> int:
        """Return the number of the file's frame `own_frame` at the rate of `format`."""
        return own_frame * self.format.rate_hz // self._own_hz

    @property
    def _bytes_per_frame(self) -> float:
        return (self.bytes_per_second or self.format.bytes_per_second / 2) / self._own_hz

    def _prepare_next(self) -> None:
        """Choose the size of the next piece."""
        is_large = self._source.holds_large_piece(self._byte_rate.bytes_per_second)
        self._frames = self._large_frames if is_large else PIECE_FRAMES
        if self._source.step_bytes != WHOLE_STEP_BYTES:
            self._source.step_bytes = LARGE_STEP_BYTES if is_large else STEP_BYTES

    def close(self) -> None:
        self._native.close()


class RawPcmDecoder:
    """Samples without a header; only their byte order may change."""

    lacks_end = False

    def __init__(self, source: DecoderSource, raw: RawPcm, *, size_bytes: int | None) -> None:
        self.format = raw.format
        self.bytes_per_second = float(raw.format.bytes_per_second)
        self.duration_seconds = None if size_bytes is None else size_bytes / raw.format.bytes_per_second
        self.position_frames = 0
        self.position_is_exact = True
        self._source = source
        self._swap = raw.big_endian != (sys.byteorder == "big")
        self._rest = b""

    def read(self) -> Buffer:
        frame_bytes = self.format.frame_bytes
        while piece := self._source.read(PIECE_FRAMES * frame_bytes):
            data = self._rest + bytes(piece)
            whole = len(data) - len(data) % frame_bytes
            self._rest = data[whole:]
            if whole:
                self.position_frames += (whole + self._source.take_skipped()) // frame_bytes
                samples = array("h", data[:whole])
                if self._swap:
                    samples.byteswap()
                return samples
        return b""  # half a frame at the end is dropped

    def seek(self, frame: int) -> None:
        self._source.restart(frame * self.format.frame_bytes)
        self._source.audio_began()
        self._rest = b""
        self.position_frames = frame

    def close(self) -> None: ...
