"""The command line. `main` imports the rest inside itself, so that Ctrl-C during start-up is quiet too."""

from __future__ import annotations

import sys

EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the `playhead` command and exit with its code."""
    try:
        from playhead.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.exit(code)
