"""Decoders of a stream that is still arriving: miniaudio's, and raw samples.

miniaudio's `stream_any` needs the rate and channels before it has seen the stream, and resamples to them.
Playhead keeps the file's own (the device resamples once, if it must; a wave file and a hash equal a local
decode), so this module calls the same three functions of miniaudio's C interface itself: rate 0 and channels
0 mean "the file's own".
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Protocol

import miniaudio

from playhead.content.audio import SNIFF_BYTES, AudioFormat
from playhead.errors import DecodeError, UnsupportedFormatError
from playhead.playback.decoder_source import WHOLE_STEP_BYTES, DecoderSource
from playhead.playback.formats import (
    HEAD_BYTES,
    PIECE_FRAMES,
    ByteRate,
    Identified,
    PcmFormat,
    RawPcm,
    duration_seconds,
    identify,
    mp3_bytes_per_second,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

_ffi, _lib = miniaudio.ffi, miniaudio.lib

FIRST_FRAMES = 1024
"""Frames of the first piece: less than one MP3 frame, so that audio starts with the first one."""
MP3_LOOKAHEAD_BYTES = 20 * 1024
"""Bytes that the MP3 decoder reads before it keeps pace with the audio: 16 KiB, which it holds while bytes
follow, and two steps."""
SEARCH_BYTES = {AudioFormat.MP3: 512 * 1024}
"""Limit of the search for the first audio. MPEG audio has almost no signature, so noise and error pages must
end here."""
HEADER_BYTES = 16 * 1024 * 1024
"""The same for formats with a signature: Vorbis and FLAC may have a cover picture in their headers."""

_ENCODINGS = {
    AudioFormat.MP3: miniaudio.FileFormat.MP3,
    AudioFormat.FLAC: miniaudio.FileFormat.FLAC,
    AudioFormat.WAV: miniaudio.FileFormat.WAV,
    AudioFormat.VORBIS: miniaudio.FileFormat.VORBIS,
}


class PcmDecoder(Protocol):
    """A blocking decoder, for one thread. An `av` decoder for more formats would implement it."""

    @property
    def format(self) -> PcmFormat: ...
    @property
    def duration_seconds(self) -> float | None: ...
    @property
    def bytes_per_second(self) -> float:
        """Stream bytes per second of audio, over the densest ten seconds so far. Known after the first
        `read`."""
        ...

    def read(self) -> Buffer:
        """Return the next piece of PCM, whole frames, valid until the next call; empty at the end.

        Raises the stream's own error, after the audio before it, and `DecodeError` if the bytes are damaged.
        """
        ...

    def close(self) -> None:
        """Free the decoder. Idempotent."""
        ...


def open_decoder(
    source: DecoderSource, *, mime_type: str | None, uri: str | None, size_bytes: int | None = None
) -> PcmDecoder:
    """Identify the stream, and read as far as its rate and channels. Blocks while bytes arrive.

    Raises `UnsupportedFormatError` without a decoder for it, and the stream's own error.
    """
    head = source.peek(SNIFF_BYTES)
    try:
        found = identify(head, mime_type=mime_type, uri=uri)
    except UnsupportedFormatError:
        if source.broken is not None and len(head) < SNIFF_BYTES:
            raise source.broken from None  # the head was cut off
        raise
    if found.raw is not None:
        return RawPcmDecoder(source, found.raw, size_bytes=size_bytes)
    source.search_bytes = SEARCH_BYTES.get(found.format, HEADER_BYTES)
    if found.format is AudioFormat.WAV:
        source.step_bytes = WHOLE_STEP_BYTES
    return MiniaudioDecoder(source, found, head=head)


class MiniaudioDecoder:
    """One of miniaudio's four decoders on a source."""

    def __init__(self, source: DecoderSource, found: Identified, *, head: bytes) -> None:
        self._source = source
        self._name = found.format.value
        self._handle = _ffi.new_handle(source)  # C holds no reference to it
        self._decoder = _ffi.new("ma_decoder *")
        self._open = False
        config = _lib.ma_decoder_config_init(miniaudio.SampleFormat.SIGNED16.value, 0, 0)
        config.encodingFormat = _ENCODINGS[found.format].value
        result = _lib.ma_decoder_init(
            _lib._internal_decoder_read_callback,
            _lib._internal_decoder_seek_callback,
            self._handle,
            _ffi.addressof(config),
            self._decoder,
        )
        if source.failure is not None:
            if result == _lib.MA_SUCCESS:
                _lib.ma_decoder_uninit(self._decoder)
            raise source.failure
        if result != _lib.MA_SUCCESS:
            if source.broken is not None:
                raise source.broken
            raise UnsupportedFormatError(
                f"expected {self._name}, as the first bytes say, got a stream that miniaudio cannot open "
                f"(result {result}): it is damaged, cut off, or in another format"
            )
        self._open = True
        self.format = PcmFormat(rate_hz=self._decoder.outputSampleRate, channels=self._decoder.outputChannels)
        # FLAC has it at its very beginning, the others just before the first audio.
        header = head if found.format is AudioFormat.FLAC else source.recent(HEAD_BYTES)
        self.duration_seconds = duration_seconds(header, audio_format=found.format, pcm=self.format)
        is_mp3 = found.format is AudioFormat.MP3
        self._byte_rate = ByteRate(
            mp3_bytes_per_second(header) if is_mp3 else None,
            lookahead_bytes=MP3_LOOKAHEAD_BYTES if is_mp3 else 0,
        )
        self._decoded_frames = 0
        self._frames = FIRST_FRAMES
        self._buffer = _ffi.new("int8_t[]", PIECE_FRAMES * self.format.frame_bytes)
        self._got = _ffi.new("ma_uint64 *")

    @property
    def bytes_per_second(self) -> float:
        return self._byte_rate.bytes_per_second

    def read(self) -> Buffer:
        if not self._open:
            return b""
        result = _lib.ma_decoder_read_pcm_frames(self._decoder, self._buffer, self._frames, self._got)
        frames = self._got[0]
        if frames:
            self._frames = PIECE_FRAMES
            self._decoded_frames += frames
            self._byte_rate.add(self._source.read_bytes, self._decoded_frames / self.format.rate_hz)
            piece: Buffer = _ffi.buffer(self._buffer, frames * self.format.frame_bytes)
            return piece
        self.close()
        if self._source.failure is not None:
            raise self._source.failure
        if result not in (_lib.MA_SUCCESS, _lib.MA_AT_END):
            raise DecodeError(
                f"the {self._name} decoder failed in mid-stream (miniaudio's result {result}): the bytes are "
                "damaged"
            )
        return b""

    def close(self) -> None:
        if self._open:
            self._open = False
            _lib.ma_decoder_uninit(self._decoder)


class RawPcmDecoder:
    """Samples without a header; only their byte order may change."""

    def __init__(self, source: DecoderSource, raw: RawPcm, *, size_bytes: int | None) -> None:
        self.format = raw.format
        self.bytes_per_second = float(raw.format.bytes_per_second)
        self.duration_seconds = None if size_bytes is None else size_bytes / raw.format.bytes_per_second
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
                samples = array("h", data[:whole])
                if self._swap:
                    samples.byteswap()
                return samples
        return b""  # half a frame at the end is dropped

    def close(self) -> None: ...
