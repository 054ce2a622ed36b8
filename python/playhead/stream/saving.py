"""A file that appears under its name only when it is whole."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

import trio

from playhead.errors import UsageError


def is_device(path: Path) -> bool:
    """Whether `path` is a device such as `/dev/null`, to be written to as it is.

    False for a regular file and for a name that is free: those get a new file, renamed when it is whole. A
    rename would put a file in the place of anything else, of `/dev/null` for everybody: `UsageError`.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    if stat.S_ISREG(mode) or stat.S_ISCHR(mode):
        return stat.S_ISCHR(mode)
    kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or disk"
    raise UsageError(f"{path}: expected a file to write, found {kind}; give another name")


@asynccontextmanager
async def whole_file(path: Path) -> AsyncIterator[BinaryIO]:
    """A file to write, beside `path`, renamed to it when the block ends well and removed when it does not.

    It is created anew and never through a link. Not synced to the disk: a power cut may lose it. A device
    is written to as it is. Raises `OSError` where the folder can't be written, `UsageError` where `path` is
    something that a file must not replace. Cancelled: the temporary file is gone.
    """
    if is_device(path):
        with await trio.to_thread.run_sync(_open_device, path) as device:
            yield device
        return
    partial = partial_beside(path)
    try:
        file = await trio.to_thread.run_sync(_create, partial)
        try:
            yield file
        finally:
            file.close()
        partial.replace(path)
    except BaseException as error:  # a cancellation too: whatever ends this leaves no file behind
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = os.fspath(path)  # a full disk names none
        raise


def _open_device(path: Path) -> BinaryIO:
    return path.open("wb", buffering=0)


def partial_beside(path: Path) -> Path:
    """A new name in `path`'s folder, for what is not whole yet."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def _create(path: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, 0o666), "wb", buffering=0)
