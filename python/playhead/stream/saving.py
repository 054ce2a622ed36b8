"""A file that appears under its name only when it is whole."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

import trio


@asynccontextmanager
async def whole_file(path: Path) -> AsyncIterator[BinaryIO]:
    """A file to write, beside `path`, renamed to it when the block ends well and removed when it does not.

    It is created anew and never through a link. Not synced to the disk: a power cut may lose it. Raises
    `OSError` where the folder can't be written. Cancelled: the temporary file is gone.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    file = await trio.to_thread.run_sync(_create, partial)
    try:
        try:
            yield file
        finally:
            file.close()
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _create(path: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, 0o666), "wb", buffering=0)
