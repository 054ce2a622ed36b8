"""The music of the server: the audio files of one directory, which it finds by title."""

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
_MIN_SIMILARITY = 0.6
"""The lowest similarity of a title and a query that match. With difflib's default, "frist lihgt" finds "First
Light", and a random word finds nothing."""


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
    """Tracks in the order of their titles."""

    tracks: tuple[Track, ...]

    @cached_property
    def _by_id(self) -> dict[str, Track]:
        return {track.id: track for track in self.tracks}

    @classmethod
    def scan(cls, directory: Path | None = None) -> Library:
        """Read a directory (not its subdirectories); None is the music in the package. Blocks; call it in a
        thread.

        Every audio file belongs to the library, whether playhead can play it or not. Its title is in
        `library.json` in the directory (an object of file names and titles). Otherwise the title is the
        file's name without its suffix and with spaces for `_`.

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
            track
            for path in where.iterdir()
            if (track := _track_of_file(path, titles.get(path.name))) is not None
        ]
        if not tracks:
            raise UsageError(f"expected audio files in {str(where)!r}, got none; give another --library")
        return cls(tracks=tuple(sorted(tracks, key=lambda track: (track.title.casefold(), track.id))))

    def get(self, track_id: str) -> Track | None:
        """Return the track with this id, if any."""
        return self._by_id.get(track_id)

    def find(self, query: str) -> Track | None:
        """Find the track whose title fits best; None if no title is similar. An empty query finds the first.

        Case does not matter. The order of precedence is: the same title, the shortest title that contains the
        query, one with all words of the query, one that the query contains, one with a similar spelling.
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
        candidates += difflib.get_close_matches(query, by_length, n=1, cutoff=_MIN_SIMILARITY)
        return titles[candidates[0]] if candidates else None


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _track_of_file(path: Path, title: str | None) -> Track | None:
    if not path.is_file() or mime_of_file(path.name, b"") is None:
        return None
    head = b""
    with suppress(OSError), path.open("rb") as file:  # a later read reports the error
        head = file.read(SNIFF_BYTES)
    if (mime_type := mime_of_file(path.name, head)) is None:
        return None
    digest = hashlib.sha256(path.name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    suffix = path.suffix.lower()
    # A file name may contain bytes that are not UTF-8, but JSON, and so a title, may not.
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
