"""The process of a stdio server, with its whole process tree.

Nothing here imports the SDK: the command line starts a server with this module, and imports the SDK while the
server imports its own.

The server leads a session and process group of its own. Ctrl-C in a terminal therefore reaches playhead and
not the server behind its back, and one signal to the group reaches the server's children too. (A grandchild
that starts a session of its own has left the group: the `playhead` command ends it, in cli/__init__.py.)

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
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from playhead.errors import NO_DESCRIPTOR, ConnectError, is_descriptor_limit
from playhead.limits import MIB

if TYPE_CHECKING:
    from playhead.config.servers import ServerConfig

INHERITED_VARIABLES: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""The environment that every server gets, as the SDK's stdio client defines it; `env` adds to it."""

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
        assert isinstance(process.stdin, trio.lowlevel.FdStream)
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._claimed = False
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

    def claim(self) -> bool:
        """Return True once: a process serves one transport."""
        claimed, self._claimed = self._claimed, True
        return not claimed

    async def wait(self) -> int:
        """Wait for the server itself (not its children) to exit. Cancelling this leaves it running."""
        return await self._process.wait()

    def describe_exit(self) -> str:
        """Return a verb phrase for messages, such as `ended with exit status 1`."""
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
        `quick` starts with SIGTERM and waits `QUICK_GRACE_SECONDS`; so do children that outlive the server. A
        cancellation makes the rest quick; the group is gone when this returns or raises `Cancelled`.
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
            with trio.move_on_after(QUICK_GRACE_SECONDS):
                await self.wait()
                # Only the leader can be awaited: children that are left have the whole grace.
                if self._signal(0):
                    await trio.sleep_forever()
            self._signal(signal.SIGKILL)
        with trio.move_on_after(_REAP_SECONDS):
            await self.wait()

    def _signal(self, number: int) -> bool:
        """Signal the whole group (0 only looks for it); False if it is empty."""
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


@dataclass(frozen=True, slots=True)
class StartedServer:
    """A server whose process runs before there is a session: a target of `connect`."""

    config: ServerConfig
    process: ServerProcess


@asynccontextmanager
async def started_early(config: ServerConfig) -> AsyncIterator[StartedServer | ServerConfig]:
    """Start the server of `config` if it is a command, and end it with the block.

    For imports and other work while it starts. A server that cannot be started, or is not a process, stays a
    `ServerConfig`: connecting to it raises the error in its usual form.
    """
    async with AsyncExitStack() as stack:
        target: StartedServer | ServerConfig = config
        if config.command is not None:
            with suppress(ConnectError):
                process = await stack.enter_async_context(
                    open_server(config.command, env=config.env, cwd=config.cwd)
                )
                target = StartedServer(config, process)
        yield target


async def _start(
    command: Sequence[str], *, env: Mapping[str, str] | None, cwd: str | os.PathLike[str] | None
) -> trio.Process:
    if isinstance(command, str) or not command:
        raise ConnectError(
            f"expected the command as a list of strings, got {command!r}; split it with shlex.split"
        )
    inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    # A shell function in a variable is code (CVE-2014-6271).
    environment = {name: value for name, value in inherited.items() if not value.startswith("()")}
    try:
        process = await trio.lowlevel.open_process(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment | dict(env or {}),
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
        case PermissionError() if Path(program).is_dir():
            return begin + "expected a program, got a directory; name a program in it"
        case PermissionError():
            return (
                begin + "permission denied; make it executable (chmod +x), or name the program that runs it"
            )
        case OSError() if is_descriptor_limit(error):
            return begin + NO_DESCRIPTOR
        case OSError():
            return begin + f"{error.strerror}; check that it is a program for this machine"
        case _:
            return begin + f"{error}; correct the command or its environment"


def _widen(process: trio.Process) -> None:
    # A wider pipe needs one wake-up per megabyte instead of sixteen. Only Linux has this call. It fails if an
    # unprivileged user has used up the allowance; the pipe then stays as it is.
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
            if watcher.returncode is None:  # a SIGSTOP has stopped it; do not wait for its end
                watcher.kill()
                await watcher.wait()
