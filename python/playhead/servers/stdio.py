"""The lines of a server's stdin, read so that a cancelled server ends at once.

The SDK's `stdio_server` keeps stdout clean (while it serves, file descriptor 1 is stderr), but reads stdin
in a thread that cannot be left: Ctrl-C then waits for the client's next line. Here the thread is left behind,
and it holds no lock that the interpreter would need at its end.
"""

from __future__ import annotations

import os

import trio

from playhead.errors import LimitError
from playhead.limits import DEFAULT_LIMITS, Limits

_READ_BYTES = 64 * 1024


class StdinLines:
    """An asynchronous iterator over the lines of a file descriptor, as text.

    Linear in the size of a line; bytes that are not UTF-8 become U+FFFD, so that they spoil one message only.
    A last line without a newline counts.
    """

    def __init__(self, fd: int = 0, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._fd = fd
        self._limits = limits
        self._begun: list[bytes] = []  # the pieces of a line whose end has not come
        self._begun_bytes = 0
        self._lines: list[bytes] = []  # whole lines, newest first
        self._ended = False

    def __aiter__(self) -> StdinLines:
        return self

    async def __anext__(self) -> str:
        """The next line.

        Raises:
            LimitError: a line is longer than `limits.message_bytes`.
            StopAsyncIteration: the other side closed.

        Cancelled, no byte is lost to a later call but those that a read in progress still takes: a cancelled
        server reads no more.
        """
        while not self._lines:
            if self._ended:
                raise StopAsyncIteration
            data = await trio.to_thread.run_sync(os.read, self._fd, _READ_BYTES, abandon_on_cancel=True)
            self._take(data)
        await trio.lowlevel.checkpoint()
        return self._lines.pop().decode("utf-8", "replace")

    def _take(self, data: bytes) -> None:
        if not data:
            self._ended = True
            self._lines = [b"".join(self._begun)] if self._begun else []
            return
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join([*self._begun, whole[0]])
            self._begun, self._begun_bytes = [], 0
            self._lines = whole[::-1]
        if rest:
            self._begun.append(rest)
            self._begun_bytes += len(rest)
        if self._begun_bytes > self._limits.message_bytes:
            raise LimitError(
                f"a line on stdin is longer than {self._limits.message_bytes} bytes (message_bytes)",
                limit="message_bytes",
                allowed=self._limits.message_bytes,
                got=self._begun_bytes,
            )
