"""How many JSON values an event of an event stream holds, counted while it arrives and before it is parsed.

The SDK parses a whole event into Python objects: 64 MiB of `[],[],…` would become more than a gigabyte of
them. Commas and opening brackets outside strings are counted, as `messages.check_structure` does for whole
messages; what is in a string (a page's base64, a text) costs nothing. Any chunking gives the same counts.
"""

from __future__ import annotations


class EventValues:
    """Fed with the bytes of a `text/event-stream`."""

    def __init__(self) -> None:
        self.count = 0
        """Commas and opening brackets of the present event so far."""
        self.most = 0
        """The most that any event has had."""
        self._in_string = False
        self._line_is_empty = True
        self._held = b""
        """A backslash or a carriage return at the end of a chunk: what it means, the next byte decides."""

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
            # No JSON string goes over a line's end, so an unpaired quote hides nothing after it.
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
