"""Which format a stream is in, from its first bytes, then its MIME type, then its name.

Pure: bytes and strings in, a value or `UnsupportedFormatError` out. Servers mislabel media, so what the
bytes say with a real signature wins; MPEG audio without a tag has only eleven set bits for a signature,
so a MIME type that says raw PCM is believed before it. Text is recognised to refuse an error page that
came in place of music; it is never handed to a decoder, which would search it for a frame.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from playhead.errors import UnsupportedFormatError

SNIFF_BYTES = 64
"""Enough for an Ogg page header and the codec's name in the first packet (28 + 8)."""


class AudioFormat(enum.Enum):
    """What a stream is, as a listener would name it."""

    MP3 = "MP3"
    FLAC = "FLAC"
    WAV = "WAV"
    VORBIS = "Ogg Vorbis"
    PCM = "raw PCM"
    OPUS = "Ogg Opus"
    OGG_FLAC = "FLAC in Ogg"
    AAC = "AAC (ADTS)"
    MP4 = "MP4/M4A"
    OGG = "Ogg with an unknown codec"
    WEBM = "WebM/Matroska"
    AIFF = "AIFF"
    MIDI = "MIDI"
    TEXT = "text, not audio"


DECODED = frozenset({AudioFormat.MP3, AudioFormat.FLAC, AudioFormat.WAV, AudioFormat.VORBIS, AudioFormat.PCM})
"""What this installation turns into sound."""

PLANNED = frozenset(
    {AudioFormat.OPUS, AudioFormat.OGG_FLAC, AudioFormat.AAC, AudioFormat.MP4, AudioFormat.WEBM}
)
"""What PyAV decodes: the extra `formats`, once it exists."""

_MIME = {
    "audio/mpeg": AudioFormat.MP3,
    "audio/mp3": AudioFormat.MP3,
    "audio/x-mp3": AudioFormat.MP3,
    "audio/x-mpeg": AudioFormat.MP3,
    "audio/flac": AudioFormat.FLAC,
    "audio/x-flac": AudioFormat.FLAC,
    "audio/wav": AudioFormat.WAV,
    "audio/wave": AudioFormat.WAV,
    "audio/x-wav": AudioFormat.WAV,
    "audio/vnd.wave": AudioFormat.WAV,
    "audio/vorbis": AudioFormat.VORBIS,
    "audio/opus": AudioFormat.OPUS,
    "audio/aac": AudioFormat.AAC,
    "audio/aacp": AudioFormat.AAC,
    "audio/mp4": AudioFormat.MP4,
    "audio/m4a": AudioFormat.MP4,
    "audio/x-m4a": AudioFormat.MP4,
    "audio/webm": AudioFormat.WEBM,
    "audio/aiff": AudioFormat.AIFF,
    "audio/x-aiff": AudioFormat.AIFF,
    "audio/midi": AudioFormat.MIDI,
    "audio/l16": AudioFormat.PCM,
    "audio/pcm": AudioFormat.PCM,
    "audio/x-pcm": AudioFormat.PCM,
}
_SUFFIX = {
    ".mp3": AudioFormat.MP3,
    ".flac": AudioFormat.FLAC,
    ".wav": AudioFormat.WAV,
    ".ogg": AudioFormat.VORBIS,
    ".oga": AudioFormat.VORBIS,
    ".opus": AudioFormat.OPUS,
    ".aac": AudioFormat.AAC,
    ".m4a": AudioFormat.MP4,
    ".mp4": AudioFormat.MP4,
    ".webm": AudioFormat.WEBM,
    ".aif": AudioFormat.AIFF,
    ".aiff": AudioFormat.AIFF,
    ".mid": AudioFormat.MIDI,
}
_OGG_CODECS = (
    (b"\x01vorbis", AudioFormat.VORBIS),
    (b"OpusHead", AudioFormat.OPUS),
    (b"\x7fFLAC", AudioFormat.OGG_FLAC),
)
PIECE_FRAMES = 4096
"""Most frames that a decoder gives at once: 85 ms at 48 kHz."""
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
    """A format that is decoded here. `raw` is set for raw PCM only."""

    format: AudioFormat
    raw: RawPcm | None = None


def sniff(head: bytes) -> AudioFormat | None:
    """What the first bytes say, or None where they say nothing. Wants `SNIFF_BYTES`, or the whole."""
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return AudioFormat.WAV
    if head[:4] == b"fLaC":
        return AudioFormat.FLAC
    if head[:4] == b"OggS":
        return next((found for name, found in _OGG_CODECS if name in head), AudioFormat.OGG)
    if head[:3] == b"ID3":
        # A tag says nothing of what follows it; FLAC and AAC behind one are rare, and dr_mp3 refuses them.
        return AudioFormat.MP3
    if head[4:8] == b"ftyp":
        return AudioFormat.MP4
    if head[:4] == b"\x1aE\xdf\xa3":
        return AudioFormat.WEBM
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return AudioFormat.AIFF
    if head[:4] == b"MThd":
        return AudioFormat.MIDI
    if _is_text(head):
        return AudioFormat.TEXT
    return _sniff_sync(head)


def identify(head: bytes, *, mime_type: str | None, uri: str | None) -> Identified:
    """The format of a stream that begins with `head` (`SNIFF_BYTES` of it, or the whole if it is shorter).

    Raises `UnsupportedFormatError` where nobody here decodes it: an empty stream, text, a known format
    without a decoder, or bytes and labels that say nothing.
    """
    if not head:
        raise UnsupportedFormatError("expected audio, but the stream is empty (0 bytes): nothing to play")
    label = _from_mime(mime_type)
    found = sniff(head)
    if label is AudioFormat.PCM and (found is None or not _has_signature(head)):
        return Identified(format=AudioFormat.PCM, raw=parse_raw_pcm(mime_type or ""))
    if found is not None:
        _require_decoder(found, mime_type)
        return Identified(format=found)
    label = label or _from_uri(uri)
    if label is None or label is AudioFormat.PCM:
        raise UnsupportedFormatError(
            f"the stream is in no audio format known here: it begins with {head[:8].hex(' ')}, its type is "
            f"{mime_type!r}. {_DECODED_TEXT}"
        )
    _require_decoder(label, mime_type)
    if label is not AudioFormat.MP3:
        # Every other format has a signature, and it is not there.
        raise UnsupportedFormatError(
            f"expected {label.value} ({mime_type or uri}), but the stream begins with {head[:8].hex(' ')}, "
            f"which is not {label.value}: the server mislabels or damages it"
        )
    return Identified(format=label)


def parse_raw_pcm(mime_type: str) -> RawPcm:
    """The parameters of `audio/L16;rate=16000;channels=1` or `audio/pcm;rate=...`.

    `channels` is 1 by default (RFC 3551, section 4.5.11). Raises `UnsupportedFormatError` where the rate
    is missing (RFC 2586 requires it; a guess would play at the wrong speed) or out of 1..768000, or the
    channels are out of 1..32.
    """
    kind, parameters = _split_mime(mime_type)
    try:
        rate_hz = int(parameters.get("rate", ""))
        channels = int(parameters.get("channels", "1"))
    except ValueError:
        rate_hz = channels = 0
    if not (0 < rate_hz <= _MAX_RATE_HZ and 0 < channels <= _MAX_CHANNELS):
        raise UnsupportedFormatError(
            f"raw PCM needs its rate in the MIME type, as in audio/L16;rate=16000;channels=1 (rate 1 to "
            f"{_MAX_RATE_HZ}, channels 1 to {_MAX_CHANNELS}); the server said {mime_type!r}"
        )
    return RawPcm(format=PcmFormat(rate_hz=rate_hz, channels=channels), big_endian=kind == "audio/l16")


def _is_text(head: bytes) -> bool:
    """Printable ASCII throughout, which no audio signature is, or UTF-16/UTF-8 with a mark."""
    if head[:3] == b"\xef\xbb\xbf":
        return True
    return len(head) >= 4 and all(byte in b"\t\n\r" or 0x20 <= byte < 0x7F for byte in head)


def _has_signature(head: bytes) -> bool:
    return _sniff_sync(head) is None and sniff(head) is not AudioFormat.TEXT


def _sniff_sync(head: bytes) -> AudioFormat | None:
    """MPEG audio's frame header (ISO 11172-3, 2.4.1.3), told from ADTS by its layer bits."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    if head[1] & 0xF6 == 0xF0:
        return AudioFormat.AAC
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bit_rate, sample_rate = head[2] >> 4, head[2] >> 2 & 3
    if version == 1 or layer == 0 or bit_rate == 15 or sample_rate == 3:
        return None
    return AudioFormat.MP3


def _split_mime(mime_type: str) -> tuple[str, dict[str, str]]:
    kind, *rest = mime_type.split(";")
    pairs = (parameter.partition("=") for parameter in rest)
    return kind.strip().lower(), {name.strip().lower(): value.strip(' \t"') for name, _, value in pairs}


def _from_mime(mime_type: str | None) -> AudioFormat | None:
    return _MIME.get(_split_mime(mime_type)[0]) if mime_type else None


def _from_uri(uri: str | None) -> AudioFormat | None:
    if not uri:
        return None
    try:
        path = urlsplit(uri).path
    except ValueError:
        return None
    return _SUFFIX.get(PurePosixPath(path).suffix.lower())


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
