"""Files of this machine that a result names, below directories that the user allowed.

Each directory of the path and the file itself are opened without following links, and the opened file is
checked, not its name. So a process that can write to the directories cannot redirect the open.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import trio

from playhead.errors import BlockedAddressError, RangePastEndError, UsageError
from playhead.stream.answer import Page


def open_below(path: str, directories: Iterable[str]) -> int:
    """Open a regular file for reading and return its descriptor. Blocks on the disk.

    Raises `BlockedAddressError` for a path that is not absolute, is not below one of `directories`, or is not
    a regular file, and `OSError` for a path with a link, or a file that cannot be opened.
    """
    wanted = Path(path)
    if not wanted.is_absolute() or ".." in wanted.parts or "\0" in path:
        raise BlockedAddressError(f"expected an absolute path without `..`, got {path[:200]!r}")
    directory = next((each for each in map(Path, directories) if wanted.is_relative_to(each)), None)
    if directory is None or os.open not in os.supports_dir_fd:
        raise BlockedAddressError(
            f"{path[:200]!r} is not below an allowed directory",
            permission=("allow_paths", str(wanted.parent)),
        )
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe would wait for its writer
    at = os.open(directory, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    *between, name = wanted.relative_to(directory).parts or (".",)
    try:
        for part in between:
            inner = os.open(part, flags | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = inner
        file = os.open(name, flags, dir_fd=at)
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise BlockedAddressError(f"expected a regular file, got {path[:200]!r}")
    return file


class LocalFile:
    """An open file, as a `playhead.stream.answer.ReadRange`. Close it when no read is running."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size_bytes = os.fstat(descriptor).st_size

    @classmethod
    async def open(cls, path: str, directories: Iterable[str]) -> LocalFile:
        """Open a file. Raises `BlockedAddressError` as `open_below`, and `UsageError` for an `OSError`."""
        try:
            return cls(await trio.to_thread.run_sync(open_below, path, tuple(directories)))
        except OSError as error:
            raise UsageError(f"expected a readable file, got {path[:200]!r} ({error.strerror})") from error

    async def __call__(self, start: int, end: int) -> Page:
        """Read one page. Raises `RangePastEndError` at the end of the file."""
        if not (data := await self.read(start, end)):
            raise RangePastEndError(f"the file ends before byte {start}", code=416)
        return Page(blobs=(data,), total_bytes=self.size_bytes)

    async def read(self, start: int, end: int) -> bytes:
        return await trio.to_thread.run_sync(os.pread, self._descriptor, end - start, start)

    async def aclose(self) -> None:
        os.close(self._descriptor)
        await trio.lowlevel.checkpoint()
