"""Identification of a stream's format by its first bytes, then its MIME type, then its name.

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
from playhead.extras import has_extra
from playhead.playback.formats import MAX_CHANNELS, MAX_RATE_HZ, PcmFormat

DECODED = frozenset({AudioFormat.MP3, AudioFormat.FLAC, AudioFormat.WAV, AudioFormat.VORBIS, AudioFormat.PCM})
"""Formats that every installation decodes."""

EXTRA_DECODED = frozenset(
    {AudioFormat.OPUS, AudioFormat.OGG_FLAC, AudioFormat.AAC, AudioFormat.MP4, AudioFormat.WEBM}
)
"""Formats that PyAV decodes, with the extra `formats`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawPcm:
    """The parameters of headerless samples. `audio/L16` is big-endian (RFC 3551), `audio/pcm`
    little-endian."""

    format: PcmFormat
    big_endian: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Identified:
    """A format with a decoder. `raw` is set for raw PCM only."""

    format: AudioFormat
    raw: RawPcm | None = None


def identify(head: bytes, *, mime_type: str | None, uri: str | None) -> Identified:
    """Identify a stream by `head`, its first `SNIFF_BYTES`, or the whole stream if it is shorter.

    Raises `UnsupportedFormatError` for an empty stream, for text, for a known format without a decoder, and
    if neither bytes nor labels are known.
    """
    if not head:
        raise UnsupportedFormatError("expected audio, got an empty stream (0 bytes)")
    label = format_of_mime(mime_type)
    actual = sniff(head)
    # Raw samples may look like an MPEG frame or like text. `sniff` returns these formats, but only a real
    # signature outweighs the label.
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
            f" {_decoded_text()}"
        )
    _require_decoder(label, mime_type)
    if label is not AudioFormat.MP3:
        # Every other format has a signature, which is missing.
        raise UnsupportedFormatError(
            f"expected {label.value} ({mime_type or uri}), got a stream that begins with "
            f"{head[:8].hex(' ')}, which is not {label.value}: it is mislabelled or damaged"
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


def _decoded_text() -> str:
    extra = ", Opus, AAC, ALAC" if has_extra("formats") else ""
    return f"playhead plays MP3, FLAC, WAV, Ogg Vorbis{extra} and raw 16-bit PCM"


def _require_decoder(actual: AudioFormat, mime_type: str | None) -> None:
    if actual in DECODED or (actual in EXTRA_DECODED and has_extra("formats")):
        return
    if actual in EXTRA_DECODED:
        remedy = "the extra `formats` adds it: pip install 'playhead[formats]'"
    else:
        remedy = "choose one of these"
    labelled = f" (labelled {mime_type!r})" if mime_type else ""
    raise UnsupportedFormatError(f"the stream is {actual.value}{labelled}. {_decoded_text()}; {remedy}")
