"""Local files and pipes as playables: the same decoder and sinks as for a stream."""

from __future__ import annotations

import os
import re
import select
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import trio

from playhead.content.audio import is_audio
from playhead.errors import ClosedError, UsageError, naming_descriptor_limit
from playhead.stream.source import Reader

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from playhead.stream.options import StreamOptions


class FileMedia:
    """A regular file, identified by its first bytes, then by its name."""

    mime_type = None
    size_bytes = None

    def __init__(self, path: str | PathLike[str], *, title: str = "") -> None:
        self.path = Path(path)
        self._title = title

    @property
    def title(self) -> str:
        return self._title or self.path.stem

    @property
    def uri(self) -> str | None:
        return self.path.absolute().as_uri()

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[Reader]:
        """Raises `UsageError` if the file is missing, cannot be read, or is not a regular file."""
        with closing(await trio.to_thread.run_sync(_FileReader, self.path)) as reader:
            yield reader


class _FileReader(Reader):
    """A reader that another thread may close, never in the middle of a read."""

    def __init__(self, path: Path) -> None:
        try:
            with naming_descriptor_limit():
                # Opening a pipe or a device could block; asking for its kind does not.
                if not stat.S_ISREG(path.stat().st_mode):
                    raise UsageError(
                        f"expected a regular file to play, got {path}; pass the path of an audio file"
                    )
                self._file: BinaryIO = path.open("rb", buffering=0)
                self._size_bytes = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise UsageError(
                f"expected a readable file, got {path} ({error.strerror}); check the path and its permissions"
            ) from error
        self._lock = threading.Lock()

    @property
    def seekable(self) -> bool:
        return True

    @property
    def buffered_range(self) -> tuple[int, int]:
        return 0, self._size_bytes

    @property
    def size_bytes(self) -> int | None:
        return self._size_bytes

    def seek_from_thread(self, offset: int) -> None:
        with self._lock:
            if not self._file.closed:
                self._file.seek(offset)

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        with self._lock:
            if self._file.closed:
                raise ClosedError("the file was closed while it was being read")
            try:
                return self._file.readinto(buffer)  # type: ignore[attr-defined,no-any-return]  # a raw file has it
            except OSError as error:
                error.filename = self._file.name  # a failing disk gives no name
                raise

    def close(self) -> None:
        with self._lock:
            self._file.close()


class PipeMedia:
    """The audio that arrives through a file descriptor, such as stdin: read once, without seeks.

    `head` has the bytes that were already read from it. The descriptor stays open.
    """

    mime_type = None
    uri = None
    size_bytes = None

    def __init__(self, fd: int, *, title: str, head: bytes = b"") -> None:
        self.title = title
        self._fd = fd
        self._head = head

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[Reader]:
        """Open a reader of the bytes that earlier readers have left."""
        head, self._head = self._head, b""
        with closing(_PipeReader(self._fd, head)) as reader:
            yield reader


class _PipeReader(Reader):
    """A reader of a file descriptor. A byte in its own wake pipe interrupts a thread that waits."""

    def __init__(self, fd: int, head: bytes) -> None:
        self._fd = fd
        self._head = head
        self._wake_receiver, self._wake_sender = os.pipe()
        self._lock = threading.Lock()
        """Held while a thread waits."""
        self._is_closed = False

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        with self._lock, memoryview(buffer).cast("B") as view:
            if self._head:
                piece, self._head = self._head[: len(view)], self._head[len(view) :]
                view[: len(piece)] = piece
                return len(piece)
            if self._is_closed:
                raise ClosedError("the pipe was closed while it was being read")
            ready, _, _ = select.select([self._fd, self._wake_receiver], [], [], timeout)
            if self._wake_receiver in ready:
                os.read(self._wake_receiver, 1)
            if self._fd not in ready or self._is_closed:
                raise TimeoutError("no byte has arrived")
            return os.readv(self._fd, [view])

    def interrupt(self) -> None:
        os.write(self._wake_sender, b".")

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.interrupt()
        with self._lock:
            os.close(self._wake_receiver)
            os.close(self._wake_sender)


def audio_files(directory: Path) -> list[Path]:
    """Return the files below `directory` with a suffix of audio: each directory's files before those of its
    subdirectories, and numbers in names as numbers. Hidden files and links to directories are left out."""
    files: list[Path] = []
    for place, directories, names in os.walk(directory):
        directories[:] = sorted((name for name in directories if not name.startswith(".")), key=_natural)
        files += (
            Path(place, name)
            for name in sorted(names, key=_natural)
            if not name.startswith(".") and is_audio(None, Path("/", name).as_uri())
        )
    return files


def _natural(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]+)", name.casefold())
    return [(int(part), "") if part.isdecimal() and part.isascii() else (-1, part) for part in parts]
