"""The media addresses that the proxy has given out, in a file of the user's that outlives the process.

An address is 128 random bits: who has it may read the one resource that it was made for. It expires 24 hours
after the last read. Audio that a result held itself is saved next to the table, and the relay's copies are in
the same directory.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Final

from playhead.config.outputs.writer import saving
from playhead.errors import UsageError, naming_descriptor_limit

LIFETIME_SECONDS: Final = 24 * 3600.0
SAVE_SECONDS: Final = 60.0
"""The least age of a saved time of a read before it is saved again."""
HELD_BYTES: Final = 256 * 1024 * 1024
"""Limits the saved audio of results. The audio that was read longest ago goes first."""

_TABLE: Final = "media.jsonl"
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_ADDRESS: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaEntry:
    """The meaning of an address."""

    server: str
    identity: str
    """The identity of the server, because another one may have its name after a restart."""
    uri: str
    """The server's own URI; empty for audio that a result held itself."""
    title: str
    mime_type: str | None
    size_bytes: int | None
    validator: str = ""
    description: str | None = None
    """The link's, which may tell how to read it."""
    tool: str | None = None
    is_local: bool = False
    read_at: float
    """The Unix time of the last read."""


class MediaTable:
    """The table in a directory, which is created for this user only. For one task at a time."""

    def __init__(self, directory: Path, *, now: Callable[[], float] = time.time) -> None:
        """Raises `UsageError` if the directory cannot be used."""
        self._now = now
        self._saved_at: dict[str, float] = {}
        try:
            self._directory = directory = directory.expanduser()
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._entries = self._load()
        except (OSError, RuntimeError, ValueError, TypeError) as error:  # RuntimeError: no home directory
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"{directory / _TABLE}: cannot be used for media addresses: {reason}") from error
        self._expire()
        lines = "".join(_line(address, entry) for address, entry in self._entries.items())
        _write(directory / _TABLE, lines.encode("ascii"))

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Raise `SavingError` or `DescriptorLimitError` in place of an `OSError` of this directory."""
        with (
            saving(self._directory, otherwise="set XDG_STATE_HOME to another directory"),
            naming_descriptor_limit(),
        ):
            yield

    def add(self, entry: MediaEntry) -> str:
        """Return a new address. Raises `OSError`."""
        address = secrets.token_hex(16)
        entry = replace(entry, read_at=self._now())
        self._append(address, entry)
        self._entries[address] = entry
        self._expire()
        return address

    def get(self, address: str) -> MediaEntry | None:
        """Return the meaning of an address, and note that it was read; None if it is unknown or expired."""
        entry, now = self._entries.get(address), self._now()
        if entry is None or now - entry.read_at > LIFETIME_SECONDS:
            return None
        self._entries[address] = replace(entry, read_at=now)
        if now - self._saved_at.get(address, 0.0) > SAVE_SECONDS:
            with suppress(OSError):  # the audio can be read all the same, and the next read saves its time
                self._append(address, self._entries[address])
        return entry

    def save_audio(self, address: str, data: bytes) -> None:
        """Save the audio of an address, or forget the address. Call it from a thread. Raises `OSError`."""
        try:
            _write(self.path(address), data)
        except OSError:
            self._entries.pop(address, None)
            raise

    def open_copy(self) -> IO[bytes]:
        """Open a file without a name, which ends with the process. Raises `OSError`."""
        return tempfile.TemporaryFile(dir=self._directory)

    def path(self, address: str) -> Path:
        """Return the path of the audio that is saved for an address, if any."""
        return self._directory / f"{address}.audio"

    def _expire(self) -> None:
        """Forget what has expired, and the saved audio past the limit."""
        now, held = self._now(), 0
        for address, entry in sorted(self._entries.items(), key=lambda item: -item[1].read_at):
            held += 0 if entry.uri else entry.size_bytes or 0
            if now - entry.read_at > LIFETIME_SECONDS or (held > HELD_BYTES and not entry.uri):
                del self._entries[address]
                self._saved_at.pop(address, None)
                self.path(address).unlink(missing_ok=True)

    def _load(self) -> dict[str, MediaEntry]:
        try:
            text = (self._directory / _TABLE).read_text("utf-8")
        except FileNotFoundError:
            return {}
        entries: dict[str, MediaEntry] = {}
        for line in text.split("\n")[:-1]:  # a line without an end was cut off with its process
            raw = json.loads(line)
            if not isinstance(raw, dict):
                raise TypeError(f"expected lines of objects, got JSON of type {type(raw).__name__}")
            address = str(raw.pop("address", ""))
            if _ADDRESS.fullmatch(address):
                entries[address] = MediaEntry(**raw)
        return entries

    def _append(self, address: str, entry: MediaEntry) -> None:
        with os.fdopen(os.open(self._directory / _TABLE, _APPEND, 0o600), "ab", buffering=0) as file:
            end, line = file.tell(), _line(address, entry).encode("ascii")
            if file.write(line) < len(line):  # the disk is full; the next line must not follow a half one
                file.truncate(end)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._saved_at[address] = entry.read_at


def _line(address: str, entry: MediaEntry) -> str:
    return json.dumps({"address": address, **asdict(entry)}) + "\n"


def _write(path: Path, data: bytes) -> None:
    """Write a file that only this user can read. It appears when it is whole."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
