"""Run one command under trio and turn its outcome into an exit code, without a traceback.

0 done · 1 the tool, stream or check failed · 2 usage · 3 could not connect · 130 interrupted (SIGTERM: 143,
closed terminal: 129).

The first Ctrl-C cancels the command, which then cancels its requests at the servers, stops the servers, and
leaves no partial file. The second one exits immediately. `--deadline` cancels in the same way.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar

import trio
import typer

from playhead.cli.terminal import Terminal, give_up, mode_restorer
from playhead.errors import (
    BlockedAddressError,
    ConnectError,
    DeadlineError,
    LimitError,
    NoDeviceError,
    PlayheadError,
    StreamBrokenError,
    TransportError,
    UsageError,
)

_PAGE_LIMITS = frozenset({"message_bytes", "block_bytes"})
_STREAM_LIMITS = frozenset({"stream_bytes", "max_bytes"})


def message_of(error: Exception, *, options: Collection[str] | None = None) -> str:
    """Return the message of `error`, and advice if one of `options` helps.

    `options` are by default those of this command. The library's own advice (`PlayheadError.advice`) does not
    appear, because it names settings of the Python API instead of options.
    """
    options = INVOKED.get().options if options is None else options
    message = error.message if isinstance(error, PlayheadError) else str(error)
    message = message or type(error).__name__
    return next((f"{message}; {advice}" for option, advice in _advice(error) if option in options), message)


def _advice(error: Exception) -> Iterator[tuple[str, str]]:
    """Yield each option that may help against `error`, with the advice about it."""
    match error:
        case StreamBrokenError():
            yield "--patience", "--patience SECONDS waits longer"
        case DeadlineError():
            yield "--timeout", "--timeout SECONDS allows a longer silence"
        case TransportError(__cause__=DeadlineError()):
            yield "--timeout", "--timeout SECONDS allows more time"
        case LimitError(limit=limit) if limit in _STREAM_LIMITS:
            yield "--max-bytes", "--max-bytes SIZE allows a longer stream"
        case LimitError(limit=limit) if limit in _PAGE_LIMITS:
            yield "--page-size", "--page-size SIZE asks for smaller pages"
        case NoDeviceError():
            yield "--sink", "--sink null or --sink wave:FILE needs no audio device"
        case BlockedAddressError(permission=("allow_origins", origin)):
            yield "--allow-origin", f"--allow-origin {origin} allows it"
        case BlockedAddressError(permission=("allow_paths", directory)):
            yield "--allow-path", f"--allow-path {directory} allows it"


EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_CONNECTION: Final = 3

_DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""The errors of a disk that is full or failing. Any other OS error is a usage error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The command line as typed."""

    name: str = "playhead"
    options: frozenset[str] = frozenset()
    """The options of the command, such as `--json`."""


INVOKED: Final[ContextVar[Invocation]] = ContextVar("playhead_invocation", default=Invocation())  # noqa: B039 - frozen

Report = dict[str, object]
Command = Callable[[Terminal, Report], Awaitable[int]]
"""A command does its work and returns an exit code. It fills the report as it goes, so that the report of a
failed command shows how far it got. The runner adds `error`, and prints the report with `--json`."""


def run_command(command: Command, *, json_output: bool, deadline: float | None = None) -> NoReturn:
    """Run `command` until it returns, fails, or a signal arrives; raise `typer.Exit` with the exit code.

    `deadline` limits the whole command, in seconds from now.
    """
    terminal = Terminal(json_output=json_output)
    report: Report = {}
    code = trio.run(_supervise, command, terminal, report, math.inf if deadline is None else deadline)
    if json_output:
        report.setdefault("error", None)
        terminal.print_json(report)
    raise typer.Exit(code)


async def _supervise(command: Command, terminal: Terminal, report: Report, seconds: float) -> int:
    code = EXIT_DONE
    interrupted: signal.Signals | None = None
    failure: PlayheadError | OSError | None = None

    restore = mode_restorer(0)
    with trio.open_signal_receiver(*_ending_signals()) as signals:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal interrupted
                async for number in signals:
                    if interrupted is not None:
                        terminal.erase()
                        restore()
                        os._exit(128 + number)
                    interrupted = signal.Signals(number)
                    scope.cancel()

            nursery.start_soon(watch)
            nursery.start_soon(terminal.draw)
            with trio.move_on_after(seconds) as scope:
                try:
                    code = await command(terminal, report)
                except* BrokenPipeError:
                    code = give_up_stdout()
                except* (PlayheadError, OSError) as group:
                    failure = first_leaf(group)
            nursery.cancel_scope.cancel()

    if interrupted is not None:
        report["error"] = "interrupted"
        terminal.say("interrupted")
        return 128 + interrupted
    if scope.cancelled_caught:  # any `failure` is a consequence of the cancellation
        late = DeadlineError(
            f"expected `{INVOKED.get().name}` to finish within {seconds:g} s (--deadline); stopped it; allow"
            " more time if it needs it"
        )
        return fail(late, terminal, report, options=())
    if failure is None:
        return code
    return fail(failure, terminal, report)


def _ending_signals() -> list[signal.Signals]:
    ending = [signal.SIGINT, signal.SIGTERM]
    # SIGHUP: the terminal was closed. `nohup` makes programs ignore it.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        ending.append(signal.SIGHUP)
    return ending


def give_up_stdout() -> int:
    """Give up stdout, because its reader is gone (`... | head`) or its disk is full. Return the exit code."""
    give_up(sys.stdout)
    return EXIT_FAILED


def fail(
    error: PlayheadError | OSError,
    terminal: Terminal,
    report: Report,
    *,
    options: Collection[str] | None = None,
) -> int:
    """Print the error and its remedy, and return the exit code. `options` are passed to `message_of`."""
    if isinstance(error, PlayheadError):
        message = message_of(error, options=options)
    else:
        # An OS error is about one of the user's files, because a failure of a peer is a PlayheadError.
        nameless = "the current directory" if isinstance(error, FileNotFoundError) else "a file"
        message = f"{error.filename or nameless}: {error.strerror or error}"
        if error.errno == errno.ENOSPC:
            message += "; free some space, or write elsewhere"
        if error.filename == "stdout":
            give_up_stdout()
    report["error"] = {"type": type(error).__name__, "message": message} | _error_fields(error)
    terminal.fail(message)
    match error:
        case OSError() if error.errno not in _DISK_ERRORS:
            return EXIT_USAGE
        case UsageError():
            return EXIT_USAGE
        case ConnectError():
            return EXIT_NO_CONNECTION
        case _:
            return EXIT_FAILED


Ours = TypeVar("Ours", bound=Exception)


def first_leaf(group: BaseExceptionGroup[Ours]) -> Ours:
    """Return the first error of a group, nested or not. The others are usually its consequences."""
    error = group.exceptions[0]
    return first_leaf(error) if isinstance(error, BaseExceptionGroup) else error


def _error_fields(error: PlayheadError | OSError) -> dict[str, object]:
    names = ("offset", "tries", "kind", "index", "code", "status", "limit", "allowed", "got")
    return {name: getattr(error, name) for name in names if hasattr(error, name)}
