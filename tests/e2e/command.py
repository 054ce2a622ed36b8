"""The `playhead` command, in this process or as one of its own.

A new process spends a second on imports and the same command in this one a few milliseconds, so each command
is run as a process once or twice and otherwise by `playhead`. What needs a terminal or a signal is forked.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pty
import select
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trio

from playhead.cli.app import run
from tests.e2e.forked import Forked

REPOSITORY = Path(__file__).parents[2]
PLAYHEAD = (sys.executable, "-m", "playhead")
AUDIO_SERVER = shlex.join([*PLAYHEAD, "serve", "audio", "--mixer", "memory"])
_HOME = tempfile.TemporaryDirectory(prefix="playhead-home-")
atexit.register(_HOME.cleanup)
HANG_SECONDS = 60
"""No command here takes long; one that does hangs, and the test says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    code: int
    stdout: bytes
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        value = json.loads(self.stdout)
        assert isinstance(value, dict)
        return value


def environment() -> dict[str, str]:
    """A plain terminal of 80 columns, and an empty home in place of that of whoever runs the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    plain = {"COLUMNS": "80", "TERM": "dumb", "HOME": _HOME.name}
    return kept | plain | {"PYTHONPATH": str(REPOSITORY)}


def playhead(
    *arguments: str | Path, cwd: Path | None = None, stdin: bytes = b"", **variables: str
) -> Outcome:
    """Run one command to its end in this process, in an environment and with streams of its own.

    In a thread other than the main one it hears no signals, as trio can't.
    """
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, environment() | variables, clear=True))
        if cwd is not None:
            stack.enter_context(contextlib.chdir(cwd))
        if threading.current_thread() is not threading.main_thread():
            stack.enter_context(patch.object(trio, "open_signal_receiver", _no_signals))
        stack.enter_context(_piped(stdin))
        stdout = stack.enter_context(_captured(1, "stdout"))
        stderr = stack.enter_context(_captured(2, "stderr"))
        code = run([str(argument) for argument in arguments])
        return _outcome(code, stdout(), stderr())


@contextmanager
def _no_signals(*_numbers: int) -> Iterator[AsyncIterator[int]]:
    _, none = trio.open_memory_channel[int](0)
    with none:
        yield none


@contextmanager
def _piped(data: bytes) -> Iterator[None]:
    """Have `data` come from a pipe that is the standard input."""
    source, sink = os.pipe()
    with open(source) as stream, patch.object(sys, "stdin", stream):  # noqa: PTH123 (a descriptor)
        with open(sink, "wb") as file:  # noqa: PTH123 (a descriptor)
            assert len(data) <= select.PIPE_BUF, "nobody reads it yet: what does not fit would block"
            file.write(data)
        yield


@contextmanager
def _captured(number: int, name: str) -> Iterator[Callable[[], bytes]]:
    """Collect what is written to a stream of this process and, as its descriptor, of those it starts."""
    with tempfile.TemporaryFile() as file, ExitStack() as stack:
        saved = os.dup(number)
        stack.callback(os.close, saved)
        os.dup2(file.fileno(), number)
        stack.callback(os.dup2, saved, number)
        stream = open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        stack.enter_context(stream)
        stack.enter_context(patch.object(sys, name, stream))

        def written() -> bytes:
            stream.flush()
            file.seek(0)
            return file.read()

        yield written


def _outcome(code: int, stdout: bytes, stderr: bytes) -> Outcome:
    """Whatever a command says, it never shows a traceback."""
    said = stderr.decode("utf-8")
    assert "Traceback" not in said, said
    assert "internal error" not in said, said
    return Outcome(code=code, stdout=stdout, stderr=said)


def playhead_process(*arguments: str | Path, cwd: Path | None = None, **variables: str) -> Outcome:
    """Run one command to its end as a process, the way a person does."""
    return _finished([*PLAYHEAD, *map(str, arguments)], cwd, variables)


def _finished(command: Sequence[str], cwd: Path | None, variables: dict[str, str]) -> Outcome:
    done = subprocess.run(
        command,
        capture_output=True,
        cwd=cwd,
        env=environment() | variables,
        timeout=HANG_SECONDS,
        check=False,
    )
    return _outcome(done.returncode, done.stdout, done.stderr)


def program(code: str, cwd: Path) -> str:
    """Run a program of a page, for which a warning is an error, and return what it prints."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    variables = {"PATH": path, "PYTHONIOENCODING": "utf-8"}
    done = _finished([sys.executable, "-W", "error", "-c", code], cwd, variables)
    assert done.code == 0, done.stderr
    return done.stdout.decode("utf-8")


def start(arguments: Sequence[str | Path], *, cwd: Path | None = None, **variables: str) -> Forked:
    """Start one command, to be interrupted."""
    return Forked([*map(str, arguments)], environment=environment() | variables, cwd=cwd)


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, Forked]]:
    """The address of `playhead serve` on a free port, and its process."""
    with start(["serve", *arguments, "--port", "0"]) as process:
        try:
            yield process.stderr.readline().decode().split()[-1], process
        finally:
            process.kill()


def at_terminal(
    *arguments: str | Path, cwd: Path | None = None, answers: str = "", **variables: str
) -> tuple[str, int]:
    """Run one command for a person who types `answers`; what the terminal showed, and the exit code."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "r+b", buffering=0) as screen:
        plain = environment() | {"TERM": "xterm-256color"} | variables
        process = Forked([*map(str, arguments)], environment=plain, cwd=cwd, terminal=theirs)
        os.close(theirs)
        screen.write(answers.encode())
        seen = bytearray()
        with contextlib.suppress(OSError):  # Linux says so when the last process closes the other end
            while piece := screen.read(65_536):
                seen += piece
        code = process.wait(HANG_SECONDS)
    assert b"Traceback" not in seen
    return seen.decode("utf-8", "replace"), code


def shell(line: str, cwd: Path | None = None) -> Outcome:
    """Run a line of shell in which `playhead` is the command, for what only a shell can do to it."""
    line = f'playhead() {{ {shlex.join(PLAYHEAD)} "$@"; }}; {line}'
    return _finished(["bash", "-c", line], cwd, {})
