"""Local files as media: the same decoder and sinks as for a stream."""

from __future__ import annotations

import stat
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import trio

from playhead.errors import ClosedError, UsageError
from playhead.stream.source import BlockingReader

if TYPE_CHECKING:
    from typing_extensions import Buffer


class FileMedia:
    """A regular file. Its format is found by its first bytes, then by its name."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def title(self) -> str:
        return self.path.stem

    @property
    def mime_type(self) -> str | None:
        return None

    @property
    def uri(self) -> str | None:
        return self.path.absolute().as_uri()

    @property
    def size_bytes(self) -> int | None:
        return None

    def open(self) -> AbstractAsyncContextManager[BlockingReader]:
        """Raises `OSError` where the file cannot be opened and `UsageError` where it is not a regular one."""
        return _open_file(self.path)


@asynccontextmanager
async def _open_file(path: Path) -> AsyncIterator[BlockingReader]:
    reader = await trio.to_thread.run_sync(_FileReader, path)
    try:
        yield reader
    finally:
        reader.close()


class _FileReader:
    """Reads for one thread and is closed by another: never in the middle of a read."""

    def __init__(self, path: Path) -> None:
        # A pipe or a device could block the opening itself; what it is can be asked without.
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"expected a regular file to play, but {path} is not one")
        self._file: BinaryIO = path.open("rb", buffering=0)
        self._lock = threading.Lock()

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        with self._lock:
            if self._file.closed:
                raise ClosedError("the file was closed while it was being read")
            return self._file.readinto(buffer)  # type: ignore[attr-defined,no-any-return]  # a raw file has it

    def close(self) -> None:
        with self._lock:
            self._file.close()
