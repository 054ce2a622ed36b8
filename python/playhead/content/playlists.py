"""Playlists: M3U and PLS, parsed without I/O.

An entry's address is relative to its playlist's: `live/one.mp3` in the playlist of a web server becomes a URL
of that server. An entry may name anything, also a local file or another playlist. The caller decides which
schemes and how many levels (`Limits.playlist_depth`) it follows. An HLS playlist (RFC 8216) is written as an
M3U, but its entries are the segments of one piece; see `is_hls`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final, NamedTuple
from urllib.parse import urljoin

from playhead.content.audio import split_mime
from playhead.errors import ContentError, LimitError
from playhead.limits import DEFAULT_LIMITS, Limits

_MIME: Final = re.compile(
    r"(?:audio|application)/(?:(?:x-)?mpegurl|(?:x-)?scpls|pls\+xml|vnd\.apple\.mpegurl)"
)
SUFFIXES: Final = (".m3u", ".m3u8", ".pls")
_SUFFIX: Final = re.compile(r"[^?#]*\.(?:m3u8?|pls)(?:[?#].*)?", re.IGNORECASE | re.DOTALL)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""Two letters or more: `C:` is a drive."""
_HLS: Final = re.compile(rb"^#EXT-X-(?:TARGETDURATION|STREAM-INF)\b", re.MULTILINE)
_EXTINF: Final = re.compile(r'#EXTINF:\s*([-+.0-9]*)(?:[^,"]|"[^"]*")*+,?(.*)', re.IGNORECASE)
_PLS_LINE: Final = re.compile(r"(file|title|length)([0-9]{1,6})\s*=\s*(.*)", re.IGNORECASE)


class PlaylistEntry(NamedTuple):
    """One entry of a playlist."""

    address: str
    """A URL or a path, absolute if the playlist's own address is."""
    title: str
    """Empty if the playlist states none."""
    duration_seconds: float | None
    """None if the playlist states none, or marks the entry as endless (-1)."""


def is_playlist(mime_type: str | None, address: str) -> bool:
    """Return True if the MIME type or the suffix of the address names a playlist."""
    return bool(_MIME.fullmatch(split_mime(mime_type or "")[0]) or _SUFFIX.fullmatch(address))


def is_hls(data: bytes) -> bool:
    """Return True for an M3U whose entries are segments, or variants, of one piece."""
    return _HLS.search(data) is not None


def playlist_entries(data: bytes, base: str, *, limits: Limits = DEFAULT_LIMITS) -> tuple[PlaylistEntry, ...]:
    """Parse an M3U or PLS, in UTF-8 or Windows-1252; `base` is its address, a URL or a path.

    Raises:
        ContentError: `data` is HTML, XML or binary.
        LimitError: `data` has more than `Limits.playlist_bytes` or `Limits.playlist_entries`.
    """
    _check("playlist_bytes", "bytes", limits.playlist_bytes, len(data))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", "replace")
    lines = [stripped for line in re.split(r"[\r\n]+", text) if (stripped := line.strip())]
    if "\0" in text or text.lstrip().startswith("<"):
        raise ContentError("expected a playlist (M3U or PLS), got HTML, XML or binary data", offset=0)
    is_pls = bool(lines) and lines[0].lower() == "[playlist]"
    entries = tuple(_pls(lines, base) if is_pls else _m3u(lines, base))
    _check("playlist_entries", "entries", limits.playlist_entries, len(entries))
    return entries


def _check(name: str, unit: str, allowed: int, got: int) -> None:
    if got > allowed:
        message = f"expected a playlist of at most {allowed} {unit} (Limits.{name}), got {got}"
        raise LimitError(message, limit=name, allowed=allowed, got=got)


def _m3u(lines: list[str], base: str) -> Iterator[PlaylistEntry]:
    duration = title = ""
    for line in lines:
        if (info := _EXTINF.fullmatch(line)) is not None:
            duration, title = info[1], info[2].strip()
        elif not line.startswith("#"):
            yield _entry(base, line, title, duration)
            duration = title = ""


def _pls(lines: list[str], base: str) -> Iterator[PlaylistEntry]:
    entries: dict[int, dict[str, str]] = {}
    for line in lines:
        if (match := _PLS_LINE.fullmatch(line)) is not None:
            entries.setdefault(int(match[2]), {})[match[1].lower()] = match[3]
    for _number, entry in sorted(entries.items()):
        if "file" in entry:
            yield _entry(base, entry["file"], entry.get("title", ""), entry.get("length", ""))


def _entry(base: str, address: str, title: str, duration: str) -> PlaylistEntry:
    try:
        seconds = float(duration)
    except ValueError:
        seconds = -1
    if not _SCHEME.match(address):
        try:
            joined = urljoin(base, address) if _SCHEME.match(base) else PurePath(base).parent / address
        except ValueError:
            joined = address  # an invalid URL, which the caller refuses when it opens it
        address = str(joined)
    return PlaylistEntry(address, title, seconds if seconds > 0 else None)
