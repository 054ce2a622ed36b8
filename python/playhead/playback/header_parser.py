"""A parser of headers on a stream that is read in any pieces."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from playhead.errors import SeekError

if TYPE_CHECKING:
    from playhead.playback.decoder_source import DecoderSource


class HeaderParser:
    """Runs a parser of headers on a stream that is read in any pieces.

    The parser is a generator. It yields the number of bytes that it needs next, and is sent them; or, as a
    negative number, the bytes that it skips. It returns at the end of the headers, which is then `offset`.
    """

    def __init__(self, parser: Generator[int, bytes, None]) -> None:
        self._parser = parser
        self._wanted = next(parser)
        self._data = bytearray()
        self.offset = 0
        """Offset of the next byte that the parser wants or skips."""
        self.is_done = False

    def feed(self, offset: int, data: bytes) -> None:
        """Take bytes of the stream at `offset`. Those that the parser skips may be missing."""
        while not self.is_done:
            if self._wanted < 0:
                self.offset -= self._wanted
                self._send(b"")
                continue
            begin = self.offset + len(self._data) - offset
            if begin < 0 or (begin >= len(data) and self._wanted > len(self._data)):
                return
            self._data += data[begin : begin + self._wanted - len(self._data)]
            if len(self._data) < self._wanted:
                return
            self.offset += self._wanted
            taken = bytes(self._data)
            self._data.clear()
            self._send(taken)

    def _send(self, data: bytes) -> None:
        try:
            self._wanted = self._parser.send(data)
        except StopIteration:
            self.is_done = True


def finish_headers(headers: HeaderParser, source: DecoderSource, name: str) -> None:
    """Read the rest of the headers, which the decoder may not have needed yet. Raises `SeekError`."""
    if headers.is_done:
        return
    source.restart(headers.offset)
    while source.take():
        if headers.is_done:
            return
    raise not_ready(name)


def not_ready(name: str) -> SeekError:
    """Return the error for a stream whose headers do not allow to seek."""
    return SeekError(
        f"expected complete {name} headers to seek by, got none so far: the file is damaged or unusual; it "
        "plays from its beginning only"
    )
