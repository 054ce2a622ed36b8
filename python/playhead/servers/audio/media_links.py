"""The signed paths of a library's tracks: `/media/SIGNATURE/VERSION/ID`.

A key of the user, not of the process, signs them. So a link works after a restart, on another port, and in
every process of the user that serves the file. It names one version of one track, so that no path leads out
of the library, or to bytes that the link was not made for.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playhead.servers.audio.library import Library, Track
from playhead.servers.byte_sources import file_version

LOOPBACK: Final = "127.0.0.1"
KEY_FILE: Final = "media.key"
KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 16
_LINK: Final = re.compile(rf"http://{re.escape(LOOPBACK)}:\d{{1,5}}(/media/[^?#]+)", re.ASCII)
_PATH: Final = re.compile(r"/media/([^/]+)/([^/]+)/([^/]+)")


@dataclass(frozen=True, slots=True)
class SignedTrack:
    """A track, and its version at the time when the link was made."""

    track: Track
    etag: str


class MediaLinks:
    """Makes the links of a library, and opens the links that any process with the same key has made."""

    def __init__(self, library: Library, *, key: bytes) -> None:
        self._library = library
        self._key = key

    def sign(self, track: Track) -> tuple[str, os.stat_result]:
        """Return the path of a track as it is now, and its status. Raises `OSError` if the file is gone."""
        status = track.path.stat()
        version = file_version(status).strip('"')
        return f"/media/{self._signature(version, track.id)}/{version}/{track.id}", status

    def open(self, path: str) -> SignedTrack | None:
        """Return the track that a path names; None if no process with this key made the path, or if this
        library does not have the track. Its file may have changed since, so compare the entity tag of the
        bytes."""
        parts = _PATH.fullmatch(path)
        if parts is None:
            return None
        signature, version, track_id = parts.groups()
        if not hmac.compare_digest(signature.encode(), self._signature(version, track_id).encode()):
            return None
        track = self._library.get(track_id)
        return None if track is None else SignedTrack(track, f'"{version}"')

    def _signature(self, version: str, track_id: str) -> str:
        digest = hmac.digest(self._key, f"media {version} {track_id}".encode(), "sha256")
        return base64.urlsafe_b64encode(digest[:_SIGNATURE_BYTES]).decode().rstrip("=")


def path_of(url: str) -> str | None:
    """Return the path of a link to a library on this machine, whatever its port; None for another URL."""
    link = _LINK.fullmatch(url)
    return None if link is None else link[1]


def load_key(directory: Path) -> bytes:
    """Return the user's key, or make it. Blocks; call it in a thread.

    Raises:
        OSError: the directory cannot be written, or the file in it is not a key that only this user can read.
        RuntimeError: `directory` begins with `~`, and the user has no home directory.
    """
    directory = directory.expanduser()
    path = directory / KEY_FILE
    with suppress(FileNotFoundError):
        return _read_key(path)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = directory / f".{KEY_FILE}.{secrets.token_hex(8)}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was first, and all use its key
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return _read_key(path)


def _read_key(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        key = file.read(KEY_BYTES + 1)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        mode = stat.filemode(status.st_mode)
        raise PermissionError(0, f"expected a file that only its owner can read, got the mode {mode}")
    if len(key) != KEY_BYTES:
        raise OSError(0, f"expected {KEY_BYTES} bytes, got {len(key) if len(key) < KEY_BYTES else 'more'}")
    return key
