"""Split bytes into lines: the newline-delimited framing of MCP's stdio transport, in linear time.

Theory of operation. Bytes go in with `feed`, events come out of `next_event` until it returns None ("not
yet": feed more). Any chunking of the same bytes gives the same events. Each byte is scanned once, because the
scan position is remembered: splitting a growing buffer again at each chunk is quadratic (24 s for a line of
32 MiB with the SDK's own reader).

A peer can make this hold one line of at most `max_bytes`, or `head_bytes` + `TAIL_BYTES` of a line that is
being skipped. A line that was skipped for `ENDLESS_FACTOR` times `max_bytes` is taken to have no end; that is
the last event.

A line longer than `head_bytes` is collected in a `_core.MessageBuffer`, which gives up its `bytes` without a
copy: a line of 64 MiB is never held twice, and views of it can be decoded with the GIL released.

A line is bytes without an encoding, so an invalid byte can spoil its own line only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from playhead._core import MessageBuffer
from playhead.limits import KIB


class EventValues:
    """Counts the JSON values in each event of a `text/event-stream` while it arrives, before it is parsed.

    The SDK parses a whole event into Python objects: 64 MiB of `[],[],…` would become more than a gigabyte.
    Commas and opening brackets outside strings are counted, as `messages.check_structure` does for messages.
    Any chunking gives the same counts.
    """

    def __init__(self) -> None:
        self.count = 0
        """Commas and opening brackets of the current event so far."""
        self.most = 0
        """The largest count of any event."""
        self._in_string = False
        self._line_is_empty = True
        self._held = b""
        """A backslash or a carriage return at the end of a chunk; the next byte decides its meaning."""

    def feed(self, chunk: bytes) -> None:
        text = self._held + chunk
        self._held = b""
        if text.endswith(b"\r"):
            text, self._held = text[:-1], b"\r"
        elif text.endswith(b"\\"):
            bare = text.rstrip(b"\\")
            self._held = b"\\" * ((len(text) - len(bare)) % 2)  # in pairs they escape each other
            text = bare + b"_" * (len(text) > len(bare))  # a line that holds backslashes is not empty
        text = text.replace(b"\\\\", b"_").replace(b'\\"', b"_").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *others = text.split(b"\n")
        self._add(first)
        for line in others:
            if self._line_is_empty:
                self.count = 0  # a blank line ends the event
            # No JSON string continues on another line, so an unpaired quote hides nothing after it.
            self._in_string = False
            self._line_is_empty = True
            self._add(line)

    def _add(self, part: bytes) -> None:
        if not part:
            return
        self._line_is_empty = False
        outside = part.split(b'"')[self._in_string :: 2]
        self.count += sum(text.count(b",") + text.count(b"[") + text.count(b"{") for text in outside)
        self.most = max(self.most, self.count)
        self._in_string ^= part.count(b'"') % 2 == 1


HEAD_BYTES = 64 * KIB
"""Bytes of a line after which its owner may skip it: servers put the id in the first 60."""

TAIL_BYTES = 256
"""Bytes saved of the end of a skipped line, where some servers write the id."""

ENDLESS_FACTOR = 4
"""Multiple of the limit at which a skipped line is taken to have no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A complete line, without its newline."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LongLine:
    """A line is longer than `head_bytes`. Having seen its beginning, its owner may `skip_line()` now."""

    head: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlongLine:
    """A line is longer than `max_bytes`. Its bytes were dropped, and the rest is being skipped."""

    head: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedLine:
    """The end of a skipped line: its owner skipped it, or it was overlong."""

    head: bytes
    tail: bytes
    length_bytes: int
    overlong: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndlessLine:
    """A skipped line is longer than `ENDLESS_FACTOR * max_bytes`. No event follows."""

    head: bytes
    allowed_bytes: int


FrameEvent = Line | LongLine | OverlongLine | SkippedLine | EndlessLine


class Framer(Protocol):
    """The framing that an inbox uses; see `LineFramer`."""

    @property
    def head(self) -> bytes: ...

    def feed(self, chunk: bytes | bytearray | memoryview) -> None: ...
    def next_event(self) -> FrameEvent | None: ...
    def skip_line(self) -> None: ...


@dataclass(slots=True)
class _Skip:
    """A line that is being skipped."""

    head: bytes
    overlong: bool
    length_bytes: int = 0
    tail: bytes = b""


class LineFramer:
    """Cuts bytes into lines. No clock, no stream, no decoding.

    Args:
        max_bytes: the longest line to keep (`limits.message_bytes`).
        head_bytes: the length at which an incomplete line is announced. Default 64 KiB, a pipe's capacity.
    """

    def __init__(self, *, max_bytes: int, head_bytes: int = HEAD_BYTES) -> None:
        self._max_bytes = max_bytes
        self._head_bytes = min(head_bytes, max_bytes)
        self._long: MessageBuffer | None = None
        """The beginning of the current line, once it was announced."""
        self._long_head = b""
        self._buffer = bytearray()
        self._start = 0
        """Start of the current line, or of its rest, in the buffer."""
        self._scan = 0
        """The buffer has no newline between `_start` and here."""
        self._skip: _Skip | None = None
        self._endless = False

    @property
    def held_bytes(self) -> int:
        """Bytes held of lines that have not been returned."""
        return self._long_bytes + len(self._buffer) - self._start

    @property
    def _long_bytes(self) -> int:
        return 0 if self._long is None else len(self._long)

    @property
    def head(self) -> bytes:
        """The beginning of the unfinished line (at most `head_bytes`); empty between two lines."""
        if self._skip is not None:
            return self._skip.head
        if self._long is not None:
            return self._long_head
        return bytes(self._buffer[self._start : self._start + self._head_bytes])

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        """Add received bytes. Drain `next_event` after each call, or they pile up."""
        if self._endless:
            return
        if self._start:
            del self._buffer[: self._start]  # moves the buffer's beginning, not its bytes
            self._scan -= self._start
            self._start = 0
        if self._long is not None and not self._buffer:
            chunk = bytes(chunk)  # which copies nothing if they are
            newline = chunk.find(b"\n")
            rest = len(chunk) if newline < 0 else newline
            self._long.write(memoryview(chunk)[:rest])
            chunk = memoryview(chunk)[rest:]
        self._buffer += chunk

    def next_event(self) -> FrameEvent | None:
        """The next event, or None if more bytes are needed."""
        if self._endless:
            return None
        newline = self._buffer.find(b"\n", self._scan)
        end = newline if newline >= 0 else len(self._buffer)
        self._scan = end
        if self._skip is not None:
            return self._next_skipped(self._skip, end, ended=newline >= 0)
        if self._long is None and end - self._start <= self._head_bytes:
            return Line(data=self._take_line(end)) if newline >= 0 else None
        is_announced = self._long is not None
        self._lengthen(end)
        if not is_announced:
            return LongLine(head=self.head)
        if self._long_bytes > self._max_bytes:
            return OverlongLine(head=self._begin_skip(overlong=True).head)
        return Line(data=self._take_line(end)) if newline >= 0 else None

    def skip_line(self) -> None:
        """Skip the rest of the line that the last `LongLine` announced; a `SkippedLine` marks its end."""
        if self._long is not None and self._skip is None:
            self._begin_skip(overlong=False)

    def _lengthen(self, end: int) -> None:
        """Move the current line's bytes up to `end` out of the buffer."""
        if self._long is None:
            self._long_head = bytes(self._buffer[self._start : self._start + self._head_bytes])
            self._long = MessageBuffer()
        with memoryview(self._buffer) as held:
            self._long.write(held[self._start : end])
        self._start = end

    def _begin_skip(self, *, overlong: bool) -> _Skip:
        assert self._long is not None
        tail = self._long.tail(TAIL_BYTES)
        self._skip = _Skip(head=self.head, overlong=overlong, length_bytes=self._long_bytes, tail=tail)
        self._long = None
        return self._skip

    def _next_skipped(self, skip: _Skip, end: int, *, ended: bool) -> FrameEvent | None:
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

    def _take_line(self, end: int) -> bytes:
        short = self._buffer[self._start : end]
        line = bytes(short) if self._long is None else self._long.take()
        self._begin_line(end + 1)
        return line

    def _begin_line(self, start: int) -> None:
        self._start = self._scan = start
        self._long = None
