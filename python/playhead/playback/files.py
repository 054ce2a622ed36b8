"""Local files as playables: the same decoder and sinks as for a stream."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import trio

from playhead.errors import ClosedError, UsageError, naming_descriptor_limit
from playhead.stream.source import Reader

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from playhead.stream.options import StreamOptions


class FileMedia:
    """A regular file, identified by its first bytes, then by its name."""

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

    def open(self, options: StreamOptions | None = None) -> AbstractAsyncContextManager[Reader]:
        """Raises `UsageError` if the file is missing, cannot be read, or is not a regular file."""
        return _open_file(self.path)


@asynccontextmanager
async def _open_file(path: Path) -> AsyncIterator[Reader]:
    reader = await trio.to_thread.run_sync(_FileReader, path)
    try:
        yield reader
    finally:
        reader.close()


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
            return self._file.readinto(buffer)  # type: ignore[attr-defined,no-any-return]  # a raw file has it

    def close(self) -> None:
        with self._lock:
            self._file.close()
