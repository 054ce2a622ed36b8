"""Formats of streams, identified by the first bytes, then the MIME type, then the name, and their timing.

Pure: bytes and strings in, a value or `UnsupportedFormatError` out. Servers mislabel media, so a real
signature wins. MPEG audio without a tag has a signature of only eleven set bits, so a MIME type of raw PCM
overrides it. Text is recognised in order to refuse an error page in place of music; a decoder would search it
for a frame.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from playhead.content.audio import (
    AudioFormat,
    format_of_mime,
    format_of_uri,
    has_signature,
    sniff,
    split_mime,
)
from playhead.errors import UnsupportedFormatError
from playhead.extras import has_extra

DECODED = frozenset({AudioFormat.MP3, AudioFormat.FLAC, AudioFormat.WAV, AudioFormat.VORBIS, AudioFormat.PCM})
"""Formats that every installation decodes."""

EXTRA_DECODED = frozenset(
    {AudioFormat.OPUS, AudioFormat.OGG_FLAC, AudioFormat.AAC, AudioFormat.MP4, AudioFormat.WEBM}
)
"""Formats that PyAV decodes, with the extra `formats`."""

PIECE_FRAMES = 4096
"""PCM frames of a piece from a decoder that may have to wait for bytes: 85 ms at 48 kHz."""
FIRST_FRAMES = 1024
"""PCM frames of the first piece: fewer than the 1152 of an MP3 frame at 32 kHz or more, so that one MP3 frame
is enough to start."""
LARGE_PIECE_SECONDS = 0.25
"""Audio of a piece whose bytes are in hand. Between two pieces a decoder's thread takes the GIL several
times, and the threads of all players wait for it: with long pieces, 128 players took a quarter less CPU."""
MAX_RATE_HZ = 384_000
"""The highest rate of a device, and of miniaudio's WAV decoder."""
MIN_CONVERTED_HZ = 8000
"""The lowest rate to convert to: a telephone's, and miniaudio's lowest standard rate. Files may have a lower
rate, but a request for one is a slip, such as kHz in place of Hz."""
MAX_CHANNELS = 32


class SampleFormat(StrEnum):
    """The type of a sample, in the machine's byte order. Two are enough: a float holds 24 bits exactly."""

    S16 = "s16"
    """Signed 16-bit integer."""
    F32 = "f32"
    """32-bit float, full scale from -1 to 1."""

    @property
    def sample_bytes(self) -> int:
        return 2 if self is SampleFormat.S16 else 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PcmFormat:
    """Interleaved samples. A file of at most 16 bits is decoded to `S16`, a deeper one to `F32`."""

    rate_hz: int
    channels: int
    sample: SampleFormat = SampleFormat.S16

    @property
    def frame_bytes(self) -> int:
        return self.sample.sample_bytes * self.channels

    @property
    def bytes_per_second(self) -> int:
        return self.rate_hz * self.frame_bytes


def require_playable(pcm: PcmFormat) -> PcmFormat:
    """Return `pcm`, as the headers of a file claim it. Raises `UnsupportedFormatError` beyond any device."""
    if not (0 < pcm.rate_hz <= MAX_RATE_HZ and 0 < pcm.channels <= MAX_CHANNELS):
        raise UnsupportedFormatError(
            f"expected audio of 1 to {MAX_RATE_HZ} Hz with 1 to {MAX_CHANNELS} channels, got {pcm.rate_hz} Hz"
            f" and {pcm.channels}: the file is damaged, or not for playing"
        )
    return pcm


@dataclass(frozen=True, slots=True, kw_only=True)
class RawPcm:
    """The parameters of headerless samples: `audio/L16` is big-endian (RFC 3551), `audio/pcm` little."""

    format: PcmFormat
    big_endian: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Identified:
    """A format with a decoder. `raw` is set for raw PCM only."""

    format: AudioFormat
    raw: RawPcm | None = None


def identify(head: bytes, *, mime_type: str | None, uri: str | None) -> Identified:
    """Identify a stream by `head`, its first `SNIFF_BYTES`, or the whole stream if it is shorter.

    Raises `UnsupportedFormatError` for an empty stream, text, a known format without a decoder, and unknown
    bytes and labels.
    """
    if not head:
        raise UnsupportedFormatError("expected audio, got an empty stream (0 bytes)")
    label = format_of_mime(mime_type)
    actual = sniff(head)
    # Raw samples may look like a frame sync or like text, which `sniff` finds, but which are no signature.
    if label is AudioFormat.PCM and (actual is None or not has_signature(head)):
        return Identified(format=AudioFormat.PCM, raw=parse_raw_pcm(mime_type or ""))
    if actual is not None:
        _require_decoder(actual, mime_type)
        return Identified(format=actual)
    label = label or format_of_uri(uri)
    if label is None or label is AudioFormat.PCM:
        kind = f" and has the type {mime_type!r}" if mime_type else ""
        raise UnsupportedFormatError(
            f"expected a known audio format, got a stream that begins with {head[:8].hex(' ')}{kind}."
            f" {_DECODED_TEXT}"
        )
    _require_decoder(label, mime_type)
    if label is not AudioFormat.MP3:
        # Every other format has a signature, which is missing.
        raise UnsupportedFormatError(
            f"expected {label.value} ({mime_type or uri}), got a stream that begins with "
            f"{head[:8].hex(' ')}, which is not {label.value}: the server mislabels or damages it"
        )
    return Identified(format=label)


def parse_raw_pcm(mime_type: str) -> RawPcm:
    """Parse the parameters of `audio/L16;rate=16000;channels=1` or `audio/pcm;rate=...`.

    `channels` is 1 by default (RFC 3551, section 4.5.11). Raises `UnsupportedFormatError` if the rate is
    missing (RFC 2586 requires it; a guess would play at the wrong speed) or outside 1..384000, or if the
    channels are outside 1..32.
    """
    kind, parameters = split_mime(mime_type)
    try:
        rate_hz = int(parameters.get("rate", ""))
        channels = int(parameters.get("channels", "1"))
    except ValueError:
        rate_hz = channels = 0
    if not (0 < rate_hz <= MAX_RATE_HZ and 0 < channels <= MAX_CHANNELS):
        raise UnsupportedFormatError(
            f"raw PCM: expected its rate in the MIME type, as in audio/L16;rate=16000;channels=1 (rate 1 to "
            f"{MAX_RATE_HZ}, channels 1 to {MAX_CHANNELS}), got {mime_type!r}"
        )
    return RawPcm(format=PcmFormat(rate_hz=rate_hz, channels=channels), big_endian=kind == "audio/l16")


_DECODED_TEXT = "playhead plays MP3, FLAC, WAV, Ogg Vorbis and raw 16-bit PCM"


def _require_decoder(actual: AudioFormat, mime_type: str | None) -> None:
    if actual in DECODED or (actual in EXTRA_DECODED and has_extra("formats")):
        return
    if actual in EXTRA_DECODED:
        remedy = "the extra `formats` adds it: pip install 'playhead[formats]'"
    else:
        remedy = "ask the server for one of these"
    labelled = f" (labelled {mime_type!r})" if mime_type else ""
    raise UnsupportedFormatError(f"the stream is {actual.value}{labelled}. {_DECODED_TEXT}; {remedy}")


# --- timing ----------------------------------------------------------------------------------------------

# The byte rate turns bytes in hand into audio in hand. A decoder of a constant rate knows it from the first
# frame. Other rates are measured while decoding, and the highest ten-second mean counts, because a link has
# to carry the densest part of the music.

WINDOW_SECONDS = 10.0
"""The window of a mean rate: shorter than a verse, longer than a drum break."""
_MARK_SECONDS = 0.5
"""The distance between the places where the window may begin, of which 20 are remembered."""
_TRUSTED_SECONDS = 2.0
"""The least audio whose measured mean counts if the header has a rate: a decoder reads in steps of 2 KiB,
which distort the mean of less."""


class ByteRate:
    """The byte rate of one decoder.

    `announced` is the rate in the stream's header, if any. `lookahead_bytes` is how much the decoder reads
    before it keeps pace with the audio: measuring starts after that.
    """

    def __init__(self, announced: float | None = None, *, lookahead_bytes: int = 0) -> None:
        self._announced = announced or 0.0
        self._lookahead_bytes = lookahead_bytes
        self._marks: deque[tuple[float, int]] = deque()
        """(seconds, bytes) of places in the newest window, the oldest first."""
        self._mean = 0.0
        self._highest = 0.0

    @property
    def bytes_per_second(self) -> float:
        """The highest ten-second mean, or before ten seconds the mean so far; never less than the
        header's."""
        return max(self._announced, self._highest or self._mean)

    def add(self, read_bytes: int, audio_seconds: float) -> None:
        """Record how many bytes the decoder has read, and how much audio it made of them. Both only grow."""
        if not self._marks:
            self._mean = 0.0 if self._announced else read_bytes / audio_seconds
            if read_bytes >= self._lookahead_bytes:
                self._marks.append((audio_seconds, read_bytes))
            return
        start_seconds, start_bytes = self._marks[0]
        seconds = audio_seconds - start_seconds
        if seconds >= (_TRUSTED_SECONDS if self._announced else 0.0) and read_bytes > start_bytes:
            self._mean = (read_bytes - start_bytes) / seconds
        if audio_seconds - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((audio_seconds, read_bytes))
        if seconds >= WINDOW_SECONDS:
            self._highest = max(self._highest, self._mean)
            self._marks.popleft()
