"""The record of a call whose result was saved. Each call has one; calls with equal results share a file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType
from typing import Any, Final, cast

from playhead.content.audio import AudioFormat, format_of_mime, sniff, split_mime
from playhead.content.image_files import image_type
from playhead.errors import PlayheadError, UsageError

HASH_DIGITS: Final = 20
"""The digits of a hash in the name of a directory: 80 bits. Even if two tools collide, the records tell their
calls apart."""
READABLE_CHARS: Final = 80
PLAIN: Final = re.compile(rf"[a-z0-9][a-z0-9_-]{{0,{READABLE_CHARS - 1}}}")
TOOL_FOLDER: Final = re.compile(
    rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{READABLE_CHARS - 1}}}(~[0-9a-f]{{{HASH_DIGITS}}})?"
)
DATA_FILE: Final = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{1,8}")
RECORD_ID: Final = re.compile(r"[0-9]{8}T[0-9]{12}-[0-9a-f]{8}")
RECORD_SUFFIX: Final = ".record.json"
RECORD: Final = re.compile(RECORD_ID.pattern + re.escape(RECORD_SUFFIX))

_WINDOWS_DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}
)
"""The names of devices, which no directory on a Windows or SMB file system may have."""

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
    "audio/ogg": "ogg",
    "audio/mp4": "m4a",
    "audio/m4a": "m4a",
    "audio/x-m4a": "m4a",
    "audio/webm": "weba",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/ogg": "ogv",
}
_AUDIO_SUFFIXES: Final[Mapping[AudioFormat | None, str]] = {
    AudioFormat.MP3: "mp3",
    AudioFormat.FLAC: "flac",
    AudioFormat.WAV: "wav",
    AudioFormat.VORBIS: "ogg",
    AudioFormat.PCM: "pcm",
    AudioFormat.OPUS: "opus",
    AudioFormat.OGG_FLAC: "oga",
    AudioFormat.OGG: "ogg",
    AudioFormat.AAC: "aac",
    AudioFormat.WEBM: "webm",
    AudioFormat.AIFF: "aiff",
    AudioFormat.MIDI: "mid",
}


def folder_name(tool_id: str) -> str:
    """Return the directory name of a tool: one safe path component, unique per id."""
    if PLAIN.fullmatch(tool_id) and tool_id not in _WINDOWS_DEVICES:
        return tool_id
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", tool_id).strip("-_")[: READABLE_CHARS // 2] or "tool"
    # JSON's \ud800 decodes to a lone surrogate.
    digest = hashlib.sha256(tool_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{readable}~{digest[:HASH_DIGITS]}"


def clean_mime(mime_type: str | None, *, default: str = ANY_BYTES) -> str:
    """Return `type/subtype` in lower case, without parameters, or `default` if invalid."""
    kind = split_mime(mime_type or "")[0]
    return kind if _MIME.fullmatch(kind) else default


def suffix_of(mime: str, head: bytes) -> str:
    """Choose the file suffix, without a dot, by the MIME type or, if that is inconclusive, by the first
    bytes.

    A desktop never runs a file with such a suffix: an unknown type is `bin`, unknown text is `txt`.
    """
    known = _SUFFIXES.get(mime) or _AUDIO_SUFFIXES.get(format_of_mime(mime))
    if known is not None:
        return known
    if mime.endswith(("+json", "+xml")):
        return mime.rpartition("+")[2]
    if mime.startswith("text/"):
        return "txt"
    is_unknown = mime == ANY_BYTES
    audio = _AUDIO_SUFFIXES.get(sniff(head)) if is_unknown or mime.startswith("audio/") else None
    image = _SUFFIXES.get(image_type(head) or "") if is_unknown or mime.startswith("image/") else None
    return audio or image or "bin"


TITLE_CHARS: Final = 1000
"""Limits a title, which the server chooses; a longer one is truncated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedOutput:
    """The saved result of a call."""

    id: str
    """Time and a random suffix, so that ids sort by time."""
    path: Path
    """The result itself; several outputs with the same content share it."""
    sidecar_path: Path
    """The record, as JSON."""
    tool_id: str
    arguments: Mapping[str, object] | None = field(repr=False)
    """The arguments; None if they were too long (`Limits.record_bytes`). They may be private, so `repr` hides
    them."""
    time: datetime
    mime: str
    sha256: str
    size_bytes: int
    tags: tuple[str, ...] = ()
    title: str | None = None
    metadata: Mapping[str, object] | None = field(default=None, repr=False)
    """The values of the tool configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A file or directory among the outputs that is not a complete record."""

    path: Path
    reason: str


class BrokenRecordError(PlayheadError):
    """A record cannot be read. A listing turns this error into a `Problem`."""


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags in order without duplicates. Raises `UsageError` for anything but strings."""
    if isinstance(tags, str):
        raise UsageError(f"tags: expected a list of strings, got the string {tags!r}; write [{tags!r}]")
    unique: tuple[object, ...] = tuple(dict.fromkeys(tags))
    for tag in unique:
        if not isinstance(tag, str):
            raise UsageError(f"tags: expected strings, got a {type(tag).__name__}")
    return cast("tuple[str, ...]", unique)


def check_time(time: datetime) -> datetime:
    """Convert `time` to UTC. Raises `UsageError` without a zone, or outside the years 1970 to 9000."""
    if time.tzinfo is None or not 1970 <= time.year <= 9000:
        raise UsageError(
            f"time: expected a time with a zone, such as datetime.now(UTC), got {time.isoformat()}"
        )
    return time.astimezone(UTC)


def dump(output: SavedOutput, *, limit_bytes: int) -> bytes:
    """Encode the record as JSON of at most `limit_bytes`. If it would be longer, it has no arguments.

    It is ASCII, which can represent any string. Raises `UsageError` for arguments or metadata that JSON
    cannot represent, and if the record is too long even without the arguments.
    """
    record: dict[str, Any] = {
        "tool_id": output.tool_id,
        "arguments": None if output.arguments is None else dict(output.arguments),
        "time": output.time.isoformat(),
        "mime": output.mime,
        "sha256": output.sha256,
        "size_bytes": output.size_bytes,
        "file": output.path.name,
        "tags": output.tags,
        "title": None if output.title is None else output.title[:TITLE_CHARS],
    }
    if output.metadata is not None:
        record["metadata"] = dict(output.metadata)
    text = _encode(record)
    if len(text) > limit_bytes:
        record["arguments"] = None
        record["arguments_left_out_bytes"] = len(text)
        text = _encode(record)
    if len(text) > limit_bytes:
        raise UsageError(
            f"the record of an output of {output.tool_id!r} has {len(text)} bytes without its arguments;"
            f" {limit_bytes} are allowed (Limits.record_bytes): give it less metadata, or fewer tags"
        )
    return text


def _encode(record: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(record, ensure_ascii=True, allow_nan=False, indent=1).encode("ascii") + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"arguments and metadata of a saved output must be JSON: {error}") from error


_FIELD_TYPES: Final = {
    "tool_id": (str,),
    "arguments": (dict, NoneType),
    "time": (str,),
    "mime": (str,),
    "sha256": (str,),
    "size_bytes": (int,),
    "file": (str,),
    "tags": (list,),
    "title": (str, NoneType),
    "metadata": (dict, NoneType),
}


def load(text: bytes, *, id: str, sidecar_path: Path) -> SavedOutput:
    """Parse a record. Raises `BrokenRecordError` with the defect.

    It does not use pydantic, whose JSON parser refuses the lone surrogates that `dump` preserves.
    """
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BrokenRecordError(f"not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise BrokenRecordError("expected a JSON object")
    for name, kinds in _FIELD_TYPES.items():
        if type(raw.get(name)) not in kinds:
            raise BrokenRecordError(f"{name!r} is missing or of the wrong type")
    fields: dict[str, Any] = {name: raw.get(name) for name in _FIELD_TYPES}
    file = fields.pop("file")
    # Anybody may have put the record there, so the name must not lead to another directory.
    if not DATA_FILE.fullmatch(file) or not file.startswith(raw["sha256"] + "."):
        raise BrokenRecordError("'file' is not the name of a saved output")
    if not all(isinstance(tag, str) for tag in raw["tags"]):
        raise BrokenRecordError("'tags' are not strings")
    try:
        fields["time"] = check_time(datetime.fromisoformat(raw["time"]))
    except (ValueError, UsageError) as error:
        raise BrokenRecordError(f"'time': {error}") from error
    fields["tags"] = tuple(raw["tags"])
    return SavedOutput(id=id, path=sidecar_path.with_name(file), sidecar_path=sidecar_path, **fields)
