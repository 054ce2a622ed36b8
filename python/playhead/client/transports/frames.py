"""Lines out of bytes: the newline-delimited framing of MCP's stdio transport, in linear time.

Theory of operation. Bytes go in with `feed`, events come out of `next_event` until it answers None ("not
yet": feed more). Any chunking of the same bytes gives the same events. A byte is looked at once: the scan
position is remembered, where splitting a growing text again at each chunk is quadratic (24 s for a line of
32 MiB, measured on the SDK's own reader).

What a peer can make this hold: one line of at most `max_bytes`, and `head_bytes` + `TAIL_BYTES` of a line
that is being skipped. A line that was skipped for `ENDLESS_FACTOR` times `max_bytes` will never end; that
is the last event.

A line is bytes: it has no encoding here, so a wrong byte can spoil its own line only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from playhead.limits import KIB

HEAD_BYTES = 64 * KIB
"""How much of a line is looked at before it is kept further: servers put the id in the first 60 bytes."""

TAIL_BYTES = 256
"""How much of a skipped line's end is kept: where the id of the servers is that write it last."""

ENDLESS_FACTOR = 4
"""How many times the limit a line is skipped before the stream is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A whole line, without its newline."""

    data: bytes | bytearray


@dataclass(frozen=True, slots=True, kw_only=True)
class LongLine:
    """A line has passed `head_bytes`. Its owner may `skip_line()` now, having seen how it begins."""

    head: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlongLine:
    """A line has passed `max_bytes`. What was held of it is gone, and the rest is being skipped."""

    head: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedLine:
    """The end of a line that was skipped, by its owner's wish or because it was overlong."""

    head: bytes
    tail: bytes
    length_bytes: int
    overlong: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndlessLine:
    """A skipped line passed `ENDLESS_FACTOR * max_bytes`. No event follows."""

    head: bytes
    allowed_bytes: int


Event = Line | LongLine | OverlongLine | SkippedLine | EndlessLine


class Framer(Protocol):
    """What the inbox asks of a framing; `LineFramer` says what each is."""

    @property
    def head(self) -> bytes: ...

    def feed(self, chunk: bytes | bytearray | memoryview) -> None: ...
    def next_event(self) -> Event | None: ...
    def skip_line(self) -> None: ...


@dataclass(slots=True)
class _Skip:
    """A line that is not kept. `told` is whether its owner knows that it was overlong."""

    head: bytes
    overlong: bool
    length_bytes: int = 0
    tail: bytes = b""


class LineFramer:
    """Cuts bytes into lines. No clock, no stream, no decoding.

    Args:
        max_bytes: the longest line that is kept (`limits.message_bytes`).
        head_bytes: where a line is announced before it is whole. Default 64 KiB, a pipe's capacity.
    """

    def __init__(self, *, max_bytes: int, head_bytes: int = HEAD_BYTES) -> None:
        self._max_bytes = max_bytes
        self._head_bytes = min(head_bytes, max_bytes)
        self._buffer = bytearray()
        self._start = 0
        """Where the current line begins in the buffer."""
        self._scan = 0
        """No newline lies in the buffer between `_start` and here."""
        self._announced = False
        self._skip: _Skip | None = None
        self._endless = False

    @property
    def held_bytes(self) -> int:
        """Bytes held of lines that have not come out yet."""
        return len(self._buffer) - self._start

    @property
    def head(self) -> bytes:
        """How the unfinished line begins (at most `head_bytes`); empty between two lines."""
        if self._skip is not None:
            return self._skip.head
        return bytes(self._buffer[self._start : self._start + self._head_bytes])

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        """Take bytes as they came. Drain `next_event` after each call, or they pile up."""
        if self._endless:
            return
        if self._start:
            del self._buffer[: self._start]  # moves the buffer's beginning, not its bytes
            self._scan -= self._start
            self._start = 0
        self._buffer += chunk

    def next_event(self) -> Event | None:
        """The next thing that happened, or None when only more bytes can tell."""
        if self._endless:
            return None
        newline = self._buffer.find(b"\n", self._scan)
        end = newline if newline >= 0 else len(self._buffer)
        self._scan = end
        if self._skip is not None:
            return self._next_skipped(self._skip, end, ended=newline >= 0)
        length = end - self._start
        if length > self._head_bytes and not self._announced:
            self._announced = True
            return LongLine(head=self.head)
        if length > self._max_bytes:
            self._skip = _Skip(head=self.head, overlong=True)
            return OverlongLine(head=self._skip.head)
        return Line(data=self._take_line(end)) if newline >= 0 else None

    def skip_line(self) -> None:
        """Keep no more of the line that the last `LongLine` announced; a `SkippedLine` tells its end."""
        if self._announced and self._skip is None:
            self._skip = _Skip(head=self.head, overlong=False)

    def _next_skipped(self, skip: _Skip, end: int, *, ended: bool) -> Event | None:
        skip.length_bytes += end - self._start
        skip.tail = (skip.tail + self._buffer[max(self._start, end - TAIL_BYTES) : end])[-TAIL_BYTES:]
        self._start = end
        if skip.length_bytes > self._max_bytes and not skip.overlong:
            skip.overlong = True
            return OverlongLine(head=skip.head)
        allowed = ENDLESS_FACTOR * self._max_bytes
        if skip.length_bytes > allowed:
            self._endless = True
            self._buffer = bytearray()
            self._start = self._scan = 0
            return EndlessLine(head=skip.head, allowed_bytes=allowed)
        if not ended:
            if end == len(self._buffer):
                self._buffer = bytearray()
                self._start = self._scan = 0
            return None
        self._begin_line(end + 1)
        self._skip = None
        return SkippedLine(
            head=skip.head, tail=skip.tail, length_bytes=skip.length_bytes, overlong=skip.overlong
        )

    def _take_line(self, end: int) -> bytes | bytearray:
        if self._start == 0 and end > self._head_bytes:
            # A big line usually has the buffer to itself: hand the buffer over and copy what follows it,
            # so that a line of 64 MiB is never held twice.
            line, self._buffer = self._buffer, self._buffer[end + 1 :]
            del line[end:]
            self._begin_line(0)
            return line
        line_bytes = bytes(self._buffer[self._start : end])
        self._begin_line(end + 1)
        return line_bytes

    def _begin_line(self, start: int) -> None:
        self._start = self._scan = start
        self._announced = False
