"""Standard error that is discarded while a sound library writes to it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

_STDERR = 2

_STDERR_LOCK = threading.Lock()
"""Held while file descriptor 2, which belongs to the process, is redirected. Without it, one `SilentStderr`
would restore the redirection of another."""


class SilentStderr:
    """Discards standard error from entering it until `end`. Any thread may call `end`, because the one that
    entered may hang."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._saved_stderr: int | None = None
        self._is_over = False

    def __enter__(self) -> None:
        _STDERR_LOCK.acquire()
        with self._lock:
            if not self._is_over:
                with suppress(OSError):  # some services run with standard error closed
                    self._saved_stderr = os.dup(_STDERR)
                    nowhere = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(nowhere, _STDERR)
                    os.close(nowhere)
            if self._saved_stderr is None:
                _STDERR_LOCK.release()

    def end(self) -> None:
        """Restore standard error. Idempotent."""
        with self._lock:
            self._is_over = True
            saved_stderr, self._saved_stderr = self._saved_stderr, None
        if saved_stderr is not None:
            os.dup2(saved_stderr, _STDERR)
            os.close(saved_stderr)
            _STDERR_LOCK.release()

    def __exit__(self, *error: object) -> None:
        self.end()
