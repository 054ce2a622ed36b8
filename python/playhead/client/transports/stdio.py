"""A stdio server as a transport under the SDK's sessions.

Four tasks live while it is open: one reads stdout into the inbox, one writes what the session sends, one
keeps the end of stderr, one waits for the process. What ends the connection (the process, its stdout, its
stdin, a limit) is noted once as `failure`; every request that waits is answered with it, and the stream to
the session ends. Reading never waits for writing, so a server that fills one pipe before it empties the
other cannot lock both sides; a slow session makes the server wait, not the memory grow.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType

import anyio
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from playhead.client.process import ServerProcess, open_server
from playhead.client.transports import messages
from playhead.client.transports.delivery import Received, deliver_all, end_session
from playhead.client.transports.inbox import Inbox, InboxStatistics
from playhead.client.transports.one_use import OneUse
from playhead.client.transports.outbox import Outbox
from playhead.client.wire import WireFaults
from playhead.errors import ConnectionLostError, PlayheadError, UsageError
from playhead.limits import DEFAULT_LIMITS, MIB, Limits

CHUNK_BYTES = MIB
"""One read of stdout at most: the widened pipe's capacity."""

LAST_WORDS_SECONDS = 0.5
"""How long a dead server's pipes are read on: a child of it may hold them open for ever."""

FLUSH_SECONDS = 0.5
"""How long closing waits for what the session has already sent."""

_STDERR_LINES = 12
_SECRET_LENGTH = 8
"""Shorter values of the environment (`1`, `en_US`) are words, not secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioStatistics:
    """What one stdio transport has done so far, in bytes and messages."""

    sent_bytes: int
    sent_messages: int
    received: InboxStatistics


class StdioTransport:
    """An SDK transport: `async with transport as (read, write)`. Make one with `stdio_transport`.

    Usable once. `failure`, `diagnosis()`, `last_received` and `statistics()` stay readable afterwards.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        cwd: str | os.PathLike[str] | None,
        limits: Limits,
    ) -> None:
        self._command = command
        self._env = env
        self._cwd = cwd
        self._limits = limits
        self._inbox = Inbox(limits)
        self._server: ServerProcess | None = None
        self._use = OneUse(
            self._open, again="a stdio transport is used once; make another with stdio_transport(...)"
        )
        self._lost = trio.Event()
        self._lost_by = ""
        self._stderr = bytearray()
        self._stderr_ended = trio.Event()
        self._stdout_ended = trio.Event()
        self._sent_bytes = 0
        self._sent_messages = 0
        self._closing = False
        self._listening = True
        """Whether stdout is still looked at; otherwise it is only drained."""
        self.failure: PlayheadError | None = None
        """Why the connection ended by itself: a `ConnectionLostError` with the server's exit status and last
        words, or a `LimitError`. None while it works and after it was closed by its owner."""
        self.last_received: float = 0.0
        """When the last byte came that may belong to something awaited, on trio's clock (`current_time`).
        Log lines, answers to nobody and plain notifications do not count: chatter is no progress."""

    @property
    def pid(self) -> int | None:
        """The server's process id (and group); None before the start."""
        return None if self._server is None else self._server.pid

    @property
    def returncode(self) -> int | None:
        """None while the server runs; its exit status, or minus the number of the signal that ended it."""
        return None if self._server is None else self._server.returncode

    @property
    def stderr_tail(self) -> str:
        """The newest `limits.stderr_bytes` of the server's stderr, with the values of `env` blanked.

        It is the server's text: whoever prints it escapes it (`cli.terminal.escape`).
        """
        return self._blank_secrets(self._stderr.decode("utf-8", "replace"))

    def diagnosis(self) -> str:
        """What is known about the server, for an error message: its end, its last words, what was ignored."""
        if self._server is None:
            return "the server was not started"
        lost = f"{self._lost_by} and " if self._lost_by and self._server.returncode is None else ""
        parts = [f"the server {self._server.name!r} {lost}{self._server.describe_exit()}"]
        received = self._inbox.statistics()
        if received.first_ignored is not None:
            first = self._blank_secrets(received.first_ignored)
            parts.append(f"{received.ignored_lines} lines on its stdout were no messages, the first: {first}")
        last_words = [line for line in self.stderr_tail.splitlines() if line.strip()][-_STDERR_LINES:]
        if last_words:
            parts.append("its last words on stderr:\n" + "\n".join(f"  {line[:500]}" for line in last_words))
        return "; ".join(parts)

    def statistics(self) -> StdioStatistics:
        """A snapshot."""
        return StdioStatistics(
            sent_bytes=self._sent_bytes, sent_messages=self._sent_messages, received=self._inbox.statistics()
        )

    def faults(self) -> WireFaults:
        """What came on stdout beside the protocol."""
        return self._inbox.faults()

    async def __aenter__(self) -> tuple[MemoryObjectReceiveStream[Received], Outbox]:
        """Start the server.

        Raises:
            ConnectError: its command cannot be started.
            ClosedError: this transport was used before.
        """
        return await self._use.enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """End the server and its children: politely, or in 0.2 s if `error` is a cancellation or Ctrl-C."""
        return await self._use.leave(kind, error, trace)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Received], Outbox]]:
        # Nothing is buffered for the session: what it has not taken stays in the pipe.
        deliver, read_stream = anyio.create_memory_object_stream[Received](0)
        write_stream, outgoing = Outbox.create(self._inbox)
        with deliver, read_stream, write_stream, outgoing:
            async with open_server(self._command, env=self._env, cwd=self._cwd) as server:
                self._server = server
                self.last_received = trio.current_time()
                async with trio.open_nursery() as nursery:
                    written = trio.Event()
                    nursery.start_soon(self._keep_stderr, server)
                    nursery.start_soon(self._read, server, deliver)
                    nursery.start_soon(self._write, server, outgoing, deliver, written)
                    nursery.start_soon(self._await_exit, server)
                    nursery.start_soon(self._report_loss, server, deliver, outgoing)
                    try:
                        yield read_stream, write_stream
                    finally:
                        self._closing = True
                        self._listening = False  # drained from here on, so that the server can finish
                        read_stream.close()
                        write_stream.close()
                        try:
                            if not self._use.quick:
                                with trio.move_on_after(FLUSH_SECONDS):
                                    await written.wait()
                        finally:
                            await server.stop(quick=self._use.quick)
                            nursery.cancel_scope.cancel()

    # --- the tasks -----------------------------------------------------------------------------------

    async def _read(self, server: ServerProcess, deliver: MemoryObjectSendStream[Received]) -> None:
        try:
            while chunk := await server.stdout.receive_some(CHUNK_BYTES):
                if self._listening:
                    await self._take(chunk, deliver)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # closed by our own shutdown
        finally:
            self._stdout_ended.set()
        self._lose("closed its stdout")

    async def _take(self, chunk: bytes | bytearray, deliver: MemoryObjectSendStream[Received]) -> None:
        """Pass on what a chunk completes."""
        self._inbox.feed(chunk)
        try:
            while (message := self._inbox.next_message()) is not None:
                self._note_activity()
                await deliver.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._listening = False
        self._note_activity()
        if self._inbox.failure is not None:
            self._listening = False
            self._lose("", self._inbox.failure)

    def _note_activity(self) -> None:
        if self._inbox.is_active:
            self.last_received = trio.current_time()

    async def _write(
        self,
        server: ServerProcess,
        outgoing: MemoryObjectReceiveStream[SessionMessage],
        deliver: MemoryObjectSendStream[Received],
        written: trio.Event,
    ) -> None:
        try:
            async for session_message in outgoing:
                encoded = messages.encode(session_message.message)
                if isinstance(encoded, UsageError):
                    await self._refuse(session_message.message, encoded, deliver)
                    continue
                line = encoded + b"\n"
                await server.stdin.send_all(line)
                self._sent_bytes += len(line)
                self._sent_messages += 1
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._lose("closed its stdin")
        finally:
            written.set()

    async def _refuse(
        self, message: types.JSONRPCMessage, error: UsageError, deliver: MemoryObjectSendStream[Received]
    ) -> None:
        answer = self._inbox.fail(message, error) if isinstance(message, types.JSONRPCRequest) else None
        if answer is not None:
            await deliver_all(deliver, [answer])

    async def _keep_stderr(self, server: ServerProcess) -> None:
        try:
            while chunk := await server.stderr.receive_some():
                self._stderr += chunk
                del self._stderr[: -self._limits.stderr_bytes]
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._stderr_ended.set()

    async def _await_exit(self, server: ServerProcess) -> None:
        await server.wait()
        # What it wrote before it ended is still in the pipe, and may be the answer.
        with trio.move_on_after(LAST_WORDS_SECONDS):
            await self._stdout_ended.wait()
        self._lose("ended")

    def _lose(self, what: str, error: PlayheadError | None = None) -> None:
        if not self._lost.is_set() and not self._closing:
            self._lost_by = what
            self.failure = error
            self._lost.set()

    async def _report_loss(
        self,
        server: ServerProcess,
        deliver: MemoryObjectSendStream[Received],
        outgoing: MemoryObjectReceiveStream[SessionMessage],
    ) -> None:
        await self._lost.wait()
        if self.failure is None:
            with trio.move_on_after(LAST_WORDS_SECONDS):
                await server.wait()
                await self._stderr_ended.wait()
            self.failure = ConnectionLostError(
                f"expected an answer, but the connection ended: {self.diagnosis()}"
            )
        await end_session(deliver, self._inbox.fail_awaited(self.failure), outgoing)

    def _blank_secrets(self, text: str) -> str:
        for name, value in (self._env or {}).items():
            if len(value) >= _SECRET_LENGTH:
                text = text.replace(value, f"[{name}]")
        return text


def stdio_transport(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> StdioTransport:
    """A transport to an MCP server that is started as a child process.

    Args:
        command: program and arguments, as the system gets them; never through a shell.
        env: added to a minimal environment (HOME, LOGNAME, PATH, SHELL, TERM, USER). Values of eight
            characters or more are treated as secrets: blanked in anything quoted from the server.
        cwd: the server's folder. Default: ours.
        limits: `message_bytes`, `json_depth`, `json_values` and `stderr_bytes` are used.

    Entering raises `ConnectError` when the command cannot be started. A request whose answer cannot be
    used ends at once with an `MCPError` that `messages.own_error` turns into ours (`ProtocolError`,
    `LimitError`, `ConnectionLostError`). Leaving, also by cancellation, leaves no process behind.
    """
    return StdioTransport(command, env=env, cwd=cwd, limits=limits)
