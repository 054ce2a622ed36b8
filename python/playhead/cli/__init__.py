"""The command line. `main` imports the rest itself, so that Ctrl-C during start-up prints no traceback."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from playhead.errors import UsageError
from playhead.extras import require_extra

EXIT_USAGE = 2
EXIT_BY_SIGNAL = 128
EXIT_INTERRUPTED = EXIT_BY_SIGNAL + signal.SIGINT

_SET_CHILD_SUBREAPER = 36
_SECONDS_TO_END = {signal.SIGTERM: 0.2, signal.SIGKILL: 2.0}


def main() -> None:
    """Run the `playhead` command and exit with its code."""
    # Outside a running command there is nothing to clean up, and a traceback helps no one.
    signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    make_streams_usable()
    try:
        require_extra("cli", "the commands of playhead")
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(EXIT_USAGE)
    with quick_imports():
        from playhead.cli.app import run

    adopt_strays()
    code = run(sys.argv[1:])
    end_strays()
    if code >= EXIT_BY_SIGNAL:
        # Everything is closed: tearing down the interpreter would double the time that the user waits.
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def adopt_strays() -> None:
    """Become the parent of descendants that lose theirs, so that `end_strays` finds them. Linux only.

    Only the command may do this, because its process is its own; the library ends just the process groups of
    its servers.
    """
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_strays() -> None:
    """End the processes that stdio servers left behind outside of their process groups. Call it last.

    After a login it ends nothing, because the user's browser may be a child of this process.
    """
    if "webbrowser" not in sys.modules and _children():
        import trio

        trio.run(_end_children)


async def _end_children() -> None:
    import trio

    for number, seconds in _SECONDS_TO_END.items():
        with trio.move_on_after(seconds), suppress(ChildProcessError):
            while children := _children():
                for child in children:
                    with suppress(OSError):
                        os.kill(child, number)
                await trio.to_thread.run_sync(os.waitpid, -1, 0, abandon_on_cancel=True)


def _children() -> list[int]:
    tasks = Path("/proc/self/task").glob("*/children")
    with suppress(OSError):  # a thread that has just ended
        return [int(child) for task in tasks for child in task.read_text().split()]
    return []


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import without garbage collection, which would visit every new module, class and schema many times.

    Later collections skip the imported objects too, because they are never freed. Only the command may do
    this; an application that imports playhead decides for itself.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.enable()


def make_streams_usable() -> None:
    """Reopen closed standard streams (`playhead ... >&-`), and escape characters that can't be encoded.

    If stdout were closed, the next file or socket would get its number, and would receive the output. So
    /dev/null takes the place of a closed stream. In an ASCII locale, `\u2026` is printed as `\\u2026`.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115 - for good
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
