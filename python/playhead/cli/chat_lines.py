"""What a person types, line by line, without a thread: the kernel edits the line, and wakes us when it ends.

A library for line editing would need a thread or asyncio of its own, and would fight for the screen with text
that streams. A terminal's line holds 4,095 bytes; what is longer comes through a pipe.
"""

from __future__ import annotations

import os
from typing import Final

import trio

_READ_BYTES: Final = 65_536


class Lines:
    """The lines of the terminal behind `fd`. For one reader at a time; cancelling loses nothing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._held = b""
        self._over = False

    async def read(self) -> str | None:
        """The next line without its end; None when Ctrl-D ended it, or the terminal is gone."""
        while b"\n" not in self._held and not self._over:
            await trio.lowlevel.wait_readable(self._fd)
            try:
                data = os.read(self._fd, _READ_BYTES)
            except OSError:  # EIO: the terminal was closed
                data = b""
            self._over = not data
            self._held += data
        line, newline, rest = self._held.partition(b"\n")
        self._held = rest
        if not newline and not line:
            return None
        return line.decode("utf-8", "replace")
