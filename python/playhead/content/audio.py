"""Detection of audio formats by first bytes, MIME type or name.

The classifier uses these tables to detect audio links, the player to choose a decoder.
"""

from __future__ import annotations

import enum
import mimetypes
from collections.abc import Callable
from pathlib import PurePath
from urllib.parse import urlsplit

from playhead.content.coded_frames import CodedFrame, adts_frame, mpeg_frame

SNIFF_BYTES = 64
"""The number of bytes for `sniff`. They cover an Ogg page header and the name of its codec (28 + 8 bytes)."""


class AudioFormat(enum.Enum):
    """Audio formats, with their names for listeners."""

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


_FORMAT_BY_MIME = {
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
MIME_OF = {audio_format: kind for kind, audio_format in reversed(_FORMAT_BY_MIME.items())} | {
    AudioFormat.VORBIS: "audio/ogg",
    AudioFormat.OPUS: "audio/ogg; codecs=opus",
    AudioFormat.OGG_FLAC: "audio/ogg; codecs=flac",
    AudioFormat.OGG: "audio/ogg",
}
"""The MIME types of files. In Ogg they name the codec (RFC 5334): `audio/ogg` alone used to mean Vorbis."""
_FORMAT_BY_SUFFIX = {
    ".mp3": AudioFormat.MP3,
    ".flac": AudioFormat.FLAC,
    ".wav": AudioFormat.WAV,
    ".ogg": AudioFormat.VORBIS,
    ".oga": AudioFormat.VORBIS,
    ".opus": AudioFormat.OPUS,
    ".aac": AudioFormat.AAC,
    ".m4a": AudioFormat.MP4,
    ".mp4": AudioFormat.MP4,
    ".m4b": AudioFormat.MP4,
    ".webm": AudioFormat.WEBM,
    ".weba": AudioFormat.WEBM,
    ".mka": AudioFormat.WEBM,
    ".aif": AudioFormat.AIFF,
    ".aiff": AudioFormat.AIFF,
    ".mid": AudioFormat.MIDI,
}
_OGG_CODECS = (
    (b"\x01vorbis", AudioFormat.VORBIS),
    (b"OpusHead", AudioFormat.OPUS),
    (b"\x7fFLAC", AudioFormat.OGG_FLAC),
)


def sniff(head: bytes) -> AudioFormat | None:
    """Detect the format from the first bytes, or return None. Pass `SNIFF_BYTES`, or all data if shorter."""
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return AudioFormat.WAV
    if head[:4] == b"fLaC":
        return AudioFormat.FLAC
    if head[:4] == b"OggS":
        return next((audio_format for name, audio_format in _OGG_CODECS if name in head), AudioFormat.OGG)
    if head[:3] == b"ID3":
        # A tag does not identify the audio after it; FLAC and AAC there are rare, and dr_mp3 rejects them.
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
    return _sniff_frame_header(head)


def format_of_mime(mime_type: str | None) -> AudioFormat | None:
    """Return the format for a MIME type, ignoring case and parameters, or None if unknown."""
    return _FORMAT_BY_MIME.get(split_mime(mime_type)[0]) if mime_type else None


def mime_of(audio_format: AudioFormat | None) -> str | None:
    """Return the MIME type of a format, without parameters; None for no format, and for text."""
    return split_mime(MIME_OF[audio_format])[0] if audio_format in MIME_OF else None


def mime_of_file(name: str, head: bytes) -> str | None:
    """Return the MIME type of an audio file, whether playhead can play it or not; None for another file.

    A signature in `head`, the first bytes, decides. Without one, the suffix of `name` does.
    """
    suffix = PurePath(name).suffix
    named_format = _FORMAT_BY_SUFFIX.get(suffix.lower())
    guessed_mime = mimetypes.guess_type(f"x{suffix}")[0] or ""
    actual = sniff(head)
    if named_format is None and (actual is AudioFormat.TEXT or not guessed_mime.startswith("audio/")):
        return None
    if actual is AudioFormat.WEBM and b"matroska" in head:
        return "audio/matroska"
    if actual is None or not has_signature(head) or head[:3] == b"ID3":  # any format may follow a tag
        actual = named_format
    return guessed_mime if actual is None else MIME_OF[actual]


def format_of_uri(uri: str | None) -> AudioFormat | None:
    """Return the format for the suffix of a URI's path, or None if unknown."""
    return _FORMAT_BY_SUFFIX.get(_suffix(uri))


def _suffix(uri: str | None) -> str:
    try:
        parts = urlsplit(uri or "")
    except ValueError:
        return ""
    path = parts.path
    if not path and parts.scheme not in ("http", "https"):
        path = parts.netloc  # `resource://song.mp3`: a name in place of the host
    # PurePosixPath would take half as long as the rest of classifying a block.
    stem, dot, end = path.rstrip("/").rpartition("/")[2].rpartition(".")
    return f"{dot}{end.lower()}" if stem and end else ""


def split_mime(mime_type: str) -> tuple[str, dict[str, str]]:
    """Split a MIME type into `type/subtype`, in lower case, and its parameters."""
    kind, *rest = mime_type.split(";")
    pairs = (parameter.partition("=") for parameter in rest)
    return kind.strip().lower(), {name.strip().lower(): value.strip(' \t"') for name, _, value in pairs}


def has_signature(head: bytes) -> bool:
    """Return True for a real signature, False for text or a mere frame sync (eleven set bits)."""
    return _sniff_frame_header(head) is None and sniff(head) is not AudioFormat.TEXT


def _is_text(head: bytes) -> bool:
    """Return True for printable ASCII, which no audio signature is, or for UTF-8 with a byte order mark."""
    if head[:3] == b"\xef\xbb\xbf":
        return True
    return len(head) >= 4 and all(byte in b"\t\n\r" or 0x20 <= byte < 0x7F for byte in head)


def _sniff_frame_header(head: bytes) -> AudioFormat | None:
    """Detect an MPEG audio frame header (ISO 11172-3, 2.4.1.3); its layer bits distinguish it from ADTS."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    if head[1] & 0xF6 == 0xF0:
        return AudioFormat.AAC
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bit_rate, sample_rate = head[2] >> 4, head[2] >> 2 & 3
    if version == 1 or layer == 0 or bit_rate == 15 or sample_rate == 3:
        return None
    return AudioFormat.MP3


_VIDEO_SUFFIXES = frozenset({".mp4", ".webm"})
"""These suffixes are as common for video as for audio, so that they are not enough to play a file."""
AUDIO_SUFFIXES = tuple(suffix for suffix in _FORMAT_BY_SUFFIX if suffix not in _VIDEO_SUFFIXES)
"""The suffixes of files that hold audio and nothing else."""
_MAX_SUFFIX_CHARS = 5
"""The longest suffix of a file type: `.xhtml`. Anything longer or without letters belongs to a title."""
_INCONCLUSIVE_MIME = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/binary"})


def is_audio(mime_type: str | None, uri: str | None) -> bool | None:
    """Return True if the MIME type, else the URI's suffix, names audio; None if both are inconclusive.

    `application/octet-stream` is inconclusive. `application/ogg` counts as audio (RFC 3534 used it for
    Vorbis, before RFC 5334 registered `audio/ogg`).
    """
    kind = (mime_type or "").partition(";")[0].strip().lower()
    if kind not in _INCONCLUSIVE_MIME:
        return kind.startswith("audio/") or kind == "application/ogg"
    suffix = _suffix(uri)
    if suffix in _VIDEO_SUFFIXES:
        return False
    if suffix in _FORMAT_BY_SUFFIX:
        return True
    return False if _is_file_type(suffix) else None


def _is_file_type(suffix: str) -> bool:
    """Return True for a plausible file type, unlike the dots in `Mr.%20Brightside` and `track.42`."""
    name = suffix[1:]
    return len(name) <= _MAX_SUFFIX_CHARS and name.isascii() and name.isalnum() and not name.isdigit()


HEADER_BYTES = 8192
"""Covers two frames of MPEG audio or ADTS, of any size."""
_AUDIO_BRANDS = frozenset({b"M4A ", b"M4B "})
"""Brands of `ftyp` files (ISO 14496-12, 4.3) that hold audio only."""
_UTF16_MARK = b"\xff\xfe"
"""Resembles an MPEG frame (Layer I, with a checksum), but is far more often text."""


def header_format(head: bytes, size_bytes: int, *, labelled: bool) -> AudioFormat | None:
    """Return the format of data that begins with a whole audio header; otherwise None.

    This is stricter than `sniff`, for data of unknown origin: sizes and versions must be right, and MPEG
    audio or ADTS must begin with two frames. Pass `HEADER_BYTES` of the data, or all of it if shorter, and
    its size. `labelled` is True if a MIME type names audio; without it, containers that often hold video are
    None.
    """
    audio_format, is_whole = sniff(head), False
    match audio_format:
        case AudioFormat.WAV:
            is_whole = head[12:15].isalnum() and int.from_bytes(head[16:20], "little") < size_bytes
        case AudioFormat.FLAC:
            is_whole = head[5:8] == b"\0\0\x22" and head[4] & 0x7F == 0  # STREAMINFO of 34 bytes
        case AudioFormat.VORBIS | AudioFormat.OPUS | AudioFormat.OGG_FLAC:
            is_whole = head[4] == 0 and head[5] & 2 == 2  # version 0, the first page
        case AudioFormat.MP4:
            is_whole = 8 < int.from_bytes(head[:4]) < 256 and (labelled or head[8:12] in _AUDIO_BRANDS)
        case AudioFormat.WEBM:
            is_whole = labelled
        case AudioFormat.MP3 if head[:3] == b"ID3":
            is_whole = head[3:4] in (b"\2", b"\3", b"\4") and _has_id3_size(head, size_bytes)
        case AudioFormat.MP3:
            is_whole = _begins_with_two(mpeg_frame, head)
        case AudioFormat.AAC:
            is_whole = _begins_with_two(adts_frame, head)
    return audio_format if is_whole else None


def _has_id3_size(head: bytes, size_bytes: int) -> bool:
    """Return True if the size of an ID3 tag has bytes below 128 only, and is less than that of the data."""
    digits = head[6:10]
    if not digits or max(digits) >= 128:
        return False
    tag_bytes = sum(digit << shift for digit, shift in zip(digits, (21, 14, 7, 0), strict=False))
    return tag_bytes < size_bytes


def _begins_with_two(read_frame: Callable[[bytes, int], CodedFrame | None], head: bytes) -> bool:
    frame = read_frame(head, 0)
    return frame is not None and read_frame(head, frame.size_bytes) is not None


def is_playable_audio(head: bytes) -> bool:
    """Return True if playhead should play a resource that begins with `head`, even if nobody asked for it.

    Matroska and MP4 hold films as often as music, so it is False for them, except for MP4 of a brand that
    holds audio only. Their suffixes do not suffice either (`is_audio`).
    """
    match sniff(head):
        case None | AudioFormat.TEXT | AudioFormat.WEBM:
            return False
        case AudioFormat.MP4:
            return head[8:12] in _AUDIO_BRANDS
        case _:
            return not head.startswith(_UTF16_MARK)
