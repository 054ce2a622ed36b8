"""Save a media item while it plays: the bytes that the player reads are copied to the disk, without waiting.

    inner reader ──▶ TeeReader (the decoder's thread) ──▶ the decoder
                        └── a copy, at its offset ──▶ Spool (≤ 4 MiB) ──▶ its own thread ──▶ OutputWriter

* Playback does not wait for the disk. Decoded audio lasts 0.35 s, less than the pauses of a slow card, so
  another thread writes. Its queue is bounded; when it falls behind, bytes are dropped and read again after
  the end. A full disk ends the saving, not the playback.
* Only a complete file is saved. A decoder skips cover pictures and stops before trailing tags: after playback
  the tee reads the rest, if that is little (`REST_BYTES`) or the end is known, for at most `REST_SECONDS`.
* If playback is stopped in the middle, nothing is saved: the tool did not return half a piece.
  `TeeMedia.outcome` says how much was received. If it is stopped after the last byte arrived, the file is
  saved.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from playhead.config.outputs import Extent, OutputWriter, SavedOutput
from playhead.errors import ClosedError, PlayheadError
from playhead.limits import KIB, MIB
from playhead.stream.options import StreamEvent, StreamOptions, StreamStatistics
from playhead.stream.source import Demand, Playable, PlayableWrapper, Reader

if TYPE_CHECKING:
    from typing_extensions import Buffer


SPOOL_BYTES: Final = 4 * MIB
"""Bytes queued for the disk: 23 s of CD audio, over four minutes of MP3 at 128 kbit/s."""
HOLD_BYTES_PER_SECOND: Final = 2 * MIB
"""A full spool slows its source down to this rate, ten times CD audio: a player that decodes as fast as it
can then waits for the disk, one that plays in real time never does."""


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
        """None until it is known."""

    def start(self) -> None:
        threading.Thread(target=self._run, name="playhead-saving").start()

    # --- the reading side ------------------------------------------------------------------------------

    def put(self, offset: int, data: bytes) -> None:
        """Queue bytes to be written at `offset`. If the disk is behind, they may be dropped: see `missing`.

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
        """Block until the disk has caught up. False if no more bytes are accepted."""
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
        """Finish. The file is saved if it is complete up to `end_bytes`, its proved end.

        With `failure`, the error of the stream, nothing is saved, nor if the file's digest is not the
        announced `sha256`. Does not wait for the disk.
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


REST_BYTES: Final = MIB
"""Limit for reading on after playback if the end is unknown: tags with a picture, not an album."""
REST_SECONDS: Final = 10.0
"""Time limit for that, since the next item waits for it. Usually it takes one round trip at most."""
_PIECE_BYTES: Final = 256 * KIB


class TeeReader(Reader):
    """A `Reader` that copies its bytes into a spool."""

    def __init__(self, inner: Reader, spool: Spool) -> None:
        self._inner = inner
        self._spool = spool
        self.position = 0
        """Offset of the next byte."""
        self.end_bytes: int | None = None
        """The lowest offset at which the end was read; the true end if all bytes before it arrived."""
        self.failure: Exception | None = None
        """The exception of the inner reader."""

    @property
    def seekable(self) -> bool:
        return self._inner.seekable

    @property
    def is_queue(self) -> bool:
        return self._inner.is_queue

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        """Do as the inner reader; copying adds no noticeable wait for the disk (see `Spool.put`)."""
        try:
            count = self._inner.readinto(buffer, timeout)
        except (TimeoutError, ClosedError):
            raise  # the caller may try again, or has stopped; neither is a fault of the stream
        except (PlayheadError, OSError) as error:
            self.failure = error
            raise
        view = memoryview(buffer).cast("B")
        if count:
            self._spool.put(self.position, bytes(view[:count]))
            self.position += count
        elif view:
            self.end_bytes = self.position if self.end_bytes is None else min(self.end_bytes, self.position)
        return count

    @property
    def buffered_bytes(self) -> int:
        return self._inner.buffered_bytes

    @property
    def buffered_range(self) -> tuple[int, int]:
        return self._inner.buffered_range

    @property
    def size_bytes(self) -> int | None:
        return self._inner.size_bytes

    def can_seek(self, offset: int) -> bool:
        return self._inner.can_seek(offset)

    def interrupt(self) -> None:
        self._inner.interrupt()

    def seek_from_thread(self, offset: int) -> None:
        """Continue at `offset`; skipped bytes are read after playback."""
        self._inner.seek_from_thread(offset)
        self.position = offset

    def can_play(self, in_hand_bytes: int, bytes_per_second: float) -> bool:
        return self._inner.can_play(in_hand_bytes, bytes_per_second)

    @property
    def sha256(self) -> str | None:
        return self._inner.sha256

    def verify(self) -> None:
        self._inner.verify()

    def set_demand(self, demand: Demand) -> None:
        self._inner.set_demand(demand)

    def watch(self, on_event: Callable[[StreamEvent], None]) -> None:
        self._inner.watch(on_event)

    def statistics(self) -> StreamStatistics | None:
        return self._inner.statistics()


class TeeMedia(PlayableWrapper):
    """`inner`, saved by a writer of `writer_factory` while it is played for the first time.

    The factory is called in a thread (`OutputStore.open_writer` blocks). Once saved, or while it is being
    saved, the item plays without a tee; if saving failed, the next play tries again.
    """

    def __init__(self, inner: Playable, writer_factory: Callable[[], OutputWriter]) -> None:
        super().__init__(inner)
        self._writer_factory = writer_factory
        self._spool: Spool | None = None

    @property
    def outcome(self) -> SavingOutcome | None:
        """The outcome of the newest play that was saved; None until it is known."""
        return None if self._spool is None else self._spool.outcome

    async def saved(self) -> SavingOutcome:
        """Wait for the disk and return the outcome; `NotSaved` at once if it was never played.

        While it plays, this waits for the end (see `Player.wait_finished`). Cancelling changes nothing.
        """
        if self._spool is None:
            await trio.lowlevel.checkpoint()
            return NotSaved(
                reason="not saved: it was not played", received_bytes=0, size_bytes=self.size_bytes
            )
        return await self._spool.wait_outcome()

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[Reader]:
        """Open the inner item. Leaving it reads the rest, but does not wait for the disk (see `saved`)."""
        if self._spool is not None and not isinstance(self._spool.outcome, NotSaved):
            async with self.inner.open(options) as reader:
                yield reader
            return
        spool = self._spool = Spool(self._writer_factory, size_bytes=self.size_bytes)
        spool.start()
        tee: TeeReader | None = None
        failure: Exception | None = None
        try:
            async with self.inner.open(options) as reader:
                tee = TeeReader(reader, spool)
                yield tee
                with trio.move_on_after(REST_SECONDS):
                    # Abandoned if it hangs: closing the reader wakes it. It counts against no thread limit.
                    await trio.to_thread.run_sync(
                        self._read_rest,
                        tee,
                        spool,
                        abandon_on_cancel=True,
                        limiter=trio.CapacityLimiter(1),
                    )
        except (PlayheadError, OSError) as error:
            failure = error
            raise
        finally:
            if tee is None:
                spool.end(None, failure=failure)
            else:
                spool.end(tee.end_bytes, failure=tee.failure, sha256=tee.sha256)

    def _read_rest(self, tee: TeeReader, spool: Spool) -> None:
        """Read the bytes after the audio and the skipped ones. In a thread, when nobody else reads."""
        buffer = memoryview(bytearray(_PIECE_BYTES))
        with suppress(PlayheadError, OSError):  # the tee has recorded it
            if tee.end_bytes is None:
                last = tee.position + REST_BYTES
                if self.size_bytes is not None and self.size_bytes > last:
                    return
                while tee.position < last and spool.drain() and tee.readinto(buffer):
                    pass
            if not tee.seekable:
                return
            # Each round closes a gap or finds an earlier end.
            while tee.end_bytes is not None and (gaps := spool.missing(tee.end_bytes)):
                start, end = gaps[0]
                tee.seek_from_thread(start)
                while tee.position < end:
                    if not spool.drain():
                        return
                    if not tee.readinto(buffer[: end - tee.position]):
                        break
