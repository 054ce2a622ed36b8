"""MCP over stdio, the server's side. A read of stdin does not delay the end of a cancelled server.

The SDK's `stdio_server` protects stdout (while it serves, file descriptor 1 is stderr), but reads stdin in a
thread that cannot be abandoned, so that Ctrl-C waits for the client's next line. `StdinLines` abandons its
thread, which holds no lock that the interpreter would need at exit.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any, cast

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

_READ_BYTES = 64 * 1024


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
    async with refuse, stdio_server(stdin=lines) as (read, write), trio.open_nursery() as nursery:

        async def answer() -> None:
            async with refusals, write.clone() as writer:
                async for refusal in refusals:
                    await writer.send(refusal)

        nursery.start_soon(answer)
        task_status.started(None)
        await server.run(read, write, server.create_initialization_options())
        refuse.close()  # stdin has ended; `answer` sends the last refusals


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
                data = await trio.to_thread.run_sync(os.read, self._fd, _READ_BYTES, abandon_on_cancel=True)
                self._is_at_end = not data
                self._framer.feed(data or (b"\n" if self._framer.message.length_bytes else b""))
