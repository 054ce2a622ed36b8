"""MCP over stdio, the server's side, and the lines of stdin read so that a cancelled server ends at once.

The SDK's `stdio_server` keeps stdout clean (while it serves, file descriptor 1 is stderr), but reads stdin
in a thread that cannot be left: Ctrl-C then waits for the client's next line. Here the thread is left behind,
and it holds no lock that the interpreter would need at its end.
"""

from __future__ import annotations

import os
from typing import Any, Final, cast

import anyio
import trio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from playhead.errors import LimitError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.servers.websocket import DEFAULT_OPTIONS
from playhead.servers.websocket_messages import Refusal, decode, structure_limits

_READ_BYTES = 64 * 1024
_STRUCTURE: Final = structure_limits(
    json_depth=DEFAULT_OPTIONS.json_depth, json_values=DEFAULT_OPTIONS.json_values
)


async def serve_stdio(
    server: Server[Any],
    *,
    limits: Limits = DEFAULT_LIMITS,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves one client on stdin and stdout until stdin ends, or until it is cancelled.

    A line that is no message is answered with -32700 or -32600, where the SDK would pass over it.

    Raises:
        LimitError: a line is longer than `limits.message_bytes`.
    """
    refused, refusals = anyio.create_memory_object_stream[SessionMessage](0)
    # The SDK only iterates over stdin.
    lines = cast("anyio.AsyncFile[str]", _MessageLines(StdinLines(limits=limits), refused))
    async with refused, stdio_server(stdin=lines) as (read, write), trio.open_nursery() as nursery:

        async def answer() -> None:
            async with refusals, write.clone() as ours:
                async for refusal in refusals:
                    await ours.send(refusal)

        nursery.start_soon(answer)
        task_status.started(None)
        await server.run(read, write, server.create_initialization_options())
        refused.close()  # stdin has ended; what was refused is still answered


class _MessageLines:
    """The lines that are messages; the others are answered, and empty ones passed over."""

    def __init__(self, lines: StdinLines, refused: MemoryObjectSendStream[SessionMessage]) -> None:
        self._lines = lines
        self._refused = refused

    def __aiter__(self) -> _MessageLines:
        return self

    async def __anext__(self) -> str:
        while True:
            line = await anext(self._lines)
            if not line.strip():
                continue
            found = decode(line, _STRUCTURE)
            if not isinstance(found, Refusal):
                return line
            await self._refused.send(SessionMessage(found.answer))


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
