"""Split a `text/event-stream` body (HTML standard, section 9.2) into the messages in it.

Theory of operation. Bytes go in with `feed`, which returns the messages that are complete. Any chunking of
the same bytes gives the same messages. No clock, no connection, no JSON: an event's data is bytes, so an
invalid one spoils its own event only.

* A line ends with CR, LF or both, a byte order mark at the start of the stream is skipped, and the data of an
  unfinished event at the end of the stream is nobody's.
* Only events of the type `message`, the default, are delivered, unless `every_type` is set; one without data
  only names an id.
* The data of one event is at most `max_bytes`. A longer event is reported once and skipped up to its end. A
  line of another field is at most `FIELD_BYTES`; a longer one is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from playhead._core import MessageBuffer
from playhead.limits import KIB

HEAD_BYTES: Final = 256
"""Bytes saved of the beginning of an unfinished event's data: servers put the id in the first 60."""
FIELD_BYTES: Final = 4 * KIB
"""Length of the value of `id`, `event` or `retry` from which the line is ignored."""
RETRY_MS_MAX: Final = 60_000
"""A server that names a longer wait has lost its listener by then."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LF: Final = 0x0A
_BLANK: Final = 0x20
_NAME_BYTES: Final = 5
"""Length of the longest field name, `event` or `retry`."""
_IGNORED: Final = b""


@dataclass(frozen=True, slots=True)
class EventData:
    """The data of one event."""

    data: bytes


@dataclass(frozen=True, slots=True)
class OverlongEvent:
    """An event has more data than `max_bytes`. It is skipped."""

    head: bytes


class EventStream:
    """The parser of a stream, and of the streams that resume it (`restart`).

    Args:
        max_bytes: the most data of one event to collect (`limits.message_bytes`).
        every_type: deliver the events of every type.
    """

    def __init__(self, *, max_bytes: int, every_type: bool = False) -> None:
        self._max_bytes = max_bytes
        self._every_type = every_type
        self._head_bytes = min(HEAD_BYTES, max_bytes)
        self.last_event_id = b""
        """The id of the last complete event, for `Last-Event-ID`; empty without one."""
        self.retry_seconds: float | None = None
        """The wait before the stream is opened again, if the server named one."""
        self._complete: list[EventData | OverlongEvent] = []
        self.restart()

    def restart(self) -> None:
        """Begin another stream. What was unfinished of the last one is dropped."""
        self.head = b""
        """The beginning of the unfinished event's data, at most `HEAD_BYTES`; empty between two events."""
        self._opening: bytes | None = b""
        """Bytes that may become a byte order mark; None after the first bytes."""
        self._after_cr = False
        # The unfinished line: its name is unknown while `_start` is collected.
        self._start = b""
        self._name: bytes | None = None
        self._value = b""
        self._is_value_begun = False
        # The unfinished event.
        self._id = self.last_event_id
        self._type = b""
        self._data: MessageBuffer | None = None
        self._is_overlong = False

    @property
    def data_bytes(self) -> int:
        """Data received of the unfinished event."""
        return 0 if self._data is None else len(self._data)

    def feed(self, chunk: bytes) -> list[EventData | OverlongEvent]:
        """Add received bytes and return what they complete, in order."""
        if self._opening is not None:
            chunk = self._opening + chunk
            if len(chunk) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(chunk):
                self._opening = chunk
                return []
            self._opening = None
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
        at, end = 0, len(chunk)
        lf = cr = -1
        view = memoryview(chunk)
        while at < end:
            if self._after_cr:
                self._after_cr = False
                if chunk[at] == _LF:
                    at += 1
                    continue
            # Each is searched for once in the chunk, not once in each line.
            if lf < at and (lf := chunk.find(b"\n", at)) < 0:
                lf = end
            if cr < at and (cr := chunk.find(b"\r", at)) < 0:
                cr = end
            stop = min(lf, cr)
            if stop > at:
                self._add(view[at:stop])
            if stop < end:
                self._end_line()
                self._after_cr = stop == cr
            at = stop + 1
        events, self._complete = self._complete, []
        return events

    # --- lines ---------------------------------------------------------------------------------------

    def _add(self, piece: memoryview) -> None:
        """Add a piece of the current line."""
        if self._name is None:
            needed = _NAME_BYTES + 1 - len(self._start)
            self._start += bytes(piece[:needed])
            piece = piece[needed:]
            name, colon, value = self._start.partition(b":")
            if not colon and len(self._start) <= _NAME_BYTES:
                return
            self._name = name if colon else _IGNORED  # a comment has an empty name, too
            if value:
                self._add_value(memoryview(value))
        if piece:
            self._add_value(piece)

    def _add_value(self, piece: memoryview) -> None:
        if not self._is_value_begun:
            self._is_value_begun = True
            if self._name == b"data":
                self._begin_data()
            if piece[0] == _BLANK:
                piece = piece[1:]
        if self._name == b"data":
            self._add_data(piece)
        elif self._name in (b"id", b"event", b"retry"):
            self._value += bytes(piece[: FIELD_BYTES + 1 - len(self._value)])

    def _end_line(self) -> None:
        name = self._start if self._name is None else self._name
        value = self._value
        if not name and self._name is None:
            self._end_event()
        elif name == b"data":
            if not self._is_value_begun:
                self._begin_data()
        elif len(value) <= FIELD_BYTES:
            if name == b"id" and b"\0" not in value:
                self._id = value
            elif name == b"event":
                self._type = value
            elif name == b"retry" and value.isdigit():
                self.retry_seconds = min(int(value), RETRY_MS_MAX) / 1000
        self._start, self._name, self._value, self._is_value_begun = b"", None, b"", False

    # --- events --------------------------------------------------------------------------------------

    def _begin_data(self) -> None:
        """Begin a line of data; it continues the lines before it after a newline."""
        if self._data is not None:
            self._add_data(memoryview(b"\n"))
        elif not self._is_overlong:
            self._data = MessageBuffer()

    def _add_data(self, piece: memoryview) -> None:
        if self._data is None:  # overlong
            return
        if (missing := self._head_bytes - len(self.head)) > 0:
            self.head += bytes(piece[:missing])
        if len(self._data) + len(piece) <= self._max_bytes:
            self._data.write(piece)
            return
        self._is_overlong = True
        self._data = None
        if self._is_delivered():
            self._complete.append(OverlongEvent(self.head))

    def _is_delivered(self) -> bool:
        return self._every_type or self._type in (b"", b"message")

    def _end_event(self) -> None:
        self.last_event_id = self._id
        if self._data and self._is_delivered():
            self._complete.append(EventData(self._data.take()))
        self._type, self._data, self._is_overlong, self.head = b"", None, False, b""
