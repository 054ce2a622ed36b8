"""A spool: it passes the bytes that a player reads to the disk, without making the player wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import trio

from playhead.config.outputs import Extent, OutputWriter, SavedOutput
from playhead.errors import PlayheadError
from playhead.limits import MIB

SPOOL_BYTES: Final = 4 * MIB
"""Limits the bytes that wait for the disk: 23 s of CD audio, or over four minutes of MP3 at 128 kbit/s."""

HOLD_BYTES_PER_SECOND: Final = 2 * MIB
"""While the spool is full, `put` makes its caller wait as long as its bytes take at this rate, and then drops
them. It is twelve times the rate of CD audio, so a player in real time does not run dry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The file is complete on the disk."""

    output: SavedOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSaved:
    """Nothing is on the disk. `reason` is for a person to read."""

    reason: str
    received_bytes: int
    size_bytes: int | None
    """The proved size, else the announced one."""
    error: Exception | None = None
    """A `SavingError` of the disk, or the exception of the configuration or the stream."""


SavingOutcome = Saved | NotSaved


class Spool:
    """Passes bytes from any one thread to a writer in its own thread. `start` it in trio, then `end` it.

    The thread ends by itself after `end` or a disk error. It is not a daemon: a program that exits meanwhile
    waits until a complete file is saved.
    """

    def __init__(self, writer_factory: Callable[[], OutputWriter], *, size_bytes: int | None) -> None:
        self._writer_factory = writer_factory
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._extent = Extent()
        self._changed = threading.Condition()
        self._ended = False
        self._end_bytes: int | None = None
        self._size_bytes = size_bytes
        self._failure: Exception | None = None
        self._sha256: str | None = None
        self._done = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self.outcome: SavingOutcome | None = None
        """The outcome of the saving; None until it is known."""

    def start(self) -> None:
        threading.Thread(target=self._run, name="playhead-saving").start()

    # --- the reading side ------------------------------------------------------------------------------

    def put(self, offset: int, data: bytes) -> None:
        """Queue bytes to be written at `offset`. If the disk is behind, wait for a time that
        `HOLD_BYTES_PER_SECOND` limits, and then drop them: see `missing`."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._over or self._waiting_bytes + len(data) <= SPOOL_BYTES,
                timeout=len(data) / HOLD_BYTES_PER_SECOND,
            )
            if self._over or self._waiting_bytes + len(data) > SPOOL_BYTES:
                return
            self._waiting.append((offset, data))
            self._waiting_bytes += len(data)
            self._extent.add(offset, offset + len(data))
            self._changed.notify_all()

    def drain(self) -> bool:
        """Block until half of the spool is free. Return False if no more bytes are accepted."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._waiting_bytes <= SPOOL_BYTES // 2)
            return not self._over

    def missing(self, end: int) -> tuple[tuple[int, int], ...]:
        """Return the parts of [0, `end`) that were never queued, or were dropped."""
        with self._changed:
            return self._extent.missing(end)

    def end(
        self, end_bytes: int | None, *, failure: Exception | None = None, sha256: str | None = None
    ) -> None:
        """Record that no more bytes follow. The file is saved if it is complete up to `end_bytes`, its proved
        end.

        Nothing is saved if the stream had an error (`failure`), or if the file does not have the announced
        digest `sha256`. Does not wait for the disk.
        """
        with self._changed:
            self._sha256 = sha256
            self._ended = True
            self._end_bytes = end_bytes
            self._failure = failure
            self._changed.notify_all()

    async def wait_outcome(self) -> SavingOutcome:
        await self._done.wait()
        assert self.outcome is not None
        return self.outcome

    # --- the writing thread ----------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return self._ended or self.outcome is not None

    def _run(self) -> None:
        outcome: SavingOutcome | None = None
        try:
            with self._writer_factory() as writer:
                self._write_all(writer)
                outcome = self._refusal() or Saved(
                    output=writer.commit(size_bytes=self._end_bytes, sha256=self._sha256)
                )
        except (PlayheadError, OSError) as error:
            outcome = self._not_saved(f"not saved: {error}", error)
        finally:
            if outcome is None:
                outcome = self._not_saved("not saved because of a bug; see the thread's traceback")
            self._conclude(outcome)

    def _write_all(self, writer: OutputWriter) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting or (self._ended and self._refusal() is not None):
                    return  # a file that will not be saved need not be written
                offset, data = self._waiting.popleft()
            writer.write_at(offset, data)
            with self._changed:
                self._waiting_bytes -= len(data)
                self._changed.notify_all()

    def _refusal(self) -> NotSaved | None:
        """Return the reason not to save the file, if any."""
        received, end = self._extent.total, self._end_bytes
        if self._failure is not None:
            return self._not_saved(f"not saved: {self._failure}", self._failure)
        if end is None:
            return self._not_saved(f"not saved: stopped at {received} of {self._of()} bytes")
        if self._extent.end > end:
            return self._not_saved(
                f"not saved: the stream ended at byte {end}, after bytes past that had arrived"
            )
        if self._extent.missing(end):
            return self._not_saved(f"not saved: only {received} of {end} bytes were read or written in time")
        return None

    def _of(self) -> str:
        return "an unknown number of" if self._size_bytes is None else str(self._size_bytes)

    def _not_saved(self, reason: str, error: Exception | None = None) -> NotSaved:
        size = self._size_bytes if self._end_bytes is None else self._end_bytes
        return NotSaved(reason=reason, received_bytes=self._extent.total, size_bytes=size, error=error)

    def _conclude(self, outcome: SavingOutcome) -> None:
        with self._changed:
            self.outcome = outcome
            self._waiting.clear()
            self._changed.notify_all()
        with suppress(trio.RunFinishedError):  # the program has left, and nobody waits
            self._token.run_sync_soon(self._done.set)
