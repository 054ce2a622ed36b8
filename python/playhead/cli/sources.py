"""Sources: the media of `playhead play` without a server.

    URL ──────── one GET ──▶ audio, a playlist, or neither
    FILE ──────────────────▶ audio, or a playlist by its suffix
    DIR ───────────────────▶ its audio files
    - ── the first bytes ──▶ audio, or a playlist

A URL that the user typed may lead to any address. A URL in a playlist is third-party text: it may lead only
to global addresses and to the origins of the typed URLs. Only a local playlist may name local files.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

import trio

from playhead.cli.terminal import Terminal
from playhead.concurrency import unwrap_exception_group
from playhead.content.audio import SNIFF_BYTES, AudioFormat, is_audio, sniff
from playhead.content.playlists import WEB_URL, Playlist, PlaylistEntry, is_playlist, playlist_items
from playhead.errors import PlayheadError, TransportError, UnsupportedFormatError, UsageError
from playhead.escaping import did_you_mean
from playhead.limits import Limits
from playhead.redaction import redacted_url
from playhead.results.candidates import local_path, title_of
from playhead.stream.source import Playable, Reader

if TYPE_CHECKING:
    from playhead.client.web import Web, WebAnswer
    from playhead.stream.options import StreamOptions

STDIN: Final = "-"
ASKED_AT_ONCE: Final = 2
_CONTROLS: Final = frozenset(b"\x7f").union(range(0x20)).difference(b"\t\n\r")
Opened = Sequence[Playable] | Playlist
"""The media at an address, or the playlist at it."""


def are_media(words: Sequence[str], server_names: frozenset[str]) -> bool:
    """Return True if each of `words` is a URL, an existing path or `-`. Otherwise the first names a server.

    Raises `UsageError` for a name that is a path and a server's, and for words that can be neither.
    """
    first = words[0]
    missing = [it for it in words if not (it == STDIN or WEB_URL.match(it) or os.path.exists(it))]  # noqa: PTH110 - with a NUL
    is_path = first not in missing and first != STDIN and not WEB_URL.match(first)
    if is_path and first in server_names:
        kind = "directory" if Path(first).is_dir() else "file"
        raise UsageError(
            f"{first!r} is a server in your servers file and a {kind} here; write ./{first} for the {kind}"
        )
    if not missing:
        return True
    if is_path and (Path(first).is_dir() or not os.access(first, os.X_OK)):
        raise UsageError(f"{missing[0]!r}: no such file; expected files, directories or URLs after {first!r}")
    if first in missing and first not in server_names and _looks_like_file(first):
        if "://" in first:
            raise UsageError(f"{first!r}: expected an http:// or https:// URL, got {first.split(':')[0]}://")
        hint = did_you_mean(first, sorted(server_names), lead="; ")
        raise UsageError(f"{first!r}: no such file, and no server or program has this name{hint}")
    return False


def _looks_like_file(word: str) -> bool:
    try:
        words = shlex.split(word)
    except ValueError:  # a quotation mark that is part of a name
        words = word.split()
    if words and shutil.which(words[0]):
        return False  # a command line, even if it ends with the name of a file
    is_word = len(words) == 1 and "://" not in word
    return is_word or is_playlist(None, word) or is_audio(None, word) is True


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailedMedia:
    """A playable that fails with `error` when its turn comes."""

    title: str
    uri: str | None
    error: PlayheadError
    mime_type = None
    size_bytes = None

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[Reader]:
        raise self.error
        yield


@dataclass
class Sources:
    """Finds the media of `words` and of their playlists. The media can be opened until `aclose`."""

    words: Sequence[str]
    terminal: Terminal
    limits: Limits
    allow_origins: Sequence[str] | None = None
    _asking: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(ASKED_AT_ONCE))

    @cached_property
    def web(self) -> Web:
        """The web client. It allows the origins that the user typed or allowed at any address. Raises
        `BlockedAddressError` for an invalid URL among the words."""
        from playhead.client.web import Web, origin_of
        from playhead.net_guard import parse_origins

        origins = {origin_of(word) for word in self.words if WEB_URL.match(word)}
        origins |= parse_origins(self.allow_origins or ())
        return Web(allow_origins=origins, limits=self.limits)

    async def aclose(self) -> None:
        if "web" in vars(self):
            await self.web.aclose()

    async def find(self) -> list[Playable]:
        """Return the media of all words, in order. Among several words, one that fails becomes a playable
        that raises its error when its turn comes.

        Raises `UsageError` for a file that cannot be read, a directory without audio, and a stdin that is a
        terminal or named twice.
        """
        words = self.words
        if words.count(STDIN) > 1:
            raise UsageError("-: expected stdin once, got it twice")
        media: list[Sequence[Playable]] = [[] for _ in words]

        async def find_at(place: int, word: str) -> None:
            try:
                media[place] = await self._media_of(await self._open_word(word))
            except PlayheadError as error:
                if len(words) == 1 or isinstance(error, UsageError):
                    raise
                media[place] = [_FailedMedia(title=title_of(word), uri=word, error=error)]

        with unwrap_exception_group():
            async with trio.open_nursery() as nursery:
                for place, word in enumerate(words):
                    nursery.start_soon(find_at, place, word)
        for place, word in enumerate(words):
            match media[place]:
                case [_FailedMedia(error=TransportError())] if WEB_URL.match(word) and self.web.has_answered(
                    word
                ):
                    media[place] = [self.web.media(word)]  # an outage: the stream is patient
        return [*chain.from_iterable(media)]

    async def of_answer(self, answer: WebAnswer) -> Sequence[Playable]:
        """Return the media behind a URL whose first answer is `answer`. Raises `UnsupportedFormatError` if
        that is neither audio nor a playlist."""
        return await self._media_of(await self._open_answer(answer))

    async def _media_of(self, opened: Opened) -> Sequence[Playable]:
        if not isinstance(opened, Playlist):
            return opened
        return await playlist_items(opened, self._open_entry, _failed_entry, limits=self.limits)

    async def _open_word(self, word: str) -> Opened:
        from playhead.playback import FileMedia
        from playhead.playback.files import audio_files

        if word == STDIN:
            return await self._open_stdin()
        if WEB_URL.match(word):
            return [self.web.media(word)] if is_audio(None, word) else await self._ask(word)
        if not await trio.Path(word).is_dir():
            return await _open_file(word, self.limits)
        if files := await trio.to_thread.run_sync(audio_files, Path(word)):
            return [FileMedia(file) for file in files]
        raise UsageError(f"{word}: expected a directory with audio files, got none")

    async def _open_entry(self, entry: PlaylistEntry) -> Opened:
        address, title = entry.address, entry.title
        if entry.is_hls and WEB_URL.match(address):
            return [self.web.media(address)]
        if not WEB_URL.match(address):
            path = await trio.to_thread.run_sync(_existing, local_path(address))
            return await _open_file(path, self.limits, title=title)
        if is_playlist(None, address):
            return await self._ask(address, title=title)
        return [self.web.media(address, title=title)]

    async def _ask(self, url: str, *, title: str = "") -> Opened:
        async with self._asking:
            answer = await self.web.ask(url)
        if title:
            answer = replace(answer, media=replace(answer.media, title=title))
        return await self._open_answer(answer)

    async def _open_answer(self, answer: WebAnswer) -> Opened:
        from playhead.client.web import WebKind

        match answer.kind:
            case WebKind.AUDIO:
                return [answer.media]
            case WebKind.PLAYLIST:
                return Playlist(await self.web.read_playlist(answer), answer.media.uri)
        where = redacted_url(answer.media.uri)
        raise UnsupportedFormatError(
            f"{where}: expected audio or a playlist, got {answer.got}; check that the URL leads to the"
            " audio itself"
        )

    async def _open_stdin(self) -> Opened:
        from playhead.playback import FileMedia
        from playhead.playback.files import PipeMedia

        fd = sys.stdin.fileno()
        if os.isatty(fd):
            raise UsageError("-: expected audio or a playlist on stdin, got a terminal; pipe it")
        with self.terminal.doing("waiting for stdin"):
            head = await _read_in_thread(fd, SNIFF_BYTES)
            if not head:
                raise UsageError("-: expected audio or a playlist on stdin, got no data")
            if sniff(head) in (None, AudioFormat.TEXT) and _CONTROLS.isdisjoint(head):  # text in any encoding
                while len(head) <= self.limits.playlist_bytes and (
                    more := await _read_in_thread(fd, 1 << 16)
                ):
                    head += more
                return Playlist(head, str(Path.cwd() / "stdin"), is_local=True)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return [FileMedia("/dev/stdin", title="stdin")]
        return [PipeMedia(fd, title="stdin", head=head)]


async def _open_file(path: str, limits: Limits, *, title: str = "") -> Opened:
    from playhead.playback import FileMedia

    if not is_playlist(None, path):
        return [FileMedia(path, title=title)]

    def read() -> bytes:
        with Path(path).open("rb") as file:
            return file.read(limits.playlist_bytes + 1)

    try:
        return Playlist(await trio.to_thread.run_sync(read), path, is_local=True)
    except OSError as error:
        raise UsageError(f"expected a readable playlist, got {path} ({error.strerror})") from error


def _existing(path: str) -> str:
    """Return the path, with the bytes of those names that playlists decode from Windows-1252."""
    place = ""
    for part in () if path.isascii() else PurePath(path).parts:
        raw = os.fsdecode(part.encode("cp1252", "replace"))
        names = (os.path.join(place, each) for each in (part, raw))  # noqa: PTH118 - with a NUL
        place = next((each for each in names if os.path.exists(each)), os.path.join(place, part))  # noqa: PTH110, PTH118
    return place or path


def _failed_entry(entry: PlaylistEntry, error: PlayheadError) -> list[Playable]:
    return [_FailedMedia(title=entry.title or title_of(entry.address), uri=entry.address, error=error)]


async def _read_in_thread(fd: int, n_bytes: int) -> bytes:
    return await trio.to_thread.run_sync(os.read, fd, n_bytes, abandon_on_cancel=True)
