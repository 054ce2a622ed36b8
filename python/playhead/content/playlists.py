"""Playlists: M3U and PLS, without I/O of its own.

The address of an entry is relative to that of its list: `live/one.mp3` in the list of a web server becomes a
URL of that server. A list may name others, `Limits.playlist_depth` deep. Only a local file may name local
files. An HLS playlist (RFC 8216) has the syntax of an M3U, but its lines are the segments of one piece, so it
counts as one entry.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urljoin

from playhead.content.audio import split_mime
from playhead.errors import (
    BlockedAddressError,
    ContentError,
    LimitError,
    PlayheadError,
    UnsupportedFormatError,
)
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.redaction import redacted_url

_PLAYLIST_MIME: Final = re.compile(
    r"(?:audio|application)/(?:(?:x-)?mpegurl|(?:x-)?scpls|pls\+xml|vnd\.apple\.mpegurl)"
)
HLS_MIME: Final = "application/vnd.apple.mpegurl"
SUFFIXES: Final = (".m3u", ".m3u8", ".pls")
_PLAYLIST_SUFFIX: Final = re.compile(r"[^?#]*\.(?:m3u8?|pls)(?:[?#].*)?", re.IGNORECASE | re.DOTALL)
_PLAYLIST_HEAD: Final = re.compile(r"\s*(?:#EXTM3U\b|\[playlist\]\s)", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""Two letters or more: `C:` is a drive."""
WEB_URL: Final = re.compile(r"https?://", re.IGNORECASE)
HLS_HEAD_BYTES: Final = 8192
"""The number of bytes in which `is_hls` looks for a tag that only HLS has."""
_HLS_TAG: Final = re.compile(rb"^#EXT-X-(?:TARGETDURATION|STREAM-INF)\b", re.MULTILINE)
_EXTINF: Final = re.compile(r'#EXTINF:(?:[^,"]|"[^"]*")*+,?(.*)', re.IGNORECASE)
_PLS_LINE: Final = re.compile(r"(file|title)([0-9]{1,6})\s*=\s*(.*)", re.IGNORECASE)


class PlaylistEntry(NamedTuple):
    """One entry of a playlist."""

    address: str
    """A URL or a path, absolute if the playlist's own address is."""
    title: str
    """Empty if the playlist states none."""
    is_hls: bool = False
    """True for an HLS playlist, which is its own only entry. `content.hls` parses it."""


class Playlist(NamedTuple):
    """A playlist that was read but not parsed."""

    data: bytes
    address: str
    """A URL or a path; empty for a playlist in text."""
    is_local: bool = False
    """True for a file of this machine that the user named or allowed. It may name other files."""


Item = TypeVar("Item")


def is_playlist(mime_type: str | None, address: str) -> bool:
    """Return True if the MIME type or the suffix of the address names a playlist."""
    return bool(
        _PLAYLIST_MIME.fullmatch(split_mime(mime_type or "")[0]) or _PLAYLIST_SUFFIX.fullmatch(address)
    )


def has_playlist_head(text: str) -> bool:
    """Return True for text that begins like a playlist, with `#EXTM3U` or `[playlist]`."""
    return _PLAYLIST_HEAD.match(text) is not None


def is_hls(head: bytes) -> bool:
    """Return True if `head`, the first `HLS_HEAD_BYTES` of a file, begins an HLS playlist."""
    return _HLS_TAG.search(head) is not None and has_playlist_head(head[:64].decode("utf-8-sig", "replace"))


async def playlist_items(
    playlist: Playlist,
    open_entry: Callable[[PlaylistEntry], Awaitable[Sequence[Item] | Playlist]],
    on_error: Callable[[PlaylistEntry, PlayheadError], Sequence[Item]],
    *,
    limits: Limits,
) -> list[Item]:
    """Follow a playlist and those that it names, and return the items of their entries, in order.

    `open_entry` opens one entry at a time. It returns the items of the entry, or a `Playlist` if the entry is
    one. `on_error` returns the items that replace an entry that failed.

    Raises what `playlist_entries` raises about `playlist` itself, and `LimitError` for more than
    `Limits.playlist_entries` in all.
    """
    n_opened = 0

    async def items_of(opened: Playlist, depth: int) -> list[Item]:
        nonlocal n_opened
        _check_limit(opened.address, "playlist_depth", "levels", limits.playlist_depth, depth)
        items: list[Item] = []
        for entry in playlist_entries(opened.data, opened.address, limits=limits):
            try:
                _check_scheme(entry, opened)
                if is_playlist(None, entry.address) and not entry.is_hls:  # refuse it before a request
                    _check_limit(entry.address, "playlist_depth", "levels", limits.playlist_depth, depth + 1)
                inner = await open_entry(entry)
                if isinstance(inner, Playlist):
                    items += await items_of(inner, depth + 1)
                    continue
            except PlayheadError as error:
                if n_opened > limits.playlist_entries:
                    raise
                inner = on_error(entry, error)
            items += inner
            n_opened += 1
            _check_limit(
                playlist.address, "playlist_entries", "entries in all", limits.playlist_entries, n_opened
            )
        return items

    return await items_of(playlist, 1)


def _check_scheme(entry: PlaylistEntry, playlist: Playlist) -> None:
    is_file = entry.address[:5].lower() == "file:" or not _SCHEME.match(entry.address)
    if entry.is_hls and not is_file:
        return  # it has already been read
    if entry.is_hls:
        raise UnsupportedFormatError(
            f"{_prefix_of(playlist.address)}expected an HLS playlist at a URL, which can be read again as it"
            " grows, got one in a file or in text; pass its URL"
        )
    if not (WEB_URL.match(entry.address) or (playlist.is_local and is_file)):
        expected = "a URL of the web or a file" if playlist.is_local else "an http or https URL"
        raise BlockedAddressError(f"expected {expected} in a playlist, got {entry.address[:80]!r}")


def playlist_entries(data: bytes, base: str, *, limits: Limits = DEFAULT_LIMITS) -> tuple[PlaylistEntry, ...]:
    """Parse an M3U or PLS, in UTF-8 or Windows-1252; `base` is its address, a URL or a path.

    Raises:
        ContentError: `data` is HTML, XML or binary, or has no entries.
        LimitError: `data` has more than `Limits.playlist_bytes` or `Limits.playlist_entries`.
    """
    _check_limit(base, "playlist_bytes", "bytes", limits.playlist_bytes, len(data))
    rows_of_bytes = re.split(rb"[\r\n]+", data.removeprefix(codecs.BOM_UTF8))
    lines = [stripped for line in rows_of_bytes if (stripped := _decode(line).strip())]
    if b"\0" in data or (lines and lines[0].startswith("<")):
        raise _not_a_playlist(base, "HTML, XML or binary data")
    if is_hls(data):
        return (PlaylistEntry(base, "", is_hls=True),)
    is_pls = bool(lines) and lines[0].lower() == "[playlist]"
    rows = _pls_rows(lines) if is_pls else _m3u_rows(lines)
    entries = tuple(PlaylistEntry(_join(base, address), title) for address, title in rows)
    if not entries:
        raise _not_a_playlist(base, "no entries" if lines else "an empty one")
    _check_limit(base, "playlist_entries", "entries", limits.playlist_entries, len(entries))
    return entries


def _decode(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:  # each line by itself: a list of files may have names in both
        return line.decode("cp1252", "replace")


def _not_a_playlist(base: str, got: str) -> ContentError:
    return ContentError(f"{_prefix_of(base)}expected a playlist (M3U or PLS) of audio, got {got}", offset=0)


def _check_limit(base: str, name: str, unit: str, allowed: int, got: int) -> None:
    if got > allowed:
        message = (
            f"{_prefix_of(base)}expected a playlist of at most {allowed} {unit} (Limits.{name}), got {got}"
        )
        raise LimitError(message, limit=name, allowed=allowed, got=got)


def _prefix_of(base: str) -> str:
    return f"{redacted_url(base) if WEB_URL.match(base) else base}: " if base else ""


def _m3u_rows(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the address and the title of each entry."""
    title = ""
    for line in lines:
        if (info := _EXTINF.fullmatch(line)) is not None:
            title = info[1].strip()
        elif not line.startswith("#"):
            yield line, title
            title = ""


def _pls_rows(lines: list[str]) -> Iterator[tuple[str, str]]:
    files: dict[int, str] = {}
    titles: dict[int, str] = {}
    for line in lines:
        if (match := _PLS_LINE.fullmatch(line)) is not None:
            values = files if match[1].lower() == "file" else titles
            values[int(match[2])] = match[3]
    for number, address in sorted(files.items()):
        yield address, titles.get(number, "")


def _join(base: str, address: str) -> str:
    if _SCHEME.match(address):
        return address
    try:
        return urljoin(base, address) if _SCHEME.match(base) else str(PurePath(base).parent / address)
    except ValueError:
        return address  # an invalid URL, which the caller refuses when it opens it
