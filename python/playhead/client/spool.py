"""Bytes on their way to the disk, in a thread of their own: whoever hands them over never waits for a disk.

The thread ends by itself once `end` was called or the disk failed. It is no daemon: a program that ends
meanwhile waits until what is whole is saved.
"""

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
"""Bytes that wait for the disk: 23 s of CD sound, over four minutes of MP3 at 128 kbit/s."""
HOLD_BYTES_PER_SECOND: Final = 2 * MIB
"""A full spool holds its source back to no less than this, ten times CD sound: a player that decodes as fast
as it can then waits for the disk, one that plays in real time never does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The whole is on the disk."""

    output: SavedOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSaved:
    """Nothing is on the disk. `reason` is a sentence for a person."""

    reason: str
    received_bytes: int
    size_bytes: int | None
    """The proved size, else the announced one."""
    error: Exception | None = None
    """What failed: a `SavingError` of the disk, or what the configuration or the stream raised."""


SavingOutcome = Saved | NotSaved


class Spool:
    """From any one thread to a writer in its own thread. `start` it in trio, then `end` it."""

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
        self._done = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self.outcome: SavingOutcome | None = None
        """None until it is known."""

    def start(self) -> None:
        threading.Thread(target=self._run, name="playhead-saving").start()

    # --- whoever reads ---------------------------------------------------------------------------------

    def put(self, offset: int, data: bytes) -> None:
        """Bytes to be written at `offset`. Where the disk is behind, they may be let go: see `missing`.

        Blocks for no longer than `HOLD_BYTES_PER_SECOND` allows for them.
        """
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
        """Block until the disk is no longer behind. False where nothing is taken any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._waiting_bytes <= SPOOL_BYTES // 2)
            return not self._over

    def missing(self, end: int) -> tuple[tuple[int, int], ...]:
        """What of [0, `end`) was not handed over, or was let go."""
        with self._changed:
            return self._extent.missing(end)

    def end(self, end_bytes: int | None, *, failure: Exception | None = None) -> None:
        """No more comes. The file is kept where it is whole up to `end_bytes`, its proved end.

        `failure` is what broke the stream: nothing is kept then. Does not wait for the disk.
        """
        with self._changed:
            self._ended = True
            self._end_bytes = end_bytes
            self._failure = failure
            self._changed.notify_all()

    async def wait_outcome(self) -> SavingOutcome:
        await self._done.wait()
        assert self.outcome is not None
        return self.outcome

    # --- its thread ------------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return self._ended or self.outcome is not None

    def _run(self) -> None:
        outcome: SavingOutcome | None = None
        try:
            with self._writer_factory() as writer:
                self._write_all(writer)
                outcome = self._judge() or Saved(output=writer.commit(size_bytes=self._end_bytes))
        except (PlayheadError, OSError) as error:
            outcome = self._not_saved(f"not saved: {error}", error)
        finally:
            if outcome is None:
                outcome = self._not_saved("not saved: a bug, see the thread's traceback")
            self._conclude(outcome)

    def _write_all(self, writer: OutputWriter) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting or (self._ended and self._judge() is not None):
                    return  # what is not kept needs no writing
                offset, data = self._waiting.popleft()
            writer.write_at(offset, data)
            with self._changed:
                self._waiting_bytes -= len(data)
                self._changed.notify_all()

    def _judge(self) -> NotSaved | None:
        """Why it is not to be kept, if so."""
        received, end = self._extent.total, self._end_bytes
        if self._failure is not None:
            return self._not_saved(f"not saved: {self._failure}", self._failure)
        if end is None:
            return self._not_saved(f"not saved: stopped at {received} of {self._of()} bytes")
        if self._extent.end > end:
            return self._not_saved(
                f"not saved: the stream ended at byte {end}, after bytes behind that had come"
            )
        if self._extent.missing(end):
            return self._not_saved(f"not saved: only {received} of {end} bytes were read, or written in time")
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
        with suppress(trio.RunFinishedError):  # the program left, and nobody waits any more
            self._token.run_sync_soon(self._done.set)
