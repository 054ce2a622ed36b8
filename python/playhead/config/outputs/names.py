"""Names in the output folder. What a server says is only ever shown in them, never obeyed.

* A tool's folder is its id where that is plain (lower-case ASCII letters, digits, `_`, `-`). Any other id
  gets what is plain of it and a hash of the whole behind a `~`, which no plain name holds. So two ids never
  share a folder, whatever a file system makes of case or of Unicode's normal forms.
* A file is the SHA-256 of its bytes and a suffix from a table: no server chooses either.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from playhead.content.audio import AudioFormat, sniff, split_mime

HASH_DIGITS: Final = 20
"""80 bits. Where somebody finds two ids that share them, the records still tell the calls apart."""
READABLE_CHARS: Final = 80
PLAIN: Final = re.compile(rf"[a-z0-9][a-z0-9_-]{{0,{READABLE_CHARS - 1}}}")
TOOL_FOLDER: Final = re.compile(
    rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{READABLE_CHARS - 1}}}(~[0-9a-f]{{{HASH_DIGITS}}})?"
)
DATA_FILE: Final = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{1,8}")
RECORD_ID: Final = re.compile(r"[0-9]{8}T[0-9]{12}-[0-9a-f]{8}")
RECORD_SUFFIX: Final = ".record.json"
PARTIAL: Final = re.compile(r"\.[0-9a-f]{16}\.part")

_RESERVED: Final = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}
)
"""Devices, in any folder of a Windows or SMB file system."""

_MIME: Final = re.compile(r"[a-z0-9!#$&^_.+-]{1,64}/[a-z0-9!#$&^_.+-]{1,64}")
ANY_BYTES: Final = "application/octet-stream"

_SUFFIXES: Final = {
    "text/plain": "txt",
    "text/markdown": "md",
    "text/x-markdown": "md",
    "text/html": "html",
    "text/csv": "csv",
    "text/xml": "xml",
    "text/css": "css",
    "text/vtt": "vtt",
    "application/x-subrip": "srt",
    "application/json": "json",
    "application/xml": "xml",
    "application/yaml": "yaml",
    "application/pdf": "pdf",
    "application/zip": "zip",
    "application/gzip": "gz",
    "application/ogg": "ogg",
    "application/xhtml+xml": "xhtml",
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/jpg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/avif": "avif",
    "image/bmp": "bmp",
    "image/tiff": "tiff",
    "image/svg+xml": "svg",
    "image/x-icon": "ico",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/x-mp3": "mp3",
    "audio/x-mpeg": "mp3",
    "audio/flac": "flac",
    "audio/x-flac": "flac",
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/vnd.wave": "wav",
    "audio/ogg": "ogg",
    "audio/vorbis": "ogg",
    "audio/opus": "opus",
    "audio/aac": "aac",
    "audio/aacp": "aac",
    "audio/mp4": "m4a",
    "audio/m4a": "m4a",
    "audio/x-m4a": "m4a",
    "audio/webm": "weba",
    "audio/aiff": "aiff",
    "audio/midi": "mid",
    "audio/l16": "pcm",
    "audio/pcm": "pcm",
    "audio/x-pcm": "pcm",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/ogg": "ogv",
}
_SNIFFED: Final = {
    AudioFormat.MP3: "mp3",
    AudioFormat.FLAC: "flac",
    AudioFormat.WAV: "wav",
    AudioFormat.VORBIS: "ogg",
    AudioFormat.OPUS: "opus",
    AudioFormat.OGG_FLAC: "oga",
    AudioFormat.OGG: "ogg",
    AudioFormat.AAC: "aac",
    AudioFormat.WEBM: "webm",
    AudioFormat.AIFF: "aiff",
    AudioFormat.MIDI: "mid",
}
_IMAGE_MAGIC: Final = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpg"), (b"GIF8", "gif"))


def folder_name(tool_id: str) -> str:
    """The folder of a tool: always one plain name, another one for every other id."""
    if PLAIN.fullmatch(tool_id) and tool_id not in _RESERVED:
        return tool_id
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", tool_id).strip("-_")[: READABLE_CHARS // 2] or "tool"
    # A lone surrogate can come out of JSON's \ud800.
    digest = hashlib.sha256(tool_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{readable}~{digest[:HASH_DIGITS]}"


def clean_mime(mime_type: str | None, *, default: str = ANY_BYTES) -> str:
    """`type/subtype` in lower case, without parameters; `default` for what is none."""
    kind = split_mime(mime_type or "")[0]
    return kind if _MIME.fullmatch(kind) else default


def suffix_of(mime: str, head: bytes) -> str:
    """The file's suffix, without a dot: by its MIME type, by its first bytes where that says nothing.

    Never one that a desktop would run: an unknown type is `bin`, an unknown kind of text `txt`.
    """
    known = _SUFFIXES.get(mime)
    if known is not None:
        return known
    if mime.endswith("+json"):
        return "json"
    if mime.endswith("+xml"):
        return "xml"
    if mime.startswith("text/"):
        return "txt"
    if mime == ANY_BYTES or mime.startswith("audio/"):
        sound = sniff(head)
        if sound in _SNIFFED:
            return _SNIFFED[sound]
    if mime == ANY_BYTES or mime.startswith("image/"):
        for magic, suffix in _IMAGE_MAGIC:
            if head.startswith(magic):
                return suffix
    return "bin"
