"""Playlists: M3U and PLS, read and followed without I/O of their own.

An entry's address is joined to that of its list: `live/one.mp3` in the list of a web server becomes a URL of
that server. A list may name others, `Limits.playlist_depth` deep. Only a local file may name local files. An
HLS playlist (RFC 8216) is written as an M3U, but its entries are the segments of one piece: it is one entry.
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

_MIME: Final = re.compile(
    r"(?:audio|application)/(?:(?:x-)?mpegurl|(?:x-)?scpls|pls\+xml|vnd\.apple\.mpegurl)"
)
HLS_MIME: Final = "application/vnd.apple.mpegurl"
SUFFIXES: Final = (".m3u", ".m3u8", ".pls")
_SUFFIX: Final = re.compile(r"[^?#]*\.(?:m3u8?|pls)(?:[?#].*)?", re.IGNORECASE | re.DOTALL)
_HEAD: Final = re.compile(r"\s*(?:#EXTM3U\b|\[playlist\]\s)", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""Two letters or more: `C:` is a drive."""
WEB_URL: Final = re.compile(r"https?://", re.IGNORECASE)
HLS_HEAD_BYTES: Final = 8192
"""The bytes in which one of the tags that only HLS has is looked for."""
_HLS: Final = re.compile(rb"^#EXT-X-(?:TARGETDURATION|STREAM-INF)\b", re.MULTILINE)
_EXTINF: Final = re.compile(r'#EXTINF:(?:[^,"]|"[^"]*")*+,?(.*)', re.IGNORECASE)
_PLS_LINE: Final = re.compile(r"(file|title)([0-9]{1,6})\s*=\s*(.*)", re.IGNORECASE)


class PlaylistEntry(NamedTuple):
    """One entry of a playlist."""

    address: str
    """A URL or a path, absolute if the playlist's own address is."""
    title: str
    """Empty if the playlist states none."""
    is_hls: bool = False
    """True for an HLS playlist, which is its own only entry: its segments are one piece (`content.hls`)."""


class Playlist(NamedTuple):
    """The bytes of a playlist."""

    data: bytes
    address: str
    """A URL or a path; empty if it has none, as in text."""
    is_local: bool = False
    """It is a file of this machine that the user named or allowed, and may name others."""


Item = TypeVar("Item")


def is_playlist(mime_type: str | None, address: str) -> bool:
    """Return True if the MIME type or the suffix of the address names a playlist."""
    return bool(_MIME.fullmatch(split_mime(mime_type or "")[0]) or _SUFFIX.fullmatch(address))


def has_playlist_head(text: str) -> bool:
    """Return True for text that begins as a playlist does: with `#EXTM3U` or `[playlist]`."""
    return _HEAD.match(text) is not None


def is_hls(head: bytes) -> bool:
    """Return True for the first `HLS_HEAD_BYTES` of an HLS playlist."""
    return _HLS.search(head) is not None and has_playlist_head(head[:64].decode("utf-8-sig", "replace"))


async def playlist_items(
    playlist: Playlist,
    open_entry: Callable[[PlaylistEntry], Awaitable[Sequence[Item] | Playlist]],
    on_error: Callable[[PlaylistEntry, PlayheadError], Sequence[Item]],
    *,
    limits: Limits,
) -> list[Item]:
    """Follow a playlist and those that it names, and return the items of their entries, in order.

    `open_entry` returns the items of an entry, or the playlist that it is; `on_error` those in place of an
    entry that failed. Entries are opened one after another.

    Raises what `playlist_entries` raises about `playlist` itself, and `LimitError` for more than
    `Limits.playlist_entries` in all.
    """
    n_opened = 0

    async def items_of(opened: Playlist, depth: int) -> list[Item]:
        nonlocal n_opened
        _check(opened.address, "playlist_depth", "levels", limits.playlist_depth, depth)
        items: list[Item] = []
        for entry in playlist_entries(opened.data, opened.address, limits=limits):
            try:
                _check_scheme(entry, opened)
                if is_playlist(None, entry.address) and not entry.is_hls:  # refused before a request
                    _check(entry.address, "playlist_depth", "levels", limits.playlist_depth, depth + 1)
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
            _check(playlist.address, "playlist_entries", "entries in all", limits.playlist_entries, n_opened)
        return items

    return await items_of(playlist, 1)


def _check_scheme(entry: PlaylistEntry, playlist: Playlist) -> None:
    is_file = entry.address[:5].lower() == "file:" or not _SCHEME.match(entry.address)
    if entry.is_hls and not is_file:
        return  # it has already been read
    if entry.is_hls:
        raise UnsupportedFormatError(
            f"{_where(playlist.address)}expected an HLS playlist at a URL, which can be read again as it"
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
    _check(base, "playlist_bytes", "bytes", limits.playlist_bytes, len(data))
    rows_of_bytes = re.split(rb"[\r\n]+", data.removeprefix(codecs.BOM_UTF8))
    lines = [stripped for line in rows_of_bytes if (stripped := _decoded(line).strip())]
    text = "\n".join(lines)
    got = ""
    if "\0" in text or text.startswith("<"):
        got = "HTML, XML or binary data"
    elif is_hls(data):
        return (PlaylistEntry(base, "", is_hls=True),)
    is_pls = bool(lines) and lines[0].lower() == "[playlist]"
    rows = _pls(lines) if is_pls else _m3u(lines)
    entries = () if got else tuple(PlaylistEntry(_joined(base, address), title) for address, title in rows)
    if not entries:
        got = got or ("no entries" if lines else "an empty one")
        raise ContentError(f"{_where(base)}expected a playlist (M3U or PLS) of audio, got {got}", offset=0)
    _check(base, "playlist_entries", "entries", limits.playlist_entries, len(entries))
    return entries


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:  # each line by itself: a list of files may have names in both
        return line.decode("cp1252", "replace")


def _check(base: str, name: str, unit: str, allowed: int, got: int) -> None:
    if got > allowed:
        message = f"{_where(base)}expected a playlist of at most {allowed} {unit} (Limits.{name}), got {got}"
        raise LimitError(message, limit=name, allowed=allowed, got=got)


def _where(base: str) -> str:
    return f"{redacted_url(base) if WEB_URL.match(base) else base}: " if base else ""


def _m3u(lines: list[str]) -> Iterator[tuple[str, str]]:
    title = ""
    for line in lines:
        if (info := _EXTINF.fullmatch(line)) is not None:
            title = info[1].strip()
        elif not line.startswith("#"):
            yield line, title
            title = ""


def _pls(lines: list[str]) -> Iterator[tuple[str, str]]:
    values = {
        (int(match[2]), match[1].lower()): match[3] for line in lines if (match := _PLS_LINE.fullmatch(line))
    }
    for number, key in sorted(values):
        if key == "file":
            yield values[number, key], values.get((number, "title"), "")


def _joined(base: str, address: str) -> str:
    if _SCHEME.match(address):
        return address
    try:
        return urljoin(base, address) if _SCHEME.match(base) else str(PurePath(base).parent / address)
    except ValueError:
        return address  # an invalid URL, which the caller refuses when it opens it
