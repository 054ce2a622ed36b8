"""MCP over stdio, the server's side. A read of stdin does not delay the end of a cancelled server.

The SDK's `stdio_server` takes three worker threads and two tasks per message, which cost more than the
message itself, and Ctrl-C waits for the client's next line. Here the event loop waits for stdin, each message
is parsed once, and is written without a thread if the pipe has room. Stdout stays clean: while the server
serves, file descriptor 1 is stderr.
"""

from __future__ import annotations

import fcntl
import os
import select
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import trio
from mcp.server import Server
from mcp.shared.message import SessionMessage

from playhead.errors import LimitError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.protocol.framing import Line, LineFramer, OverlongLine
from playhead.servers.messages import ErrorAnswer, decode

_READ_BYTES: Final = 64 * 1024
_PIPE_BYTES: Final = select.PIPE_BUF
"""A pipe that is ready takes this many bytes without blocking."""
_PIPE_SIZE: Final = getattr(fcntl, "F_GETPIPE_SZ", None)
"""Asks for the capacity of a pipe. Linux only."""


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
        OSError: the client closed stdout.
    """
    with _clean_stdout() as fd, trio.CancelScope() as scope:
        stdout = StdoutMessages(fd, scope)
        task_status.started(None)
        messages = StdinMessages(StdinLines(limits=limits), stdout)
        await server.run(messages, stdout, server.create_initialization_options())
    if stdout.failure is not None:
        raise stdout.failure


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


class StdoutMessages(trio.abc.SendChannel[SessionMessage]):
    """Messages to a file descriptor, one per line."""

    def __init__(self, fd: int, serving: trio.CancelScope) -> None:
        """`serving` is cancelled if the other side closes; `failure` is then the reason."""
        self._fd = fd
        self._serving = serving
        self._writing = trio.Lock()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self.failure: OSError | None = None

    async def send(self, value: SessionMessage) -> None:
        """Write a message. Cancelling has no effect once that has begun, so that no line is torn.

        Raises `anyio.BrokenResourceError`, which the SDK expects, if the other side has closed.
        """
        line = value.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        try:
            self._writing.acquire_nowait()
        except trio.WouldBlock:
            await self._writing.acquire()
        try:
            if self._has_room(len(line)):
                self._write(line)
                await trio.lowlevel.cancel_shielded_checkpoint()
            else:
                await trio.to_thread.run_sync(self._write, line)
        except OSError as error:
            self.failure = error
            self._serving.cancel()
            raise anyio.BrokenResourceError from error
        finally:
            self._writing.release()

    async def aclose(self) -> None:
        """Do nothing: the descriptor is the caller's."""
        await trio.lowlevel.checkpoint()

    def _has_room(self, n_bytes: int) -> bool:
        """Return whether a write does not block: of a short line to a ready pipe, or to an empty pipe."""
        if n_bytes <= _PIPE_BYTES:
            return bool(self._poll.poll(0))
        try:
            unread = fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4))
            return _PIPE_SIZE is not None and not any(unread) and n_bytes <= fcntl.fcntl(self._fd, _PIPE_SIZE)
        except OSError:  # not a pipe
            return False

    def _write(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[os.write(self._fd, view) :]


class StdinMessages(trio.abc.ReceiveChannel[SessionMessage | Exception]):
    """The lines that are messages. Others get an error in answer, and empty ones are skipped."""

    def __init__(self, lines: StdinLines, stdout: StdoutMessages) -> None:
        self._lines = lines
        self._stdout = stdout

    async def receive(self) -> SessionMessage | Exception:
        """Raises `LimitError`, and `trio.EndOfChannel` if the other side closed."""
        async for line in self._lines:
            message = decode(line.encode()) if line.strip() else None
            if isinstance(message, ErrorAnswer):
                with suppress(anyio.BrokenResourceError):  # the serving is then cancelled
                    await self._stdout.send(SessionMessage(message.answer))
            elif message is not None:
                return SessionMessage(message)
        raise trio.EndOfChannel

    async def aclose(self) -> None:
        """Do nothing: the descriptor is the caller's."""
        await trio.lowlevel.checkpoint()


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
