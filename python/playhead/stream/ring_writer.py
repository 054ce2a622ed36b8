"""The ring writer: decodes answers into the ring, within the limits, and wakes readers.

Everything runs in the trio thread between two checkpoints, except `feed`, which waits for room.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import trio

from playhead._core import Pipe
from playhead.content.formats import Base64Text
from playhead.errors import Base64Error, LimitError, PlayheadError, UsageError
from playhead.limits import KIB
from playhead.stream.answer import Answer, pieces

SLICE_BYTES = 192 * KIB
"""The size of the slices in which oversized pages are decoded: 30 us of the trio thread each."""

SMALL_RING_BYTES = 512 * KIB
"""The ring of a stream that is opened when half of the budget is used: ten seconds at 320 kbit/s."""


class RingBudget:
    """Bounds the memory of the rings of all streams in a process. The ring of an open stream never
    shrinks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.taken_bytes = 0

    def take(self, ring_bytes: int, *, allowed_bytes: int) -> int:
        """Take the capacity of a new stream's ring from the budget, and return it: `ring_bytes` while more
        than half of the budget is free, then at most `SMALL_RING_BYTES`. Give it back with `release`.

        Raises `UsageError` if the budget has less left.
        """
        with self._lock:
            free = allowed_bytes - self.taken_bytes
            granted = ring_bytes if 2 * free > allowed_bytes else min(ring_bytes, SMALL_RING_BYTES)
            if granted > free:
                raise UsageError(
                    f"streams: expected at most {allowed_bytes} bytes for the rings of this process "
                    f"(Limits.streams_bytes), got another stream with {self.taken_bytes} in use; close "
                    "streams, or raise the limit"
                )
            self.taken_bytes += granted
            return granted

    def release(self, granted_bytes: int) -> None:
        with self._lock:
            self.taken_bytes -= granted_bytes


RING_BUDGET = RingBudget()
"""The budget of this process, module state because all event loops share its memory."""


class RingWriter:
    """Writes answers into a pipe, and wakes tasks that wait for bytes, for room, or for the end."""

    def __init__(self, pipe: Pipe, *, max_bytes: int) -> None:
        self._pipe = pipe
        self._max_bytes = max_bytes
        self.arrived = trio.Event()
        """Set by the next bytes, the end, or an error that breaks the stream; then replaced."""
        self._start = pipe.tail
        self.first_byte_at: float | None = None
        """The time at which the first byte became readable, on trio's clock."""
        self.news = trio.Event()
        """Set when the driver has something to do, such as room in the ring, an answer, or a seek. The driver
        waits for it and replaces it."""
        self._room = trio.Event()
        self.on_stored: Callable[[int, Base64Text | bytes], None] | None = None
        """Called with the offset of each piece and the piece, once it is in the ring."""

    def store(self, answer: Answer, *, start: int | None = None, stop: int | None = None) -> None:
        """Store the answer's bytes `[start, stop)`, by default all.

        Raises `LimitError` for bytes past the limit, after storing the bytes below it; `Base64Error` with the
        offset of the blob; and `ContradictionError` if the ring has other bytes at the same offset.
        """
        start = answer.offset if start is None else start
        stop = answer.end if stop is None else stop
        cap = min(stop, self._max_bytes)
        before, wanted = self._pipe.tail, pieces(answer, start, cap)
        try:
            for offset, piece in wanted:
                if isinstance(piece, bytes):
                    self._pipe.write(offset, piece)
                else:
                    self._pipe.write_base64(offset, piece)
                if self.on_stored is not None:
                    self.on_stored(offset, piece)
        except Base64Error as error:
            raise Base64Error(
                f"page at byte {offset}: expected base64 (RFC 4648), got a bad {error.kind} at character "
                f"{error.index}, byte {offset + error.index // 4 * 3} of the resource; "
                "the server's encoding is broken: report it to its author",
                kind=error.kind,
                index=error.index,
                offset=offset,
            ) from error
        finally:
            if (tail := self._pipe.tail) > before:
                if self.first_byte_at is None and tail > self._start:
                    self.first_byte_at = trio.current_time()
                self._wake()
        if stop > cap:
            raise LimitError(
                f"stream: expected at most {self._max_bytes} bytes, got {stop} or more",
                advice="raise StreamOptions.max_bytes (Limits.stream_bytes) if the resource may be that long",
                limit="stream_bytes",
                allowed=self._max_bytes,
                got=stop,
            )

    def lift_limit(self) -> None:
        """Allow any number of bytes, for a stream without an end."""
        self._max_bytes = sys.maxsize

    async def feed(self, answer: Answer) -> None:
        """Store an answer of any size from the tail on, slice by slice as the reader makes room.

        An answer without the byte at the tail is skipped: a seek has moved the tail. Raises as `store`.
        Cancelled: the bytes before the tail are stored.
        """
        pipe = self._pipe
        slice_bytes = min(SLICE_BYTES, max(3, pipe.ahead_bytes // 4), pipe.ahead_bytes)
        while answer.offset <= pipe.tail < answer.end:
            at = pipe.tail
            await self._wait_room(min(slice_bytes, answer.end - at))
            if pipe.tail != at:
                continue  # a seek has emptied the ring
            stop = min(answer.end, at + slice_bytes)
            if stop < answer.end:
                # Base64 can only be cut between groups of three bytes; elsewhere a group would be decoded
                # twice.
                stop -= (stop - answer.offset) % 3
                stop = stop if stop > at else at + 1
            self.store(answer, start=at, stop=stop)
            await trio.lowlevel.checkpoint()

    async def _wait_room(self, room_bytes: int) -> None:
        pipe = self._pipe
        low_bytes = self._pipe.ahead_bytes - room_bytes
        while pipe.head + self._pipe.ahead_bytes - pipe.tail < room_bytes:
            self._room = trio.Event()
            if not pipe.arm(low_bytes):
                await self._room.wait()

    async def watch_room(self) -> None:
        """Pass the pipe's wake-ups to the waiting tasks until cancelled, without polling."""
        while True:
            await trio.lowlevel.wait_readable(self._pipe.fileno())
            self._pipe.clear_wake()
            self._room.set()
            self.news.set()

    def close(self) -> None:
        """End the stream at the tail."""
        self._pipe.close()
        self._wake()

    def abort(self, error: PlayheadError) -> None:
        """Break the stream: readers get `error` after the bytes before it."""
        self._pipe.abort(error)
        self._wake()

    def _wake(self) -> None:
        self.arrived.set()
        self.arrived = trio.Event()
