"""A stdio server: its process and pipes as a carrier.

Four tasks run while it is open: one reads stdout into the inbox, one saves the end of stderr, one waits for
the process, and one reports the loss. A request is written by the task that sends it.
"""

from __future__ import annotations

import os
import select
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Final

import trio

from playhead.client.transports.carrier import Carrier, Receiver
from playhead.client.transports.server_process import ServerProcess, open_server
from playhead.errors import ConnectionLostError
from playhead.limits import KIB, Limits
from playhead.protocol.exchange import Exchange, Outgoing
from playhead.protocol.inbox import Inbox

CHUNK_BYTES: Final = 256 * KIB
"""The largest read of stdout. Of 64 KiB, 256 KiB and 1 MiB (the capacity of the widened pipe), 256 KiB took
the least CPU per page of 100 KiB: 16% less than 1 MiB."""

LAST_WORDS_SECONDS: Final = 0.5
"""Limits the reading of a dead server's pipes, which one of its children may hold open for ever."""

FLUSH_SECONDS: Final = 0.5
"""Limits the time to complete a partly written line while closing."""

_STDERR_LINES: Final = 12
_SECRET_LENGTH: Final = 8
"""The least length of an environment variable's value that counts as a secret. Shorter values (`1`, `en_US`)
are words."""


class StdioCarrier(Carrier):
    """The pipes of a child process. `diagnosis()` stays readable afterwards."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        limits: Limits,
        started: ServerProcess | None = None,
    ) -> None:
        """
        Args:
            command: program and arguments, passed to the system as they are, never through a shell.
            env: added to a minimal environment (HOME, LOGNAME, PATH, SHELL, TERM, USER). Values of eight
                characters or more are treated as secrets: blanked in anything quoted from the server.
            cwd: the server's working directory. Default: ours.
            limits: `message_bytes`, `json_depth`, `json_values` and `stderr_bytes` are used.
            started: the process of `command`, if it already runs; the caller waits for its end.
        """
        self._command = command
        self._env = env
        self._cwd = cwd
        self._limits = limits
        self._started = started
        self._server: ServerProcess | None = None
        self._exchange: Exchange | None = None
        self._writing = trio.StrictFIFOLock()
        self._rest = bytearray()
        """The unwritten end of a line, which must be written before anything else."""
        self._unwritten: set[int | str] = set()
        """The requests of which no byte was written. If they are cancelled, the server does not know them."""
        self._lost = trio.Event()
        self._lost_by = ""
        self._is_closing = False
        self._is_stopped_by_us = False
        """True if the server still ran when we closed the connection, so that its exit explains nothing."""
        self._stderr = bytearray()
        self._stderr_ended = trio.Event()
        self._stdout_ended = trio.Event()

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
        """Return a description of the server for error messages: its exit, ignored output, the end of its
        stderr."""
        if self._server is None or self._exchange is None:
            return "the server was not started"
        parts = []
        if not self._is_stopped_by_us:
            lost = f"{self._lost_by} and " if self._lost_by and self._server.returncode is None else ""
            parts.append(f"the server {self._server.name!r} {lost}{self._server.describe_exit()}")
        faults = self._exchange.faults()
        if faults.first is not None:
            first = self._blank_secrets(faults.first)
            parts.append(
                f"{faults.not_messages} lines on its stdout were not JSON-RPC messages, the first: {first}"
            )
        last_words = [line for line in self.stderr_tail.splitlines() if line.strip()][-_STDERR_LINES:]
        if last_words:
            parts.append("the end of its stderr:\n" + "\n".join(f"  {line[:500]}" for line in last_words))
        return "; ".join(parts)

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[None]:
        self._exchange = receiver.exchange
        started = self._started
        async with (
            open_server(self._command, env=self._env, cwd=self._cwd)
            if started is None
            else nullcontext(started) as server
        ):
            self._server = server
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._collect_stderr, server)
                nursery.start_soon(self._read, server, receiver)
                nursery.start_soon(self._await_exit, server)
                nursery.start_soon(self._report_loss, server, receiver)
                quick = True
                try:
                    yield
                    quick = False
                except Exception:  # not a cancellation, which stops the server at once
                    quick = False
                    raise
                finally:
                    self._is_stopped_by_us = server.returncode is None and not self._lost.is_set()
                    self._is_closing = True  # from here on stdout is only drained, so that the server can end
                    try:
                        if not quick and not self._lost.is_set():
                            with trio.move_on_after(FLUSH_SECONDS):
                                await self._write(server, b"")
                    finally:
                        await server.stop(quick=quick)
                        nursery.cancel_scope.cancel()

    # --- out -----------------------------------------------------------------------------------------

    async def request(self, outgoing: Outgoing, *, is_repeat: bool = False) -> None:
        server = self._server
        assert server is not None
        line = outgoing.data + b"\n"
        if len(line) <= select.PIPE_BUF and not self._rest and not self._writing.locked():
            try:
                os.write(server.stdin.fileno(), line)  # all or nothing, up to PIPE_BUF (POSIX, pipe writes)
            except OSError:
                pass  # the pipe is full or broken; `_write` finds out which
            else:
                return
        self._unwritten.add(outgoing.id)
        await self._write(server, line, outgoing)

    async def tell(self, data: bytes, *, given_up: Outgoing | None = None) -> None:
        assert self._server is not None
        if given_up is not None and given_up.id in self._unwritten:
            self._unwritten.discard(given_up.id)
            return
        await self._write(self._server, data + b"\n")

    async def _write(self, server: ServerProcess, line: bytes, outgoing: Outgoing | None = None) -> None:
        """Write a line after all earlier ones. Cancelled: its rest is written before the next line."""
        async with self._writing:
            if self._rest:
                await self._flush(server)
            if outgoing is not None:
                self._unwritten.discard(outgoing.id)
            self._rest += line
            await self._flush(server)

    async def _flush(self, server: ServerProcess) -> None:
        fd = server.stdin.fileno()
        while self._rest:
            try:
                with memoryview(self._rest) as rest:
                    written = os.write(fd, rest)
                del self._rest[:written]
            except BlockingIOError:
                try:
                    await trio.lowlevel.wait_writable(fd)
                except trio.ClosedResourceError:
                    return  # our own shutdown has closed it
            except OSError:
                self._lose("closed its stdin")
                await trio.sleep_forever()  # until the loss is reported, which fails every request

    # --- the tasks -----------------------------------------------------------------------------------

    async def _read(self, server: ServerProcess, receiver: Receiver) -> None:
        inbox = Inbox(receiver.exchange, self._limits)
        try:
            while chunk := await server.stdout.receive_some(CHUNK_BYTES):
                if self._is_closing or inbox.failure is not None:
                    continue
                receiver.take(inbox.receive(chunk))
                del chunk  # frees it while the next one is awaited
                if inbox.failure is not None:
                    receiver.lost(inbox.failure)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # closed by our own shutdown
        finally:
            self._stdout_ended.set()
        self._lose("closed its stdout")

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
        self._lose("ended")

    def _lose(self, how: str) -> None:
        if not self._lost.is_set() and not self._is_closing:
            self._lost_by = how
            self._lost.set()

    async def _report_loss(self, server: ServerProcess, receiver: Receiver) -> None:
        await self._lost.wait()
        with trio.move_on_after(LAST_WORDS_SECONDS):
            await server.wait()
            await self._stderr_ended.wait()
        receiver.lost(
            ConnectionLostError(f"expected an answer, but the connection ended: {self.diagnosis()}")
        )

    def _blank_secrets(self, text: str) -> str:
        for name, value in (self._env or {}).items():
            if len(value) >= _SECRET_LENGTH:
                text = text.replace(value, f"[{name}]")
        return text
