"""A stdio server as a transport under the SDK's sessions.

Five tasks run while it is open: one reads stdout into the inbox, one writes the session's messages, one keeps
the end of stderr, one waits for the process, one reports the loss.
"""

from __future__ import annotations

import os
import select
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import trio

from playhead.client.transports.pump import PumpedTransport, SessionStreams
from playhead.client.transports.server_process import ServerProcess, open_server
from playhead.errors import ConnectionLostError
from playhead.limits import DEFAULT_LIMITS, MIB, Limits
from playhead.protocol.sdk_inbox import Inbox, InboxStatistics

CHUNK_BYTES = MIB
"""The largest read of stdout: the capacity of the widened pipe."""

LAST_WORDS_SECONDS = 0.5
"""Limit for reading a dead server's pipes: one of its children may hold them open for ever."""

FLUSH_SECONDS = 0.5
"""Limit for writing what the session has already sent, while closing."""

_STDERR_LINES = 12
_SECRET_LENGTH = 8
"""Shorter values of environment variables (`1`, `en_US`) are words, not secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioStatistics:
    """The bytes and messages of one stdio transport so far."""

    sent_bytes: int
    sent_messages: int
    received: InboxStatistics


class StdioTransport(PumpedTransport):
    """An SDK transport to a child process. Make one with `stdio_transport`.

    `diagnosis()` and `statistics()` stay readable afterwards too.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        cwd: str | os.PathLike[str] | None,
        limits: Limits,
        started: ServerProcess | None = None,
    ) -> None:
        self._command = command
        self._env = env
        self._cwd = cwd
        self._limits = limits
        self._started = started
        super().__init__(
            Inbox(limits),
            self._open,
            again="a stdio transport is used once; make another with stdio_transport(...)",
        )
        self._server: ServerProcess | None = None
        self._lost_by = ""
        self._stderr = bytearray()
        self._stderr_ended = trio.Event()
        self._stdout_ended = trio.Event()
        self._sent_bytes = 0

    @property
    def pid(self) -> int | None:
        """The server's process id (and group); None before the start."""
        return None if self._server is None else self._server.pid

    @property
    def returncode(self) -> int | None:
        """The server's exit status, or minus the signal that ended it; None while it runs."""
        return None if self._server is None else self._server.returncode

    @property
    def stderr_tail(self) -> str:
        """The newest `limits.stderr_bytes` of the server's stderr, with the values of `env` blanked.

        It is the server's text: escape it before printing (`playhead.escaping.escape`).
        """
        return self._blank_secrets(self._stderr.decode("utf-8", "replace"))

    def diagnosis(self) -> str:
        """A description of the server for error messages: its exit, ignored output, the end of its stderr."""
        if self._server is None:
            return "the server was not started"
        lost = f"{self._lost_by} and " if self._lost_by and self._server.returncode is None else ""
        parts = [f"the server {self._server.name!r} {lost}{self._server.describe_exit()}"]
        received = self._inbox.statistics()
        if received.first_ignored is not None:
            first = self._blank_secrets(received.first_ignored)
            parts.append(
                f"{received.ignored_lines} lines on its stdout were not JSON-RPC messages, the first: {first}"
            )
        last_words = [line for line in self.stderr_tail.splitlines() if line.strip()][-_STDERR_LINES:]
        if last_words:
            parts.append("the end of its stderr:\n" + "\n".join(f"  {line[:500]}" for line in last_words))
        return "; ".join(parts)

    def statistics(self) -> StdioStatistics:
        """A snapshot."""
        return StdioStatistics(
            sent_bytes=self._sent_bytes, sent_messages=self._sent_messages, received=self._inbox.statistics()
        )

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[SessionStreams]:
        started = self._started
        async with (
            open_server(self._command, env=self._env, cwd=self._cwd)
            if started is None
            else nullcontext(started) as server
        ):
            self._server = server
            with self._session_streams() as (read_stream, write_stream):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._collect_stderr, server)
                    nursery.start_soon(self._read, server)
                    nursery.start_soon(self._write, partial(self._send, server), self._on_unwritable)
                    nursery.start_soon(self._await_exit, server)
                    nursery.start_soon(self._report_loss, server)
                    try:
                        yield read_stream, write_stream
                    finally:
                        self._closing = True
                        self._listening = False  # only drained from here on, so that the server can finish
                        read_stream.close()
                        write_stream.close()
                        try:
                            if not self._use.quick:
                                with trio.move_on_after(FLUSH_SECONDS):
                                    await self._written.wait()
                        finally:
                            await server.stop(quick=self._use.quick)
                            nursery.cancel_scope.cancel()

    # --- the tasks -----------------------------------------------------------------------------------

    async def _read(self, server: ServerProcess) -> None:
        try:
            while chunk := await server.stdout.receive_some(CHUNK_BYTES):
                if self._listening:
                    self._inbox.feed(chunk)
                    await self._deliver_messages()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # closed by our own shutdown
        finally:
            self._stdout_ended.set()
        self._lose_server("closed its stdout")

    async def _send(self, server: ServerProcess, message: bytes) -> None:
        line = message + b"\n"
        await server.stdin.send_all(line)
        self._sent_bytes += len(line)

    def _write_at_once(self, message: bytes) -> bool:
        line = message + b"\n"
        stdin = None if self._server is None else self._server.stdin
        if not isinstance(stdin, trio.lowlevel.FdStream) or len(line) > select.PIPE_BUF:
            return False
        try:
            os.write(stdin.fileno(), line)  # all or nothing, up to PIPE_BUF (POSIX, pipe writes)
        except (OSError, trio.ClosedResourceError):
            return False  # full, or broken: the writer finds out
        self._sent_bytes += len(line)
        return True

    async def _on_unwritable(self) -> None:
        self._lose_server("closed its stdin")

    async def _collect_stderr(self, server: ServerProcess) -> None:
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
        # The output of an exited server is still in the pipe, and may hold the answer.
        with trio.move_on_after(LAST_WORDS_SECONDS):
            await self._stdout_ended.wait()
        self._lose_server("ended")

    def _lose_server(self, how: str) -> None:
        if not self._lost.is_set() and not self._closing:
            self._lost_by = how
        self._lose(None)

    async def _report_loss(self, server: ServerProcess) -> None:
        await self._lost.wait()
        if self.failure is None:
            with trio.move_on_after(LAST_WORDS_SECONDS):
                await server.wait()
                await self._stderr_ended.wait()
            self.failure = ConnectionLostError(
                f"expected an answer, but the connection ended: {self.diagnosis()}"
            )
        await self._end_session(self.failure)

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
    started: ServerProcess | None = None,
) -> StdioTransport:
    """Make a transport to an MCP server that runs as a child process.

    Args:
        command: program and arguments, passed to the system as they are, never through a shell.
        env: added to a minimal environment (HOME, LOGNAME, PATH, SHELL, TERM, USER). Values of eight
            characters or more are treated as secrets: blanked in anything quoted from the server.
        cwd: the server's working directory. Default: ours.
        limits: `message_bytes`, `json_depth`, `json_values` and `stderr_bytes` are used.
        started: the process of `command`, if it already runs; the caller waits for its end.

    Entering raises `ConnectError` if the command cannot be started. A request whose answer cannot be used
    ends at once with an `MCPError` that `messages.own_error` turns into ours (`ProtocolError`, `LimitError`,
    `ConnectionLostError`). Leaving ends the server and its children, gracefully or within 0.2 s of a
    cancellation.
    """
    return StdioTransport(command, env=env, cwd=cwd, limits=limits, started=started)
