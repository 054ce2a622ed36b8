"""The music that the server knows: the audio files of one directory, found by title."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from playhead.content.audio import SNIFF_BYTES, mime_of_file
from playhead.errors import ConfigError, UsageError

TITLES_FILE = "library.json"
_CLOSE_ENOUGH = 0.6
"""The least similarity of a title and a query, difflib's default: "frist lihgt" finds "First Light", a random
word finds nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """An audio file."""

    id: str
    """The name in the track's URL: a digest of the file's name and its suffix, never a path."""
    title: str
    path: Path
    mime_type: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Library:
    """Tracks in the order of their titles; the shipped piece if no directory is given."""

    tracks: tuple[Track, ...]

    @cached_property
    def _by_id(self) -> dict[str, Track]:
        return {track.id: track for track in self.tracks}

    @classmethod
    def scan(cls, directory: Path | None = None) -> Library:
        """Read a directory (not its subdirectories). Blocking; call it from a thread.

        Every audio file belongs to the library, whether anything here plays it or not. A title is the file's
        name without suffix, `_` as a space, unless `library.json` in the directory (an object of file names
        and titles) gives another.

        Raises:
            UsageError: the directory does not exist, or has no audio file.
            ConfigError: `library.json` is not such an object.
        """
        where = directory if directory is not None else Path(__file__).parent / "music"
        if not where.is_dir():
            raise UsageError(
                f"{str(where)!r} is not a directory; expected one with music, give another --library"
            )
        titles = _read_titles(where / TITLES_FILE)
        tracks = [
            track for path in where.iterdir() if (track := _track(path, titles.get(path.name))) is not None
        ]
        if not tracks:
            raise UsageError(f"expected audio files in {str(where)!r}, got none; give another --library")
        return cls(tracks=tuple(sorted(tracks, key=lambda track: (track.title.casefold(), track.id))))

    def get(self, track_id: str) -> Track | None:
        """Return the track with this id, if any."""
        return self._by_id.get(track_id)

    def find(self, query: str) -> Track | None:
        """Find the track whose title fits best; None if no title is near. An empty query finds the first.

        Upper and lower case do not matter. In order: the same title, a title that contains the query (the
        shortest), a title with all its words, a title that the query contains, a title spelt alike.
        """
        query = " ".join(query.casefold().split())
        if not query:
            return self.tracks[0]
        titles = {track.title.casefold(): track for track in reversed(self.tracks)}
        by_length = sorted(titles, key=lambda title: (len(title), title))
        if query in titles:
            return titles[query]
        candidates = [title for title in by_length if query in title]
        words = _words(query)
        candidates += [title for title in by_length if words and words <= _words(title)]
        candidates += [title for title in reversed(by_length) if title in query]
        candidates += difflib.get_close_matches(query, by_length, n=1, cutoff=_CLOSE_ENOUGH)
        return titles[candidates[0]] if candidates else None


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _track(path: Path, title: str | None) -> Track | None:
    if not path.is_file() or mime_of_file(path.name, b"") is None:
        return None
    head = b""
    with suppress(OSError), path.open("rb") as file:  # a later read reports the error
        head = file.read(SNIFF_BYTES)
    if (mime_type := mime_of_file(path.name, head)) is None:
        return None
    digest = hashlib.sha256(path.name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    suffix = path.suffix.lower()
    # A file name may hold bytes that are not UTF-8; a title goes into JSON, which cannot.
    stem = path.stem.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return Track(
        id=digest + suffix,
        title=title or stem.replace("_", " ").strip() or stem,
        path=path,
        mime_type=mime_type,
        size_bytes=path.stat().st_size,
    )


def _read_titles(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    try:
        titles = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: expected JSON: {error}") from error
    if not isinstance(titles, dict) or not all(isinstance(title, str) for title in titles.values()):
        raise ConfigError(f'{path}: expected an object like {{"file.mp3": "Title"}}')
    return titles
