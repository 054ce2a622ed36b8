"""A media that is saved while it plays: what the player reads goes to the disk too, and never waits for it.

    inner reader ──▶ TeeReader (the decoder's thread) ──▶ the decoder
                        └── a copy, at its offset ──▶ Spool (≤ 4 MiB) ──▶ its own thread ──▶ OutputWriter

* The sound does not wait for the disk. The decoded sound lasts 0.35 s, less than a slow card's pauses, so
  another thread writes. What waits for it is bounded; where it falls behind, bytes are let go of, and read
  again after the end. A full disk ends the saving, not the sound.
* Only a whole file is kept. A decoder skips cover pictures and stops before trailing tags: when the sound is
  over, the tee reads what it left, as far as that is little (`REST_BYTES`) or the end has been seen, and for
  no longer than `REST_SECONDS`.
* Stopped in the middle, nothing is kept: half a piece is not what the tool gave. `TeeMedia.outcome` says how
  far it came. Stopped after the last byte had come, it is kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import trio

from playhead.client.media import BytesMedia, ResourceMedia
from playhead.client.spool import NotSaved, Saved, SavingOutcome, Spool
from playhead.config.outputs import OutputWriter
from playhead.errors import ClosedError, PlayheadError
from playhead.limits import KIB, MIB
from playhead.stream.options import StreamOptions
from playhead.stream.source import BlockingReader, Media, MediaAround

if TYPE_CHECKING:
    from typing_extensions import Buffer

REST_BYTES: Final = MIB
"""The most that is read after the sound where its end was not seen: tags with a picture, not an album."""
REST_SECONDS: Final = 10.0
"""How long that may take: the next piece waits for it. Usually it is nothing, or one round trip."""
_PIECE_BYTES: Final = 256 * KIB


@runtime_checkable
class ForeseeingReader(Protocol):
    """A reader that a decoder can seek in and that knows how fast its bytes come (`RangeStream`)."""

    def seek_from_thread(self, offset: int) -> None: ...
    def can_play(self, needed_bytes: int) -> bool: ...


class TeeReader:
    """A `BlockingReader` that copies what it reads into a spool."""

    def __init__(self, inner: BlockingReader, spool: Spool) -> None:
        self._inner = inner
        self._spool = spool
        self.position = 0
        """Offset of the next byte."""
        self.end_bytes: int | None = None
        """The lowest offset at which the end was read. The true end, where all bytes before it came."""
        self.failure: Exception | None = None
        """What the inner reader raised."""

    @property
    def inner(self) -> BlockingReader:
        """What is read; its statistics are the stream's."""
        return self._inner

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        """As the inner reader's; the copying adds no waiting for the disk to speak of (see `Spool.put`)."""
        try:
            count = self._inner.readinto(buffer, timeout)
        except (TimeoutError, ClosedError):
            raise  # the reader may ask again; or it was stopped, which is no fault of the stream
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


class ForeseeingTeeReader(TeeReader):
    """For a reader that can be sought in and foresees its bytes: the tee shows both to the decoder."""

    def __init__(self, inner: BlockingReader, seekable: ForeseeingReader, spool: Spool) -> None:
        super().__init__(inner, spool)
        self._seekable = seekable

    def seek_from_thread(self, offset: int) -> None:
        """Go on at `offset`; what was skipped is read after the sound."""
        self._seekable.seek_from_thread(offset)
        self.position = offset

    def can_play(self, needed_bytes: int) -> bool:
        return self._seekable.can_play(needed_bytes)


class TeeMedia(MediaAround):
    """`inner`, saved by a writer of `writer_factory` while it is played for the first time.

    The factory is called in a thread (`OutputStore.open_writer` blocks). A media that is saved, or is being
    saved, plays without a tee; one that was not saved is teed again by the next play.
    """

    def __init__(self, inner: Media, writer_factory: Callable[[], OutputWriter]) -> None:
        super().__init__(inner)
        self._writer_factory = writer_factory
        self._spool: Spool | None = None

    @property
    def outcome(self) -> SavingOutcome | None:
        """What became of the newest play that was teed; None while that is not known."""
        return None if self._spool is None else self._spool.outcome

    async def saved(self) -> SavingOutcome:
        """What became of it, after the disk is done. Never played: `NotSaved` at once.

        Wait until it was played first (`Player.wait_finished`): while it plays, this waits for its end.
        Cancelled: nothing changes.
        """
        if self._spool is None:
            await trio.lowlevel.checkpoint()
            return NotSaved(
                reason="not saved: it was not played", received_bytes=0, size_bytes=self.size_bytes
            )
        return await self._spool.wait_outcome()

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[BlockingReader]:
        """As the inner media's. Leaving it does not wait for the disk (see `saved`), but reads the rest."""
        if self._spool is not None and not isinstance(self._spool.outcome, NotSaved):
            async with self._open_inner(options) as reader:
                yield reader
            return
        spool = self._spool = Spool(self._writer_factory, size_bytes=self.size_bytes)
        spool.start()
        tee: TeeReader | None = None
        failure: Exception | None = None
        try:
            async with self._open_inner(options) as reader:
                tee = (
                    ForeseeingTeeReader(reader, reader, spool)
                    if isinstance(reader, ForeseeingReader)
                    else TeeReader(reader, spool)
                )
                yield tee
                with trio.move_on_after(REST_SECONDS):
                    # Abandoned where it hangs: closing the reader wakes it. It counts against no limit.
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
                spool.end(tee.end_bytes, failure=tee.failure)

    def _open_inner(self, options: StreamOptions | None) -> AbstractAsyncContextManager[BlockingReader]:
        if isinstance(self.inner, ResourceMedia | BytesMedia):
            return self.inner.open(options)
        return self.inner.open()

    def _read_rest(self, tee: TeeReader, spool: Spool) -> None:
        """In a thread, when nobody else reads: what follows the sound, and what the decoder skipped."""
        buffer = memoryview(bytearray(_PIECE_BYTES))
        with suppress(PlayheadError, OSError):  # the tee has noted it
            if tee.end_bytes is None:
                last = tee.position + REST_BYTES
                if self.size_bytes is not None and self.size_bytes > last:
                    return
                while tee.position < last and spool.drain() and tee.readinto(buffer):
                    pass
            if not isinstance(tee, ForeseeingTeeReader):
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


__all__ = ["REST_BYTES", "REST_SECONDS", "NotSaved", "Saved", "SavingOutcome", "TeeMedia", "TeeReader"]
