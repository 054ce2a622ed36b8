"""The example audio server in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen


@contextmanager
def audio_server(*options: str) -> Iterator[tuple[str, int]]:
    """`playhead serve audio` over HTTP: its URL and its process id."""
    command = (sys.executable, "-m", "playhead", "serve", "audio", "--mixer", "memory", *options)
    with Popen([*command, "--transport", "http", "--port", "0"], stderr=PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().rpartition(" ")[2].strip(), process.pid
        finally:
            process.terminate()
