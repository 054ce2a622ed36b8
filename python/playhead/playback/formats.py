"""Formats of streams, identified by the first bytes, then the MIME type, then the name.

Pure: bytes and strings in, a value or `UnsupportedFormatError` out. Servers mislabel media, so a real
signature wins. MPEG audio without a tag has a signature of only eleven set bits, so a MIME type of raw PCM
overrides it. Text is recognised in order to refuse an error page in place of music; a decoder would search it
for a frame.
"""

from __future__ import annotations

from dataclasses import dataclass

from playhead.content.audio import (
    AudioFormat,
    format_of_mime,
    format_of_uri,
    has_signature,
    sniff,
    split_mime,
)
from playhead.errors import UnsupportedFormatError

DECODED = frozenset({AudioFormat.MP3, AudioFormat.FLAC, AudioFormat.WAV, AudioFormat.VORBIS, AudioFormat.PCM})
"""Formats that this installation decodes."""

PLANNED = frozenset(
    {AudioFormat.OPUS, AudioFormat.OGG_FLAC, AudioFormat.AAC, AudioFormat.MP4, AudioFormat.WEBM}
)
"""Formats that PyAV decodes: a future extra `formats`."""

PIECE_FRAMES = 4096
"""Most frames of one piece from a decoder: 85 ms at 48 kHz."""
_MAX_RATE_HZ = 768_000
_MAX_CHANNELS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PcmFormat:
    """Signed 16-bit samples in the machine's byte order, interleaved."""

    rate_hz: int
    channels: int

    @property
    def frame_bytes(self) -> int:
        return 2 * self.channels

    @property
    def bytes_per_second(self) -> int:
        return self.rate_hz * self.frame_bytes


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

    Raises `UnsupportedFormatError` without a decoder for it: an empty stream, text, a known format that is
    not decoded, or unknown bytes and labels.
    """
    if not head:
        raise UnsupportedFormatError("expected audio, got an empty stream (0 bytes)")
    label = format_of_mime(mime_type)
    found = sniff(head)
    if label is AudioFormat.PCM and (found is None or not has_signature(head)):
        return Identified(format=AudioFormat.PCM, raw=parse_raw_pcm(mime_type or ""))
    if found is not None:
        _require_decoder(found, mime_type)
        return Identified(format=found)
    label = label or format_of_uri(uri)
    if label is None or label is AudioFormat.PCM:
        raise UnsupportedFormatError(
            f"expected a known audio format, got a stream that begins with {head[:8].hex(' ')} and has the "
            f"type {mime_type!r}. {_DECODED_TEXT}"
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
    missing (RFC 2586 requires it; a guess would play at the wrong speed) or outside 1..768000, or if the
    channels are outside 1..32.
    """
    kind, parameters = split_mime(mime_type)
    try:
        rate_hz = int(parameters.get("rate", ""))
        channels = int(parameters.get("channels", "1"))
    except ValueError:
        rate_hz = channels = 0
    if not (0 < rate_hz <= _MAX_RATE_HZ and 0 < channels <= _MAX_CHANNELS):
        raise UnsupportedFormatError(
            f"raw PCM: expected its rate in the MIME type, as in audio/L16;rate=16000;channels=1 (rate 1 to "
            f"{_MAX_RATE_HZ}, channels 1 to {_MAX_CHANNELS}), got {mime_type!r}"
        )
    return RawPcm(format=PcmFormat(rate_hz=rate_hz, channels=channels), big_endian=kind == "audio/l16")


_DECODED_TEXT = "playhead plays MP3, FLAC, WAV, Ogg Vorbis and raw 16-bit PCM"


def _require_decoder(found: AudioFormat, mime_type: str | None) -> None:
    if found in DECODED:
        return
    if found in PLANNED:
        remedy = "a decoder for it is planned as the extra `formats`, which this version does not have yet"
    else:
        remedy = "ask the server for one of these"
    labelled = f" (labelled {mime_type!r})" if mime_type else ""
    raise UnsupportedFormatError(f"the stream is {found.value}{labelled}. {_DECODED_TEXT}; {remedy}")
