"""A stdio server as a transport under the SDK's sessions, with its whole process tree.

Five tasks run while it is open: one reads stdout into the inbox, one writes the session's messages, one keeps
the end of stderr, one waits for the process, one reports the loss.

The server leads a session and process group of its own. Ctrl-C in a terminal therefore reaches playhead and
not the server behind its back, and one signal to the group reaches the server's children too. (A grandchild
that starts a session of its own has left the group, and cannot be found without cgroups.)

If playhead is killed with SIGKILL, a watcher ends the server: a POSIX `sh` of a megabyte that waits on a pipe
whose other end only playhead holds. A line on it dismisses the watcher; an end without one means that
playhead is gone, and the watcher ends the group. Without `/bin/sh` the server sees the end of its stdin and
nothing more. `PR_SET_PDEATHSIG` was rejected: it needs `preexec_fn` (unsafe with threads) or a launcher; it
is sent when the *thread* that forked ends, and trio forks in a worker thread that ends after ten idle
seconds; and it reaches the server only, not its children.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio
from mcp.client.stdio import get_default_environment

from playhead.client.transports.pump import PumpedTransport, SessionStreams
from playhead.errors import ConnectError, ConnectionLostError
from playhead.jsonrpc.inbox import Inbox, InboxStatistics
from playhead.limits import DEFAULT_LIMITS, MIB, Limits

GRACE_SECONDS = 2.0
"""Time for a server to exit by itself, first after its stdin closed and again after SIGTERM."""

QUICK_GRACE_SECONDS = 0.2
"""The same after a cancellation, when a person is waiting: SIGTERM at once, SIGKILL after this."""

_REAP_SECONDS = 2.0
"""Time for a killed process to be reaped; only one stuck in the kernel takes it."""

_WATCHER = 'read -r farewell || { kill -TERM "-$1"; sleep 1; kill -KILL "-$1"; } 2>/dev/null'


class ServerProcess:
    """A running server. `stdin`, `stdout` and `stderr` are its pipes, as trio streams."""

    def __init__(self, process: trio.Process, *, name: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self.name = name
        self.stdin = process.stdin
        self.stdout: trio.abc.ReceiveStream = process.stdout
        self.stderr: trio.abc.ReceiveStream = process.stderr

    @property
    def pid(self) -> int:
        """The server's process id, which is also its process group."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for the server itself (not its children) to exit. Cancelling this leaves it running."""
        return await self._process.wait()

    def describe_exit(self) -> str:
        """A verb phrase for messages, such as `ended with exit status 1`."""
        status = self.returncode
        if status is None:
            return "is still running"
        if status >= 0:
            return f"ended with exit status {status}"
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-status).name}"
        return f"was ended by signal {-status}"

    async def stop(self, *, quick: bool) -> None:
        """End the server and everything in its group.

        Gracefully: close its stdin, wait `GRACE_SECONDS`, SIGTERM to the group, wait as long again, SIGKILL.
        `quick` starts with SIGTERM and waits `QUICK_GRACE_SECONDS`. A cancellation makes the rest quick; the
        group is gone when this returns or raises `Cancelled`.
        """
        try:
            if not quick:
                await self._stop_gracefully()
        finally:
            with trio.CancelScope(shield=True):
                await self._stop_now()

    async def _stop_gracefully(self) -> None:
        await self.stdin.aclose()
        with trio.move_on_after(GRACE_SECONDS):
            await self.wait()
        if self.returncode is None:
            self._signal(signal.SIGTERM)
            with trio.move_on_after(GRACE_SECONDS):
                await self.wait()

    async def _stop_now(self) -> None:
        await trio.aclose_forcefully(self.stdin)
        if self._signal(signal.SIGTERM):
            # Only the leader can be awaited. Children that outlive it have had the same grace.
            with trio.move_on_after(QUICK_GRACE_SECONDS):
                await self.wait()
            self._signal(signal.SIGKILL)
        with trio.move_on_after(_REAP_SECONDS):
            await self.wait()

    def _signal(self, number: signal.Signals) -> bool:
        """Signal the whole group; False if it is empty."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # macOS, where only zombies are left
            return False
        return True


@asynccontextmanager
async def open_server(
    command: Sequence[str], *, env: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None
) -> AsyncIterator[ServerProcess]:
    """Start a server and its watcher. The caller stops the server; leaving the block dismisses the watcher.

    Raises:
        ConnectError: the command cannot be started (not found, not executable, no such directory).
    """
    process = await _start(command, env=env, cwd=cwd)
    server = ServerProcess(process, name=Path(command[0]).name)
    try:
        async with _watcher(server.pid):
            yield server
    finally:
        if server.returncode is None:
            await server.stop(quick=True)
        with trio.CancelScope(shield=True):
            for stream in (server.stdin, server.stdout, server.stderr):
                await trio.aclose_forcefully(stream)


async def _start(
    command: Sequence[str], *, env: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None
) -> trio.Process:
    if isinstance(command, str) or not command:
        raise ConnectError(
            f"expected the command as a list of strings, got {command!r}; split it with shlex.split"
        )
    environment = get_default_environment() | dict(env or {})
    try:
        process = await trio.lowlevel.open_process(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ConnectError(_cannot_start(command[0], error, cwd)) from error
    _widen(process)
    return process


def _cannot_start(program: str, error: OSError | ValueError, cwd: str | os.PathLike[str] | None) -> str:
    begin = f"cannot start the server {program!r}: "
    if isinstance(error, OSError) and cwd is not None and str(error.filename) == os.fspath(cwd):
        return begin + f"cannot enter its directory {os.fspath(cwd)!r} ({error.strerror}); correct `cwd`"
    match error:
        case FileNotFoundError():
            named = "" if os.sep in program else ", or pass the servers file that names it (--config)"
            return begin + f"no such command; install it, correct its name or give its full path{named}"
        case PermissionError():
            return (
                begin + "permission denied; make it executable (chmod +x), or name the program that runs it"
            )
        case OSError():
            return begin + f"{error.strerror}; check that it is a program for this machine"
        case _:
            return begin + f"{error}; correct the command or its environment"


def _widen(process: trio.Process) -> None:
    # One wake-up per megabyte instead of sixteen. Only Linux has it, and an unprivileged user may have used
    # up the allowance; the pipe then stays as it is.
    if hasattr(fcntl, "F_SETPIPE_SZ") and process.stdout is not None:
        with suppress(OSError):
            fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, MIB)  # type: ignore[attr-defined]


@asynccontextmanager
async def _watcher(group: int) -> AsyncIterator[None]:
    try:
        watcher = await trio.lowlevel.open_process(
            ["/bin/sh", "-c", _WATCHER, "playhead-watcher", str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        yield  # no /bin/sh: the server still sees the end of its stdin
        return
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            assert watcher.stdin is not None
            with suppress(trio.BrokenResourceError):
                await watcher.stdin.send_all(b"farewell\n")
            await watcher.stdin.aclose()
            with trio.move_on_after(_REAP_SECONDS):
                await watcher.wait()
            if watcher.returncode is None:  # stopped by a SIGSTOP: nothing may wait for it here
                watcher.kill()
                await watcher.wait()


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
    ) -> None:
        self._command = command
        self._env = env
        self._cwd = cwd
        self._limits = limits
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
        async with open_server(self._command, env=self._env, cwd=self._cwd) as server:
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
) -> StdioTransport:
    """Make a transport to an MCP server that runs as a child process.

    Args:
        command: program and arguments, passed to the system as they are, never through a shell.
        env: added to a minimal environment (HOME, LOGNAME, PATH, SHELL, TERM, USER). Values of eight
            characters or more are treated as secrets: blanked in anything quoted from the server.
        cwd: the server's working directory. Default: ours.
        limits: `message_bytes`, `json_depth`, `json_values` and `stderr_bytes` are used.

    Entering raises `ConnectError` if the command cannot be started. A request whose answer cannot be used
    ends at once with an `MCPError` that `codec.own_error` turns into ours (`ProtocolError`, `LimitError`,
    `ConnectionLostError`). Leaving ends the server and its children, gracefully or within 0.2 s of a
    cancellation.
    """
    return StdioTransport(command, env=env, cwd=cwd, limits=limits)
