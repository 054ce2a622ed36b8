"""Split bytes into lines: the newline-delimited framing of MCP's stdio transport, in linear time.

Theory of operation. Add received bytes with `feed`, and call `next_event` until it returns None ("not yet").
Any chunking of the same bytes gives the same events. Each byte is scanned once, in its own chunk: to scan a
growing buffer again at each chunk takes quadratic time (24 s for a line of 32 MiB with the SDK's reader).

A peer can make this hold one line of at most `max_bytes`, or `head_bytes` + `TAIL_BYTES` of a line that is
being skipped. A line of more than `ENDLESS_FACTOR` times `max_bytes` counts as endless, and no event follows.

Lines stay bytes, so an invalid byte affects only its own line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from playhead._core import MessageBuffer
from playhead.limits import KIB

HEAD_BYTES = 64 * KIB
"""The length at which a line is announced (`LongLine`). Most servers write the id in the first 60 bytes."""

TAIL_BYTES = 256
"""The length of the end of a skipped line to save. Some servers write the id there."""

ENDLESS_FACTOR = 4
"""A skipped line longer than this multiple of `max_bytes` counts as endless."""

_BLANKS: Final = b" \t\r"
_LEADING: Final = re.compile(rb"[ \t\r]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A complete line, without the blanks before it and without its newline."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LongLine:
    """A line is longer than `head_bytes`. The caller may `skip` the rest now."""

    head: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlongLine:
    """A line is longer than `max_bytes`. Its bytes were dropped, and the rest is being skipped."""

    head: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedLine:
    """The end of a line that the caller skipped, or that was overlong."""

    head: bytes
    tail: bytes
    length_bytes: int
    overlong: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndlessLine:
    """A skipped line is longer than `ENDLESS_FACTOR * max_bytes`. No event follows."""

    head: bytes
    allowed_bytes: int


LineEvent = Line | LongLine | OverlongLine | SkippedLine | EndlessLine


class Assembly:
    """One message while it arrives: all of its bytes or, if it is skipped, its beginning and its end.

    A message longer than `head_bytes` is collected in a `_core.MessageBuffer`, which gives up its `bytes`
    without a copy: 64 MiB are never held twice, and views of them can be decoded with the GIL released.

    Args:
        max_bytes: the longest message to return (`limits.message_bytes`).
        allowed_bytes: the longest message to skip. A longer one counts as endless.
        head_bytes: the length at which an incomplete message is announced.
    """

    def __init__(self, *, max_bytes: int, allowed_bytes: int, head_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._allowed_bytes = allowed_bytes
        self._head_bytes = min(head_bytes, max_bytes)
        self.is_endless = False
        """True if the last event was an `EndlessLine`."""
        self.drop()

    def drop(self) -> None:
        """Forget the message."""
        self.length_bytes = 0
        """The number of received bytes of the message; 0 between two messages."""
        self._short = bytearray()
        """The message, while it is too short to be announced."""
        self._head = b""
        self._long: MessageBuffer | None = None
        self._tail: bytes | None = None
        """The newest bytes of a message that is being skipped; None for one that is collected."""
        self._announced = self._overlong = self._ended = False

    @property
    def held_bytes(self) -> int:
        """Bytes held of the message."""
        return len(self._short) + (0 if self._long is None else len(self._long))

    @property
    def head(self) -> bytes:
        """The beginning of the unfinished message (at most `head_bytes`); empty between two messages."""
        return self._head or bytes(self._short)

    def write(self, piece: bytes | memoryview, *, ends: bool) -> None:
        """Add a piece of the message, its last one if it `ends`. Drain `next_event` after each."""
        self.length_bytes += len(piece)
        self._ended = ends
        if self._tail is not None:
            self._tail = (self._tail + piece[-TAIL_BYTES:])[-TAIL_BYTES:]
        elif self._long is not None:
            self._long.write(piece)
        elif self.length_bytes <= self._head_bytes:
            self._short += piece
        else:
            missing = self._head_bytes - len(self._short)
            self._head = bytes(self._short) + piece[:missing]
            self._long, self._short = MessageBuffer(), bytearray()
            self._long.write(self._head)
            self._long.write(piece[missing:])

    def skip(self) -> None:
        """Skip the rest of the message that the last `LongLine` announced; a `SkippedLine` marks its end."""
        if self._long is not None:
            self._tail, self._long = self._long.tail(TAIL_BYTES), None

    def end(self) -> EndlessLine:
        """Drop the message, because it is endless."""
        event = EndlessLine(head=self.head, allowed_bytes=self._allowed_bytes)
        self.is_endless = True
        self.drop()
        return event

    def next_event(self) -> LineEvent | None:
        """Return the next event, or None if more pieces are needed."""
        if self._long is not None and not self._announced:
            self._announced = True
            return LongLine(head=self._head)
        if self.length_bytes > self._max_bytes and not self._overlong:
            self.skip()
            self._overlong = True
            return OverlongLine(head=self._head)
        if self.length_bytes > self._allowed_bytes:
            return self.end()
        if not self._ended:
            return None
        event: LineEvent
        if self._tail is None:
            event = Line(data=bytes(self._short) if self._long is None else self._long.take())
        else:
            event = SkippedLine(
                head=self._head, tail=self._tail, length_bytes=self.length_bytes, overlong=self._overlong
            )
        self.drop()
        return event


class Framer(Protocol):
    """The framing that an inbox uses; see `LineFramer`."""

    message: Assembly
    """The unfinished message, which the inbox may `skip`."""

    def feed(self, chunk: bytes | bytearray | memoryview) -> None: ...
    def next_event(self) -> LineEvent | None: ...


class LineFramer:
    """Cuts bytes into lines, without the blanks before them. No clock, no stream, no decoding.

    Args:
        max_bytes: the longest line to return (`limits.message_bytes`).
        head_bytes: the length at which an incomplete line is announced. Default 64 KiB, a pipe's capacity.
    """

    def __init__(self, *, max_bytes: int, head_bytes: int = HEAD_BYTES) -> None:
        self.message = Assembly(
            max_bytes=max_bytes, allowed_bytes=ENDLESS_FACTOR * max_bytes, head_bytes=head_bytes
        )
        self._short_bytes = min(head_bytes, max_bytes)
        self._chunk = b""
        self._start = 0
        """The index of the first byte of the chunk that was not read yet."""

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        """Add received bytes. Drain `next_event` after each call, or they pile up."""
        rest = self._chunk[self._start :]
        self._chunk, self._start = rest + chunk if rest else bytes(chunk), 0

    def next_event(self) -> LineEvent | None:
        """Return the next event, or None if more bytes are needed."""
        newline: int | None = None
        if not self.message.length_bytes and not self.message.is_endless:
            # Most lines begin and end in one chunk.
            start = self._start
            if start == len(self._chunk):
                self._chunk, self._start = b"", 0  # not held until the next one
                return None
            if self._chunk[start] in _BLANKS:
                blanks = _LEADING.match(self._chunk, start)
                assert blanks is not None
                start = self._start = blanks.end()
            newline = self._chunk.find(b"\n", start)
            if 0 <= newline <= start + self._short_bytes:
                self._start = newline + 1
                return Line(data=self._chunk[start:newline])
        while (event := self.message.next_event()) is None:
            start, end = self._start, len(self._chunk)
            if start == end or self.message.is_endless:
                self._chunk, self._start = b"", 0
                break
            if newline is None:
                newline = self._chunk.find(b"\n", start)
            ends = newline >= 0
            self._start = newline + 1 if ends else end
            self.message.write(memoryview(self._chunk)[start : newline if ends else end], ends=ends)
            newline = None
        return event
