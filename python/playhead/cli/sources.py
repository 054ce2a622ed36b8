"""Sources: the media that the words of `playhead play` name without a server.

    URL ──────── one GET ──▶ audio, a playlist, or neither
    FILE ──────────────────▶ audio, or a playlist by its suffix
    DIR ───────────────────▶ its audio files
    - ── the first bytes ──▶ audio, or a playlist

A URL that the user typed is read at any address. Those in a playlist were written by others: they are read
from global addresses and the origins of the typed URLs only. Local files are played from local playlists
only.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import trio

from playhead.cli.terminal import Terminal
from playhead.concurrency import unwrap_exception_group
from playhead.content.audio import SNIFF_BYTES, AudioFormat, is_audio, sniff
from playhead.content.playlists import is_hls, is_playlist, playlist_entries
from playhead.errors import ContentError, LimitError, PlayheadError, UnsupportedFormatError, UsageError
from playhead.limits import Limits
from playhead.redaction import redacted_url
from playhead.results.candidates import local_path
from playhead.stream.source import Playable, PlayableWrapper, Reader

if TYPE_CHECKING:
    from playhead.client.web import Web, WebAnswer
    from playhead.stream.options import StreamOptions

STDIN: Final = "-"
WEB_URL: Final = re.compile(r"https?://", re.IGNORECASE)
ASKED_AT_ONCE: Final = 2
_OTHER_SCHEME: Final = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:")


def are_media(words: Sequence[str], server_names: frozenset[str]) -> bool:
    """Tell if `words` name media: a URL, an existing path or `-` each. Otherwise the first names a server.

    Raises `UsageError` for a name that is a path and a server's, and for words that can be neither.
    """
    is_path = {word: word != STDIN and not WEB_URL.match(word) and _exists(word) for word in words}
    both = next((word for word in words[:1] if is_path[word] and word in server_names), None)
    if both is not None:
        kind = "directory" if Path(both).is_dir() else "file"
        raise UsageError(
            f"{both!r} is a server in your servers file and a {kind} here; write ./{both} for the {kind}"
        )
    missing = [word for word in words if not (is_path[word] or word == STDIN or WEB_URL.match(word))]
    if not missing:
        return True
    first = words[0]
    if is_path[first] and (Path(first).is_dir() or not os.access(first, os.X_OK)):
        raise UsageError(f"{missing[0]!r}: no such file; expected files, directories or URLs after {first!r}")
    if len(words) == 1 and first not in server_names and _looks_like_file(first):
        raise UsageError(f"{first!r}: no such file, and no server or program has this name")
    return False


def _exists(word: str) -> bool:
    try:
        return Path(word).exists()
    except (OSError, ValueError):  # too long, or with a NUL
        return False


def _looks_like_file(word: str) -> bool:
    is_word = len(word.split()) == 1 and "://" not in word and shutil.which(word) is None
    return is_word or is_playlist(None, word) or is_audio(None, word) is True


class _Failed(PlayableWrapper):
    """A playable that fails with `error` when its turn comes."""

    def __init__(self, inner: Playable, error: PlayheadError) -> None:
        super().__init__(inner)
        self._error = error

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[Reader]:
        raise self._error
        yield


class Sources:
    """Finds the media of `words` and of their playlists, which can be opened until `aclose`."""

    def __init__(
        self,
        words: Sequence[str],
        terminal: Terminal,
        limits: Limits,
        *,
        allow_origins: Sequence[str] | None = None,
    ) -> None:
        self._words = words
        self._allow_origins = allow_origins or ()
        self._terminal = terminal
        self._limits = limits
        self._asking = trio.CapacityLimiter(ASKED_AT_ONCE)
        self._lists = 0
        """Playlists that playlists named so far."""

    @cached_property
    def web(self) -> Web:
        """The web, with the origins that the user typed or allowed at any address. Raises
        `BlockedAddressError` for an invalid URL among the words."""
        from playhead.client.web import Web, origin_of
        from playhead.net_guard import parse_origins

        origins = {origin_of(word) for word in self._words if WEB_URL.match(word)}
        origins |= parse_origins(self._allow_origins)
        return Web(allow_origins=origins, limits=self._limits)

    async def aclose(self) -> None:
        if "web" in vars(self):
            await self.web.aclose()

    async def find(self) -> list[Playable]:
        """Return the media of all words, in order. What is wrong with one of several is told in its turn.

        Raises `UsageError` for a directory without audio, and for a stdin that is a terminal or named twice.
        """
        words = self._words
        if words.count(STDIN) > 1:
            raise UsageError("-: expected stdin once, got it twice")
        media: list[list[Playable]] = [[] for _ in words]

        async def of_word(place: int, word: str) -> None:
            media[place] = await self._of(word, depth=0, is_local=True, title="", is_alone=len(words) == 1)

        with unwrap_exception_group():
            async with trio.open_nursery() as nursery:
                for place, word in enumerate(words):
                    nursery.start_soon(of_word, place, word)
        return [each for of_word_media in media for each in of_word_media]

    async def of_answer(self, answer: WebAnswer, *, depth: int = 0) -> list[Playable]:
        """Return the media behind a URL by its first answer. Raises `UnsupportedFormatError` if it is neither
        audio nor a playlist."""
        from playhead.client.web import WebKind

        match answer.kind:
            case WebKind.AUDIO:
                return [answer.media]
            case WebKind.PLAYLIST:
                data = await self.web.read_playlist(answer)
                return await self._of_playlist(data, answer.media.uri, depth=depth, is_local=False)
            case _:
                raise not_media(answer)

    async def _of(
        self, address: str, *, depth: int, is_local: bool, title: str, is_alone: bool = False
    ) -> list[Playable]:
        """Return the media of a word, or of an entry of a playlist. `is_local`: it may name a local file."""
        from playhead.playback import FileMedia
        from playhead.playback.files import audio_files

        is_url = WEB_URL.match(address) or (depth and _OTHER_SCHEME.match(address))
        if is_local and not is_url:
            if address == STDIN and not depth:
                return await self._of_stdin()
            path = Path(local_path(address) if depth else address)
            if not depth and await trio.Path(path).is_dir():
                files = await trio.to_thread.run_sync(audio_files, path)
                if not files:
                    raise UsageError(f"{address}: expected a directory with audio files, got none")
                return [FileMedia(file) for file in files]
            if not is_playlist(None, path.name):
                return [FileMedia(path, title=title)]
            try:
                data = await trio.to_thread.run_sync(_read, path, self._limits.playlist_bytes)
                return await self._of_playlist(data, str(path), depth=depth, is_local=True)
            except PlayheadError as error:
                if is_alone:
                    raise
                return [_Failed(FileMedia(path, title=title), error)]
        media = self.web.media(address, title=title)
        if depth and not is_playlist(None, urlsplit(address).path):
            return [media]
        if not is_alone and is_audio(None, address):
            return [media]
        try:
            async with self._asking:
                answer = await self.web.ask(address)
            if title:
                answer = replace(answer, media=replace(answer.media, title=title))
            return await self.of_answer(answer, depth=depth)
        except PlayheadError as error:
            if is_alone:
                raise
            return [_Failed(media, error)]

    async def _of_playlist(self, data: bytes, base: str, *, depth: int, is_local: bool) -> list[Playable]:
        where = redacted_url(base) if WEB_URL.match(base) else base
        self._lists += depth > 0
        _check(where, "playlists deep", "playlist_depth", self._limits.playlist_depth, depth + 1)
        _check(where, "nested playlists", "playlist_entries", self._limits.playlist_entries, self._lists)
        if is_hls(data):
            raise ContentError(f"{where}: expected a list of audio, got the segments of HLS", offset=0)
        entries = playlist_entries(data, base, limits=self._limits)
        if not entries:
            raise ContentError(f"{where}: expected entries in the playlist, got none", offset=0)
        found: list[Playable] = []
        for entry in entries:
            found += await self._of(entry.address, depth=depth + 1, is_local=is_local, title=entry.title)
            _check(where, "entries in all", "playlist_entries", self._limits.playlist_entries, len(found))
        return found

    async def _of_stdin(self) -> list[Playable]:
        from playhead.playback import FileMedia
        from playhead.playback.files import PipeMedia

        fd = sys.stdin.fileno()
        if os.isatty(fd):
            raise UsageError("-: expected audio or a playlist on stdin, got a terminal; pipe it")
        with self._terminal.doing("waiting for stdin"):
            head = await _read_soon(fd, SNIFF_BYTES)
            if sniff(head) is AudioFormat.TEXT:
                while len(head) <= self._limits.playlist_bytes and (more := await _read_soon(fd, 1 << 16)):
                    head += more
                base = str(Path.cwd() / "stdin")
                return await self._of_playlist(head, base, depth=0, is_local=True)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return [FileMedia("/dev/stdin", title="stdin")]
        return [PipeMedia(fd, title="stdin", head=head)]


def not_media(answer: WebAnswer) -> PlayheadError:
    """The error about a URL that leads to no audio."""
    where = redacted_url(answer.media.uri)
    return UnsupportedFormatError(
        f"{where}: expected audio or a playlist, got {answer.got}; pass the URL of the audio itself"
    )


def _check(where: str, what: str, name: str, most: int, got: int) -> None:
    if got > most:
        message = f"{where}: expected at most {most} {what} (Limits.{name}), got {got}"
        raise LimitError(message, limit=name, allowed=most, got=got)


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most + 1)


async def _read_soon(fd: int, n_bytes: int) -> bytes:
    return await trio.to_thread.run_sync(os.read, fd, n_bytes, abandon_on_cancel=True)
