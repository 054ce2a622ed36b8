"""`TerminalLines`: the lines that a person types at a terminal.

The kernel edits the line, and the terminal becomes readable when the line is complete, so this needs no
thread. A library for editing lines would need a thread or asyncio, and would compete with streaming text for
the screen. The kernel limits a line to 4,095 bytes, so pipe longer input.
"""

from __future__ import annotations

import os
from typing import Final

import trio

_READ_BYTES: Final = 65_536


class TerminalLines:
    """The lines of the terminal behind `fd`. For one reader at a time; cancellation loses nothing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""
        self._is_at_end = False

    async def read(self) -> str | None:
        """Return the next line without its line break; None after Ctrl-D, or once the terminal is gone."""
        while b"\n" not in self._buffer and not self._is_at_end:
            await trio.lowlevel.wait_readable(self._fd)
            try:
                data = os.read(self._fd, _READ_BYTES)
            except OSError:  # EIO: the terminal was closed
                data = b""
            self._is_at_end = not data
            self._buffer += data
        line, newline, rest = self._buffer.partition(b"\n")
        self._buffer = rest
        if not newline and not line:
            return None
        return line.decode("utf-8", "replace")
