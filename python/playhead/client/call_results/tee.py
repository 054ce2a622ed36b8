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

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import trio

from playhead.client.call_results.spool import NotSaved, SavingOutcome, Spool
from playhead.config.outputs import OutputWriter
from playhead.errors import ClosedError, PlayheadError
from playhead.limits import KIB, MIB
from playhead.stream.options import StreamEvent, StreamOptions, StreamStatistics
from playhead.stream.source import Demand, Playable, PlayableWrapper, Reader

if TYPE_CHECKING:
    from typing_extensions import Buffer


REST_BYTES: Final = MIB
"""Limits the bytes to read after playback if the end is unknown. Tags with a picture are shorter; another
piece of music is longer."""
REST_SECONDS: Final = 10.0
"""Limits the time of this reading, because the next item waits for it. Usually it takes at most one round
trip."""
_PIECE_BYTES: Final = 256 * KIB


class TeeReader(Reader):
    """A `Reader` that copies its bytes into a spool."""

    def __init__(self, inner: Reader, spool: Spool) -> None:
        self._inner = inner
        self._spool = spool
        self.position = 0
        """Offset of the next byte."""
        self.end_bytes: int | None = None
        """The lowest offset at which the end was read. It is the true end if all bytes before it have
        arrived."""
        self.failure: Exception | None = None
        """The exception of the inner reader."""

    @property
    def seekable(self) -> bool:
        return self._inner.seekable

    @property
    def is_queue(self) -> bool:
        return self._inner.is_queue

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        """Read as the inner reader does, and copy the bytes. The wait for the disk is not noticeable (see
        `Spool.put`)."""
        try:
            count = self._inner.readinto(buffer, timeout)
        except (TimeoutError, ClosedError):
            raise  # the caller may try again, or has stopped; neither is a fault of the stream
        except (PlayheadError, OSError) as error:
            self.failure = error
            raise
        view = memoryview(buffer).cast("B")
        if count:
            self.position = self._inner.joined(self.position)
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

    @property
    def newest_offset(self) -> int | None:
        return self._inner.newest_offset

    def joined(self, offset: int) -> int:
        return self._inner.joined(offset)

    def set_in_hand(self, in_hand_seconds: Callable[[], float]) -> None:
        self._inner.set_in_hand(in_hand_seconds)

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
                    # If the thread hangs it is abandoned, and closing the reader wakes it. Its own limiter
                    # keeps it out of trio's limit of threads.
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
        """Read, in a thread, the bytes after the audio, and those that the decoder skipped."""
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
            # Each round closes a gap or finds an earlier end, unless the server has dropped the bytes.
            while tee.end_bytes is not None and (gaps := spool.missing(tee.end_bytes)):
                start, end = gaps[0]
                tee.seek_from_thread(start)
                if tee.joined(start) != start:
                    return
                while tee.position < end:
                    if not spool.drain():
                        return
                    if not tee.readinto(buffer[: end - tee.position]):
                        break
