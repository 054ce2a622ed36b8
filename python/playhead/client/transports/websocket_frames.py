"""Messages out of the pieces of WebSocket text frames, with the events and the bounds of lines.

The counterpart of `frames.LineFramer`: what a newline is there, the end of a message is here, and a newline
is a byte like any other. wsproto gives a message in pieces, as its frames and the reads of the socket cut
it; any cutting of the same messages gives the same events, in the same memory: pieces are put together as
they come and never kept apart, so that a message of a million empty fragments costs what an empty one does.
"""

from __future__ import annotations

from dataclasses import dataclass

from playhead.client.transports.frames import (
    ENDLESS_FACTOR,
    HEAD_BYTES,
    TAIL_BYTES,
    EndlessLine,
    Event,
    Line,
    LongLine,
    OverlongLine,
    SkippedLine,
)


@dataclass(slots=True)
class _Skip:
    """A message that is not kept. `told` is whether its owner knows that it is overlong."""

    head: bytes
    length_bytes: int
    tail: bytes
    told: bool = False


class MessageFramer:
    """Puts pieces together. No clock, no stream, no decoding.

    Args:
        max_bytes: the longest message that is kept (`limits.message_bytes`).
        head_bytes: where a message is announced before it is whole. Default 64 KiB, as for lines.
    """

    def __init__(self, *, max_bytes: int, head_bytes: int = HEAD_BYTES) -> None:
        self._max_bytes = max_bytes
        self._head_bytes = min(head_bytes, max_bytes)
        self._buffer = bytearray()
        self._announced = False
        self._ended = False
        self._skip: _Skip | None = None
        self._endless = False

    @property
    def held_bytes(self) -> int:
        """Bytes held of a message that has not come out yet."""
        return len(self._buffer)

    @property
    def head(self) -> bytes:
        """How the unfinished message begins (at most `head_bytes`); empty between two messages."""
        return self._skip.head if self._skip is not None else bytes(self._buffer[: self._head_bytes])

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        """Take a piece of the current message. Drain `next_event` after each piece and each end."""
        if self._endless:
            return
        if self._skip is None:
            self._buffer += chunk
            return
        self._skip.length_bytes += len(chunk)
        self._skip.tail = (self._skip.tail + bytes(chunk[-TAIL_BYTES:]))[-TAIL_BYTES:]

    def end_message(self) -> None:
        """The current message is whole."""
        self._ended = not self._endless

    def next_event(self) -> Event | None:
        """The next thing that happened, or None when only more pieces can tell."""
        if self._endless:
            return None
        if self._skip is not None:
            return self._next_skipped(self._skip)
        length = len(self._buffer)
        if length > self._head_bytes and not self._announced:
            self._announced = True
            return LongLine(head=self.head)
        if length > self._max_bytes:
            self.skip_line()
            return self.next_event()
        if not self._ended:
            return None
        line, self._buffer = self._buffer, bytearray()
        self._begin()
        return Line(data=line)

    def skip_line(self) -> None:
        """Keep no more of the message that the last `LongLine` announced; a `SkippedLine` tells its end."""
        if self._announced and self._skip is None:
            self._skip = _Skip(self.head, len(self._buffer), bytes(self._buffer[-TAIL_BYTES:]))
            self._buffer = bytearray()

    def _next_skipped(self, skip: _Skip) -> Event | None:
        overlong = skip.length_bytes > self._max_bytes
        if overlong and not skip.told:
            skip.told = True
            return OverlongLine(head=skip.head)
        allowed = ENDLESS_FACTOR * self._max_bytes
        if skip.length_bytes > allowed:
            self._endless = True
            return EndlessLine(head=skip.head, allowed_bytes=allowed)
        if not self._ended:
            return None
        self._begin()
        self._skip = None
        return SkippedLine(head=skip.head, tail=skip.tail, length_bytes=skip.length_bytes, overlong=overlong)

    def _begin(self) -> None:
        self._announced = self._ended = False
