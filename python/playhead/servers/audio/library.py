"""The music that the server knows: the audio files of one folder, found by title."""

from __future__ import annotations

import difflib
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from playhead.errors import ConfigError, UsageError

MIME_TYPES = {
    ".mp3": "audio/mpeg",
    ".flac": "audio/flac",
    ".wav": "audio/wav",
    ".ogg": "audio/ogg",
    ".oga": "audio/ogg",
}
TITLES_FILE = "library.json"
_CLOSE_ENOUGH = 0.6
"""difflib's own default: "frist lihgt" finds "First Light", a random word finds nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One audio file."""

    id: str
    """What stands in its URL: a digest of the file's name and its suffix, never a path."""
    title: str
    path: Path
    mime_type: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Tracks in the order of their titles; the shipped piece when no folder is given."""

    tracks: tuple[Track, ...]

    @classmethod
    def scan(cls, folder: Path | None = None) -> Library:
        """Reads a folder (not its subfolders). Blocking; call it from a thread.

        A title is the file's name without suffix, `-` and `_` as spaces, unless `library.json` in the folder
        (an object of file names and titles) gives another.

        Raises:
            UsageError: there is no such folder, or no audio file in it.
            ConfigError: `library.json` is not such an object.
        """
        where = folder if folder is not None else Path(__file__).parent / "music"
        if not where.is_dir():
            raise UsageError(
                f"expected a folder of music, but {str(where)!r} is none; give another --library"
            )
        titles = _read_titles(where / TITLES_FILE)
        tracks = [
            _track(path, titles.get(path.name))
            for path in where.iterdir()
            if path.suffix.lower() in MIME_TYPES and path.is_file()
        ]
        if not tracks:
            kinds = ", ".join(MIME_TYPES)
            raise UsageError(f"no audio file ({kinds}) is in {str(where)!r}; give another --library")
        return cls(tracks=tuple(sorted(tracks, key=lambda track: (track.title.casefold(), track.id))))

    def get(self, track_id: str) -> Track | None:
        """The track with this id."""
        return next((track for track in self.tracks if track.id == track_id), None)

    def find(self, query: str) -> Track | None:
        """The track whose title fits best, or None where no title is near. An empty query finds the first.

        Upper and lower case do not matter. In order: the same title, a title that contains the query (the
        shortest), a title with all its words, a title that the query contains, a title spelt alike.
        """
        wanted = " ".join(query.casefold().split())
        if not wanted:
            return self.tracks[0]
        titles = {track.title.casefold(): track for track in reversed(self.tracks)}
        by_length = sorted(titles, key=lambda title: (len(title), title))
        if wanted in titles:
            return titles[wanted]
        candidates = [title for title in by_length if wanted in title]
        words = set(wanted.split())
        candidates += [title for title in by_length if words <= set(title.replace(":", " ").split())]
        candidates += [title for title in reversed(by_length) if title in wanted]
        candidates += difflib.get_close_matches(wanted, by_length, n=1, cutoff=_CLOSE_ENOUGH)
        return titles[candidates[0]] if candidates else None


def _track(path: Path, title: str | None) -> Track:
    digest = hashlib.sha256(path.name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    suffix = path.suffix.lower()
    # A file name may hold bytes that are no UTF-8; a title goes into JSON, which cannot.
    stem = path.stem.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return Track(
        id=digest + suffix,
        title=title or stem.replace("_", " ").replace("-", " ").strip() or stem,
        path=path,
        mime_type=MIME_TYPES[suffix],
        size_bytes=path.stat().st_size,
    )


def _read_titles(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: expected JSON: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(title, str) for title in found.values()):
        raise ConfigError(f'{path}: expected an object like {{"file.mp3": "Title"}}')
    return found
