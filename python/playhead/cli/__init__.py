"""The command line. `main` imports the rest inside itself, so that Ctrl-C during start-up is quiet too."""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import suppress

EXIT_BY_SIGNAL = 128
EXIT_INTERRUPTED = EXIT_BY_SIGNAL + signal.SIGINT


def main() -> None:
    """Run the `playhead` command and exit with its code."""
    # Outside of a running command there is nothing to clean up, and a traceback helps nobody.
    signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    make_streams_usable()
    from playhead.cli.app import run

    code = run(sys.argv[1:])
    if code >= EXIT_BY_SIGNAL:
        # A person waits, and all is closed: taking the modules apart would be half of the wait.
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def make_streams_usable() -> None:
    """Open what was closed (`playhead ... >&-`), and let no character be one that cannot be written.

    A closed stdin, stdout or stderr leaves its number to the next file or socket opened, which would then get
    what is printed; /dev/null takes its place. In an ASCII locale `\u2026` is shown as `\\u2026`.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115 - for good
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
