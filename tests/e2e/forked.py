"""The `playhead` command as a process that is forked from one that has imported it.

A new interpreter spends a second or two on imports. In all else (its terminal, signals, standard streams,
environment and exit code) a fork is a process like any other. Each worker of a run has one process to fork,
which ends with it.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Self

REPOSITORY = Path(__file__).parents[2]
IMPORTED = (
    "playhead.cli.app",
    "playhead.agent.commands.chat",
    "playhead.check.commands.check",
    "playhead.cli.tools",
    "playhead.client",
    "playhead.client.hub",
    "playhead.playback",
    "playhead.agent",
    "playhead.check",
    "playhead.agent.models.openai_chat",
    "playhead.servers.audio.audio_server",
    "playhead.servers.template.serve",
)
"""The modules that the commands import when they run."""
MESSAGE_BYTES = 1 << 16


class Forked:
    """One command; the part of `subprocess.Popen` that the tests need.

    With `terminal` its three streams are that descriptor, and it leads a session with it. Otherwise
    `stdout` and `stderr` are pipes.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path | None = None,
        terminal: int | None = None,
    ) -> None:
        self.returncode: int | None = None
        self._status, status = socket.socketpair()
        theirs = [status.fileno()]
        if terminal is None:
            (out, out_end), (err, err_end) = os.pipe(), os.pipe()
            self.stdout, self.stderr = os.fdopen(out, "rb"), os.fdopen(err, "rb")
            stdin = os.open(os.devnull, os.O_RDONLY)
            theirs += [stdin, out_end, err_end]
        else:
            theirs += [terminal] * 3
        request = [list(arguments), str(cwd or Path.cwd()), dict(environment), terminal is not None]
        socket.send_fds(_parent()[0], [json.dumps(request).encode()], theirs)
        status.close()
        for each in theirs[1:] if terminal is None else ():
            os.close(each)
        self.pid = int(self._status.recv(16))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.stderr.close()
        self.wait()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code, negative for a signal. Raises `TimeoutError`."""
        if self.returncode is None:
            self._status.settimeout(timeout)
            self.returncode = int(self._status.recv(16))
            self._status.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Return what it wrote to its pipes, which is little, and wait for its end."""
        with self.stdout, self.stderr:
            if not select.select([self._status], [], [], timeout)[0]:
                raise TimeoutError
            said = self.stdout.read(), self.stderr.read()
            self.wait()
            return said


@cache
def _parent() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the process to fork; it ends when this process closes its end of the socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.forked", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            cwd=REPOSITORY,
            start_new_session=True,
        )
    atexit.register(process.wait)
    atexit.register(ours.close)  # first: the handlers run in reversed order
    return ours, process


def main() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the attendants
    control = socket.socket(fileno=int(sys.argv[1]))
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 4)
        if not request:
            return
        if os.fork() == 0:
            control.close()
            _attend(request, descriptors)
        for each in descriptors:
            os.close(each)


def _attend(request: bytes, descriptors: list[int]) -> None:
    """Fork the command, report its process id and, at its end, its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status, *streams = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _run(streams, *json.loads(request))
    for each in streams:
        os.close(each)
    os.write(status, b"%16d" % pid)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(status, b"%16d" % code)
    os._exit(0)


def _run(
    streams: list[int], arguments: list[str], cwd: str, environment: dict[str, str], at_terminal: bool
) -> None:
    os.setsid()
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    if at_terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["playhead", *arguments]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as the interpreter does
    sys.stdout = open(1, "w", buffering=1 if at_terminal else -1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    code = 1
    try:
        importlib.import_module("playhead.cli").main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
