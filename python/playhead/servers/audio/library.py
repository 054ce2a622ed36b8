"""The music that the server knows: the audio files of one directory, found by title, and served on loopback.

The origin is a real one on a real socket, so that the demo exercises the whole data flow without a network.
Its URLs hold ids, never paths; the ranges are Starlette's `FileResponse` (206, 416, HEAD, ETag, If-Range),
which streams a file in pieces of 64 KiB.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import trio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from playhead.errors import ConfigError, UsageError
from playhead.servers.http import base_url, bind, serve_app

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
    """The name in its URL: a digest of the file's name and its suffix, never a path."""
    title: str
    path: Path
    mime_type: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Tracks in the order of their titles; the shipped piece if no directory is given."""

    tracks: tuple[Track, ...]

    @classmethod
    def scan(cls, directory: Path | None = None) -> Library:
        """Read a directory (not its subdirectories). Blocking; call it from a thread.

        A title is the file's name without suffix, `-` and `_` as spaces, unless `library.json` in the
        directory (an object of file names and titles) gives another.

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
            _track(path, titles.get(path.name))
            for path in where.iterdir()
            if path.suffix.lower() in MIME_TYPES and path.is_file()
        ]
        if not tracks:
            kinds = ", ".join(MIME_TYPES)
            raise UsageError(
                f"expected audio files ({kinds}) in {str(where)!r}, got none; give another --library"
            )
        return cls(tracks=tuple(sorted(tracks, key=lambda track: (track.title.casefold(), track.id))))

    def get(self, track_id: str) -> Track | None:
        """The track with this id."""
        return next((track for track in self.tracks if track.id == track_id), None)

    def find(self, query: str) -> Track | None:
        """The track whose title fits best, or None if no title is near. An empty query finds the first.

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
    # A file name may hold bytes that are not UTF-8; a title goes into JSON, which cannot.
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


LOOPBACK = "127.0.0.1"


def media_url(origin: str, track: Track) -> str:
    """The URL of a track."""
    return f"{origin}/media/{track.id}"


def entity_tag(track: Track) -> str | None:
    """The version that the origin sends with a track; None if the file is gone."""
    try:
        return FileResponse(track.path, stat_result=track.path.stat()).headers.get("etag")
    except OSError:
        return None


def origin_app(library: Library) -> Starlette:
    """The application alone; `serve_origin` puts it on a socket."""

    async def media(request: Request) -> Response:
        track = library.get(request.path_params["track_id"])
        if track is None or not await trio.Path(track.path).is_file():
            return PlainTextResponse("no such track", status_code=404)
        return FileResponse(track.path, media_type=track.mime_type)

    return Starlette(
        routes=[Route("/media/{track_id}", media, methods=["GET", "HEAD"])],
        # A web page whose name was pointed at 127.0.0.1 sends that name as Host.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK, "localhost"])],
    )


async def serve_origin(
    library: Library, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve a library on a free port of loopback until cancelled; the task status is its base URL."""
    sock = bind(LOOPBACK, 0)
    url = base_url(sock)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_app, origin_app(library), sock)
        task_status.started(url)
