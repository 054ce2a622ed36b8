"""Decode server-sent events, following section 9.2.6 of the WHATWG's HTML standard.

Theory of operation. Bytes go in with `feed`, whole events come out; any chunking of the same bytes gives the
same events. Each byte is looked at once. A line ends with CR, LF or both; a byte order mark at the very
beginning is ignored; lines that begin with a colon are comments; a blank line ends an event; an event cut off
by the end of the stream is dropped. `id` and `retry` serve reconnection, which no model's stream supports,
and are dropped too.

A peer can make this hold at most one event of `max_bytes`. The SDKs' own decoders have no bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from playhead.errors import LimitError
from playhead.limits import DEFAULT_LIMITS

_LINE_END = re.compile(rb"[\r\n]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event. `data` is its data lines, joined by newlines; `event` is its type, "" if it has none."""

    data: str
    event: str = ""


class EventDecoder:
    """Splits the bytes of a `text/event-stream` into events. No clock, no stream.

    Args:
        max_bytes: the longest event, including all its lines (`limits.message_bytes`).
    """

    def __init__(self, *, max_bytes: int = DEFAULT_LIMITS.message_bytes) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._data: list[str] = []
        self._event = ""
        self._held_bytes = 0
        """The size of the current event, without the unfinished line."""
        self._skip_newline = False
        """The last byte was a CR: a following LF belongs to it."""
        self._at_start = True

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Take a chunk, and return the events that it completes.

        Raises `LimitError` (`limit` is `"message_bytes"`) if an event is longer than allowed; nothing can be
        fed after that.
        """
        events: list[ServerEvent] = []
        start = 0
        for match in _LINE_END.finditer(chunk):
            end = match.start()
            if self._skip_newline and end == start and chunk[end] == 0x0A:
                self._skip_newline = False
                start = end + 1
                continue
            self._take(chunk[start:end])
            self._skip_newline = chunk[end] == 0x0D
            start = end + 1
            event = self._end_line()
            if event is not None:
                events.append(event)
        if start < len(chunk):
            self._skip_newline = False
            self._take(chunk[start:])
        return events

    def _take(self, part: bytes) -> None:
        self._line += part
        got = self._held_bytes + len(self._line)
        if got > self._max_bytes:
            self._line = bytearray()
            self._data = []
            raise LimitError(
                f"expected an event of at most {self._max_bytes} bytes in the stream (limit message_bytes),"
                f" got {got} or more; raise Limits.message_bytes if you trust the provider",
                limit="message_bytes",
                allowed=self._max_bytes,
                got=got,
            )

    def _end_line(self) -> ServerEvent | None:
        raw = bytes(self._line)
        self._line = bytearray()
        if self._at_start:
            self._at_start = False
            raw = raw.removeprefix(_BYTE_ORDER_MARK)
        if not raw:
            return self._end_event()
        # An invalid byte becomes U+FFFD, as the standard says: the JSON around it can still be read.
        name, _, value = raw.decode("utf-8", errors="replace").partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
                # Plus one per line, or a flood of empty lines would cost nothing.
                self._held_bytes += len(raw) + 1
            case "event":
                self._event = value
            case _:
                pass  # comments (no name), id, retry, and undefined fields
        return None

    def _end_event(self) -> ServerEvent | None:
        data, event = self._data, self._event
        self._data, self._event, self._held_bytes = [], "", 0
        return ServerEvent(data="\n".join(data), event=event) if data else None
