"""Runs one command under trio and turns how it ended into an exit code, without a traceback.

0 done · 1 the tool, stream or check failed · 2 usage · 3 could not connect · 130 interrupted (SIGTERM: 143).

The first Ctrl-C cancels: requests are cancelled on the wire, servers end, no partial file stays. A second
one leaves at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from playhead.cli.terminal import Terminal
from playhead.errors import ConnectError, PlayheadError, UsageError

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_CONNECTION: Final = 3

Report = dict[str, object]
Command = Callable[[Terminal, Report], Awaitable[int]]
"""Does the work and returns an exit code. It fills the report as it goes, so that a failure in the middle
still says how far it came; the runner adds `error` and prints it with `--json`."""


def run_command(command: Command, *, json_output: bool) -> int:
    """Run `command` to its end, to its failure, or to a signal; return the exit code."""
    terminal = Terminal(json_output=json_output)
    report: Report = {}
    code = trio.run(_supervise, command, terminal, report)
    if json_output:
        report.setdefault("error", None)
        terminal.print_json(report)
    return code


async def _supervise(command: Command, terminal: Terminal, report: Report) -> int:
    code = EXIT_DONE
    interrupted: signal.Signals | None = None

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
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
                except PlayheadError as error:
                    code = fail(error, terminal, report)
                except BaseExceptionGroup as group:
                    matched, rest = group.split(PlayheadError)
                    if matched is None or (rest is not None and not _only_cancelled(rest)):
                        raise
                    code = fail(first_leaf(matched), terminal, report)
            nursery.cancel_scope.cancel()

    if interrupted is not None:
        report["error"] = "interrupted"
        terminal.say("interrupted")
        return 128 + interrupted
    return code


def fail(error: PlayheadError, terminal: Terminal, report: Report) -> int:
    """Say what went wrong, and choose the exit code by whose fault it was."""
    message = str(error) or type(error).__name__
    report["error"] = {"type": type(error).__name__, "message": message} | _place(error)
    terminal.fail(message)
    match error:
        case UsageError():
            return EXIT_USAGE
        case ConnectError():
            return EXIT_NO_CONNECTION
        case _:
            return EXIT_FAILED


def first_leaf(group: BaseExceptionGroup[PlayheadError]) -> PlayheadError:
    """Return the first error of a (nested) group: one is said, the others are its consequences."""
    error = group.exceptions[0]
    return first_leaf(error) if isinstance(error, BaseExceptionGroup) else error


def _only_cancelled(group: BaseExceptionGroup[BaseException]) -> bool:
    return group.split(trio.Cancelled)[1] is None


def _place(error: PlayheadError) -> dict[str, object]:
    names = ("offset", "tries", "kind", "index", "code", "status", "limit", "allowed", "got")
    return {name: getattr(error, name) for name in names if hasattr(error, name)}
