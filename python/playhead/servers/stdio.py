"""MCP over stdio, the server's side. A read of stdin does not delay the end of a cancelled server.

The SDK's `stdio_server` takes three worker threads per message, which cost more than the message itself, and
Ctrl-C waits for the client's next line. Here the event loop waits for stdin, and short messages are written
without a thread. Stdout stays clean: while the server serves, file descriptor 1 is stderr.
"""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import anyio
import trio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from playhead.errors import LimitError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.protocol.framing import Line, LineFramer, OverlongLine
from playhead.servers.messages import ErrorAnswer, decode

_READ_BYTES: Final = 64 * 1024
_PIPE_BYTES: Final = select.PIPE_BUF
"""A pipe that is ready takes this many bytes without blocking."""


async def serve_stdio(
    server: Server[Any],
    *,
    limits: Limits = DEFAULT_LIMITS,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one client on stdin and stdout until stdin ends, or until cancelled.

    A line that is not a message gets the error -32700 or -32600; the SDK would ignore the line.

    Raises:
        LimitError: a line is longer than `limits.message_bytes`.
    """
    refuse, refusals = anyio.create_memory_object_stream[SessionMessage](0)
    # The SDK only iterates over its stdin, so this object needs no other method of a file.
    lines = cast("anyio.AsyncFile[str]", _valid_messages(StdinLines(limits=limits), refuse))
    with _clean_stdout() as fd:
        stdout = cast("anyio.AsyncFile[str]", StdoutLines(fd))
        async with refuse, stdio_server(lines, stdout) as (read, write), trio.open_nursery() as nursery:

            async def answer() -> None:
                async with refusals, write.clone() as writer:
                    async for refusal in refusals:
                        await writer.send(refusal)

            nursery.start_soon(answer)
            task_status.started(None)
            await server.run(read, write, server.create_initialization_options())
            refuse.close()  # stdin has ended; `answer` sends the last refusals


@contextmanager
def _clean_stdout() -> Iterator[int]:
    """Let file descriptor 1 be stderr, and yield a descriptor of the real stdout."""
    private = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        os.dup2(2, 1)
    except OSError:  # stderr is closed
        with Path(os.devnull).open("wb") as null:
            os.dup2(null.fileno(), 1)
    try:
        yield private
    finally:
        os.dup2(private, 1)
        os.close(private)


class StdoutLines:
    """The two methods of an asynchronous text file that the SDK calls, for a file descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._line = b""

    async def write(self, text: str) -> None:
        self._line = text.encode()

    async def flush(self) -> None:
        """Write the line. Raises `OSError` if the other side has closed. Cancelling has no effect once the
        write has begun, so that no line is torn."""
        if len(self._line) <= _PIPE_BYTES and self._poll.poll(0):
            self._write()
            await trio.lowlevel.checkpoint()
        else:
            await trio.to_thread.run_sync(self._write)

    def _write(self) -> None:
        view = memoryview(self._line)
        while view:
            view = view[os.write(self._fd, view) :]


async def _valid_messages(
    lines: StdinLines, refuse: MemoryObjectSendStream[SessionMessage]
) -> AsyncIterator[str]:
    """Yield the lines that are messages. Send an error in answer to others, and skip empty ones."""
    async for line in lines:
        message = decode(line.encode()) if line.strip() else None
        if isinstance(message, ErrorAnswer):
            await refuse.send(SessionMessage(message.answer))
        elif message is not None:
            yield line


class StdinLines:
    """An asynchronous iterator over the lines of a file descriptor, as strings.

    It takes time linear in the size of a line, and drops the blanks before it. Bytes that are not UTF-8
    become U+FFFD, so that they affect one message only. A last line without a newline counts.
    """

    def __init__(self, fd: int = 0, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._fd = fd
        self._limits = limits
        self._framer = LineFramer(max_bytes=limits.message_bytes)
        self._is_at_end = False

    def __aiter__(self) -> StdinLines:
        return self

    async def __anext__(self) -> str:
        """Return the next line.

        Raises:
            LimitError: a line is longer than `limits.message_bytes`.
            StopAsyncIteration: the other side closed.

        If cancelled, only the bytes of the read in progress are lost, and a cancelled server reads no more.
        """
        while True:
            event = self._framer.next_event()
            if isinstance(event, Line):
                await trio.lowlevel.checkpoint()
                return event.data.decode("utf-8", "replace")
            if isinstance(event, OverlongLine):
                raise LimitError(
                    f"a line on stdin is longer than {self._limits.message_bytes} bytes (message_bytes)",
                    limit="message_bytes",
                    allowed=self._limits.message_bytes,
                    got=self._framer.message.length_bytes,
                )
            if event is None:
                if self._is_at_end:
                    raise StopAsyncIteration
                data = await self._read()
                self._is_at_end = not data
                self._framer.feed(data or (b"\n" if self._framer.message.length_bytes else b""))

    async def _read(self) -> bytes:
        try:
            await trio.lowlevel.wait_readable(self._fd)
        except PermissionError:  # a file, which epoll does not take
            return await trio.to_thread.run_sync(os.read, self._fd, _READ_BYTES, abandon_on_cancel=True)
        return os.read(self._fd, _READ_BYTES)
