"""Split a `text/event-stream` body (HTML standard, section 9.2) into the messages in it.

Add received bytes with `feed`, and call `next_event` until it returns None, which means "not yet". It returns
the data of each event in the classes of `framing`, as if the data were a line. Any chunking of the same bytes
gives the same events. The data stays bytes: invalid JSON or UTF-8 in one event does not affect the others.

* A line ends with CR, LF or both. A byte order mark at the start of the stream is skipped. An event that is
  unfinished at the end of the stream is dropped.
* `next_event` returns only events of the type `message`, the default, unless `every_type` is set. It returns
  no event without data, but the id of such an event counts.
* The data of one event is at most `max_bytes`. `OverlongLine` reports a longer event, and the parser skips
  the rest of it. After an `EndlessLine` it parses nothing more.
"""

from __future__ import annotations

from typing import Final

from playhead.limits import KIB
from playhead.protocol.framing import ENDLESS_FACTOR, Assembly, EndlessLine, LineEvent

HEAD_BYTES: Final = 256
"""The length of an event's data at which the caller gets its beginning (`LongLine`) and may skip the rest.
Most servers write the id in the first 60 bytes."""
FIELD_BYTES: Final = 4 * KIB
"""The longest value of `id`, `event` or `retry`; a line with a longer one is ignored."""
RETRY_MS_MAX: Final = 60_000
"""Limits the wait that a server may demand. A longer one would look like a lost connection."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LF: Final = 0x0A
_SPACE: Final = 0x20
_MAX_NAME_BYTES: Final = 5
"""Length of the longest field name, `event` or `retry`."""
_IGNORED_NAME: Final = b""
"""Stands for the name of a line to ignore: a comment, whose name is empty, or a name longer than any
known."""


class EventStream:
    """The parser of a stream, and of the streams that resume it (`restart`).

    Args:
        max_bytes: the most data of one event to collect (`limits.message_bytes`).
        every_type: deliver the events of every type.
    """

    def __init__(self, *, max_bytes: int, every_type: bool = False) -> None:
        self._every_type = every_type
        self.message = Assembly(
            max_bytes=max_bytes, allowed_bytes=ENDLESS_FACTOR * max_bytes, head_bytes=HEAD_BYTES
        )
        self.last_event_id = b""
        """The id of the last complete event, for the header `Last-Event-ID`; empty if there is none."""
        self.retry_seconds: float | None = None
        """The wait before the stream is opened again, if the server named one."""
        self.restart()

    def restart(self) -> None:
        """Begin another stream. An unfinished event of the last one is dropped."""
        self.message.drop()
        self.message.is_endless = False
        self._chunk, self._at = b"", 0
        self._lf = self._cr = -1
        """The places of the next LF and CR in the chunk: its end if it has none, and -1 before the search."""
        self._first_bytes: bytes | None = b""
        """Bytes that may become a byte order mark; None after the first bytes."""
        self._after_cr = False
        # The unfinished line: the name of its field, once `_line_head` is long enough to show it, and the
        # value.
        self._line_head = b""
        self._field_name: bytes | None = None
        self._field_value = b""
        self._has_value = False
        # The unfinished event.
        self._event_id = self.last_event_id
        self._event_type = b""
        self._has_data = False

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        """Add received bytes. Drain `next_event` after each call."""
        data = bytes(chunk)
        if self._first_bytes is not None:
            data = self._first_bytes + data
            if len(data) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(data):
                self._first_bytes = data
                return
            self._first_bytes = None
            data = data.removeprefix(_BYTE_ORDER_MARK)
        self._chunk, self._at, self._lf, self._cr = data, 0, -1, -1

    def next_event(self) -> LineEvent | None:
        """Return the next event, or None if more bytes are needed."""
        while True:
            event = self.message.next_event()
            if event is not None:
                if self._is_delivered() or isinstance(event, EndlessLine):
                    return event
            elif self._at >= len(self._chunk) or self.message.is_endless:
                self._chunk, self._at = b"", 0  # frees the chunk
                return None
            else:
                self._read_line_piece()

    def _read_line_piece(self) -> None:
        """Read up to the end of the line, or of the chunk."""
        chunk, at, end = self._chunk, self._at, len(self._chunk)
        if self._after_cr:  # an LF right after a CR belongs to the same line end
            self._after_cr = False
            if chunk[at] == _LF:
                self._at = at + 1
                return
        # The search for LF, and that for CR, pass over each chunk once, however many lines it has.
        if self._lf < at:
            self._lf = _find_or_end(chunk, b"\n", at)
        if self._cr < at:
            self._cr = _find_or_end(chunk, b"\r", at)
        stop = min(self._lf, self._cr)
        if stop > at:
            self._add_to_line(memoryview(chunk)[at:stop])
        if stop < end:
            self._end_line()
            self._after_cr = stop == self._cr
        self._at = stop + 1

    # --- lines ---------------------------------------------------------------------------------------

    def _add_to_line(self, piece: memoryview) -> None:
        """Add a piece of the current line."""
        if self._field_name is None:
            # Collect enough bytes to hold the longest known name and its colon.
            needed = _MAX_NAME_BYTES + 1 - len(self._line_head)
            self._line_head += bytes(piece[:needed])
            piece = piece[needed:]
            name, colon, value = self._line_head.partition(b":")
            if not colon and len(self._line_head) <= _MAX_NAME_BYTES:
                return  # the name is not complete yet
            self._field_name = name if colon else _IGNORED_NAME
            if value:
                self._add_to_value(memoryview(value))
        if piece:
            self._add_to_value(piece)

    def _add_to_value(self, piece: memoryview) -> None:
        if not self._has_value:
            self._has_value = True
            if self._field_name == b"data":
                self._begin_data()
            if piece[0] == _SPACE:  # one space after the colon is not part of the value
                piece = piece[1:]
        if self._field_name == b"data":
            self.message.write(piece, ends=False)
        elif self._field_name in (b"id", b"event", b"retry"):
            self._field_value += bytes(piece[: FIELD_BYTES + 1 - len(self._field_value)])

    def _end_line(self) -> None:
        name = self._line_head if self._field_name is None else self._field_name
        value = self._field_value
        if not name and self._field_name is None:  # an empty line, not a comment
            self._end_event()
        elif name == b"data":
            if not self._has_value:
                self._begin_data()
        elif len(value) <= FIELD_BYTES:
            if name == b"id" and b"\0" not in value:
                self._event_id = value
            elif name == b"event":
                self._event_type = value
            elif name == b"retry" and value.isdigit():
                self.retry_seconds = min(int(value), RETRY_MS_MAX) / 1000
        self._line_head, self._field_name, self._field_value, self._has_value = b"", None, b"", False

    # --- events --------------------------------------------------------------------------------------

    def _begin_data(self) -> None:
        """Begin a line of data. A newline joins it to the data lines before it."""
        if self._has_data:
            self.message.write(b"\n", ends=False)
        self._has_data = True

    def _is_delivered(self) -> bool:
        return self._every_type or self._event_type in (b"", b"message")

    def _end_event(self) -> None:
        self.last_event_id = self._event_id
        if self.message.length_bytes and self._is_delivered():
            self.message.write(b"", ends=True)
        else:
            self.message.drop()
        self._event_type, self._has_data = b"", False


def _find_or_end(chunk: bytes, end: bytes, at: int) -> int:
    found = chunk.find(end, at)
    return len(chunk) if found < 0 else found
