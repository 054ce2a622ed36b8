"""Runs one command under trio and turns how it ended into an exit code, without a traceback.

0 done · 1 the tool, stream or check failed · 2 usage · 3 could not connect · 130 interrupted (SIGTERM: 143,
a closed terminal: 129).

The first Ctrl-C cancels: requests are cancelled on the wire, servers end, no partial file stays. A second
one leaves at once.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn, TypeVar

import trio
import typer

from playhead.cli.terminal import Terminal, give_up
from playhead.errors import ConnectError, PlayheadError, UsageError

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_CONNECTION: Final = 3

_NO_FAULT_OF_THE_NAME: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""The file that was named is right, and could not be written or read to its end."""

Report = dict[str, object]
Command = Callable[[Terminal, Report], Awaitable[int]]
"""Does the work and returns an exit code. It fills the report as it goes, so that a failure in the middle
still says how far it came; the runner adds `error` and prints it with `--json`."""


def run_command(command: Command, *, json_output: bool) -> NoReturn:
    """Run `command` to its end, to its failure, or to a signal; raise `typer.Exit` with the exit code."""
    terminal = Terminal(json_output=json_output)
    report: Report = {}
    code = trio.run(_supervise, command, terminal, report)
    if json_output:
        report.setdefault("error", None)
        terminal.print_json(report)
    raise typer.Exit(code)


async def _supervise(command: Command, terminal: Terminal, report: Report) -> int:
    code = EXIT_DONE
    interrupted: signal.Signals | None = None

    with trio.open_signal_receiver(*_ending_signals()) as signals:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal interrupted
                async for number in signals:
                    if interrupted is not None:
                        os._exit(128 + number)
                    interrupted = signal.Signals(number)
                    scope.cancel()

            nursery.start_soon(watch)
            with trio.CancelScope() as scope:
                try:
                    code = await command(terminal, report)
                except* BrokenPipeError:
                    code = stdout_left()
                except* (PlayheadError, OSError) as group:
                    code = fail(first_leaf(group), terminal, report)
            nursery.cancel_scope.cancel()

    if interrupted is not None:
        report["error"] = "interrupted"
        terminal.say("interrupted")
        return 128 + interrupted
    return code


def _ending_signals() -> list[signal.Signals]:
    ending = [signal.SIGINT, signal.SIGTERM]
    # A terminal that closes; not where `nohup` has said that this shall not matter.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        ending.append(signal.SIGHUP)
    return ending


def stdout_left() -> int:
    """Nothing more can be said to stdout: its reader is gone (`... | head`), or its disk is full."""
    give_up(sys.stdout)
    return EXIT_FAILED


def fail(error: PlayheadError | OSError, terminal: Terminal, report: Report) -> int:
    """Say what went wrong, and choose the exit code by whose fault it was."""
    message = str(error) or type(error).__name__
    if isinstance(error, OSError):
        # What is left of these is about the files that were named: everything a peer does is a PlayheadError.
        message = f"{error.filename or 'a file'}: {error.strerror or error}"
        if error.errno == errno.ENOSPC:
            message += "; make room, or write elsewhere"
        if error.filename == "stdout":
            stdout_left()
    report["error"] = {"type": type(error).__name__, "message": message} | _place(error)
    terminal.fail(message)
    match error:
        case OSError() if error.errno not in _NO_FAULT_OF_THE_NAME:
            return EXIT_USAGE
        case UsageError():
            return EXIT_USAGE
        case ConnectError():
            return EXIT_NO_CONNECTION
        case _:
            return EXIT_FAILED


Ours = TypeVar("Ours", bound=Exception)


def first_leaf(group: BaseExceptionGroup[Ours]) -> Ours:
    """Return the first error of a (nested) group: one is said, the others are its consequences."""
    error = group.exceptions[0]
    return first_leaf(error) if isinstance(error, BaseExceptionGroup) else error


def _place(error: PlayheadError | OSError) -> dict[str, object]:
    names = ("offset", "tries", "kind", "index", "code", "status", "limit", "allowed", "got")
    return {name: getattr(error, name) for name in names if hasattr(error, name)}
