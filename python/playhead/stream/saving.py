"""Files that appear under their names only when complete."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import trio

from playhead.errors import UsageError, naming_descriptor_limit


def is_device(path: Path) -> bool:
    """Return whether `path` is a device such as `/dev/null`, to be written to directly.

    False for a regular file and for an unused name, under which a complete file may appear. Raises
    `UsageError` for anything else, which the new file would replace.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    if stat.S_ISREG(mode) or stat.S_ISCHR(mode):
        return stat.S_ISCHR(mode)
    kind = "a directory" if stat.S_ISDIR(mode) else "a pipe, socket or disk"
    raise UsageError(f"{path}: expected a file to write, got {kind}; choose another name")


@asynccontextmanager
async def whole_file(path: Path) -> AsyncIterator[BinaryIO]:
    """Create a file next to `path`, and rename it to `path` if the block succeeds. Otherwise remove it.

    It is always a new file, so that nothing is written through a link. It is not synced to the disk: a power
    cut may lose it. A device is written to directly. Raises `OSError` if the directory cannot be written, and
    `UsageError` if `path` is something that a file must not replace. Cancelled: the file is removed.
    """
    if is_device(path):
        with await trio.to_thread.run_sync(_open_device, path) as device:
            yield device
        return
    partial = partial_beside(path)
    with naming_descriptor_limit():
        try:
            file = await trio.to_thread.run_sync(_create, partial)
            try:
                yield file
            finally:
                file.close()
            partial.replace(path)
        except BaseException as error:  # a cancellation too: no file is left behind
            with suppress(OSError):  # in a directory that cannot be written there is none
                partial.unlink()
            if isinstance(error, OSError):
                error.filename = os.fspath(path)  # an error of a full disk has no name
            raise


def _open_device(path: Path) -> BinaryIO:
    return path.open("wb", buffering=0)


def partial_beside(path: Path) -> Path:
    """Return a new name in the directory of `path`, for an incomplete file."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def _create(path: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, 0o666), "wb", buffering=0)
