"""Where answers become bytes: from base64 text into the ring, with the caps, and word to the readers.

Everything here happens in the trio thread between two checkpoints, but `feed`, which waits for room.
"""

from __future__ import annotations

import trio

from playhead._core import Pipe
from playhead.errors import Base64Error, LimitError, PlayheadError
from playhead.limits import KIB
from playhead.stream.answer import Answer, pieces
from playhead.stream.statistics import Tally

SLICE_BYTES = 192 * KIB
"""Text of an oversized page is decoded in slices of this size: 30 us of the trio thread each."""


class Inlet:
    """Writes answers into a pipe, and wakes who waits for bytes, for room, or for the end."""

    def __init__(self, pipe: Pipe, *, max_bytes: int, tally: Tally) -> None:
        self._pipe = pipe
        self._max_bytes = max_bytes
        self._tally = tally
        self._arrived = trio.Event()
        self._start = pipe.tail
        self.first_byte_at: float | None = None
        """When the first byte could be read, on trio's clock."""
        self.ended = False
        """The end was reached; a seek does not take that back."""
        self.news = trio.Event()
        """Set when there is room, an answer, or a seek; made anew by the one task that waits for it."""

    def store(self, answer: Answer, *, start: int | None = None, stop: int | None = None) -> None:
        """Put the answer's bytes `[start, stop)`, by default all, in their places.

        Raises `LimitError` for bytes past the cap, after storing those below it; `Base64Error` with the
        offset of the blob; and `ContradictionError` where other bytes are held already.
        """
        start = answer.offset if start is None else start
        stop = answer.end if stop is None else stop
        cap = min(stop, self._max_bytes)
        for offset, piece in pieces(answer, start, cap):
            self._write(offset, piece)
        if stop > cap:
            raise LimitError(
                f"stream: expected at most {self._max_bytes} bytes, got {stop} or more; raise "
                "--max-bytes (Limits.stream_bytes) if the resource may be that long",
                limit="stream_bytes",
                allowed=self._max_bytes,
                got=stop,
            )
        self._tally.data_end = max(self._tally.data_end, stop)

    async def feed(self, answer: Answer) -> None:
        """Put an answer of any size in its place, slice by slice as the reader makes room, from the tail on.

        An answer that does not hold the tail (a seek went elsewhere) is left. Raises what `store` does.
        Cancelled: the tail says how far it came.
        """
        pipe = self._pipe
        slice_bytes = min(SLICE_BYTES, max(3, pipe.capacity_bytes // 4))
        while answer.offset <= pipe.tail < answer.end:
            at = pipe.tail
            await self._wait_room(min(slice_bytes, answer.end - at))
            stop = min(answer.end, at + slice_bytes)
            if stop < answer.end:
                # Cut where base64 can be cut, so that no slice is decoded twice.
                stop -= (stop - answer.offset) % 3
                stop = stop if stop > at else at + 1
            self.store(answer, start=at, stop=stop)
            await trio.lowlevel.checkpoint()

    def _write(self, offset: int, piece: str | bytes) -> None:
        before = self._pipe.tail
        if isinstance(piece, bytes):
            self._pipe.write(offset, piece)
        else:
            try:
                self._pipe.write_base64(offset, piece)
            except Base64Error as error:
                raise Base64Error(
                    f"page at byte {offset}: expected base64 (RFC 4648), got a bad {error.kind} at character "
                    f"{error.index}, byte {offset + error.index // 4 * 3} of the resource; "
                    "the server's encoding is broken, report it to its author",
                    kind=error.kind,
                    index=error.index,
                    offset=offset,
                ) from error
        if self._pipe.tail > before:
            if self.first_byte_at is None and self._pipe.tail > self._start:
                self.first_byte_at = trio.current_time()
            self._wake()

    async def _wait_room(self, room_bytes: int) -> None:
        pipe = self._pipe
        low_bytes = pipe.capacity_bytes - room_bytes
        while pipe.head + pipe.capacity_bytes - pipe.tail < room_bytes:
            self.news = trio.Event()
            if not pipe.arm(low_bytes):
                await self.news.wait()

    async def watch_room(self) -> None:
        """Wait for the pipe's wakes until cancelled. It waits in the kernel: nothing is polled."""
        while True:
            await trio.lowlevel.wait_readable(self._pipe.fileno())
            self._pipe.clear_wake()
            self.news.set()

    def close(self) -> None:
        """The end: at the tail."""
        self.ended = True
        self._pipe.close()
        self._wake()

    def abort(self, error: PlayheadError) -> None:
        """The break: readers get `error` after the bytes before it."""
        self._pipe.abort(error)
        self._wake()

    def _wake(self) -> None:
        self._arrived.set()
        self._arrived = trio.Event()

    async def wait_bytes(self) -> None:
        """Wait for the next bytes, the end or the break. The caller has seen that nothing is there."""
        await self._arrived.wait()
