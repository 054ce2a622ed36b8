"""The decoder of compressed HTTP bodies: gzip and deflate, in bounded pieces."""

from __future__ import annotations

import zlib
from typing import Final

import httpcore2

from playhead.limits import MIB

PIECE_BYTES: Final = MIB
"""The largest piece decoded at once, because a few compressed bytes can become very many."""
_GZIP_BITS: Final = zlib.MAX_WBITS | 16
_GZIP_MAGIC: Final = 0x1F
"""The first byte of a member."""


class Decoder:
    """Decodes gzip or deflate, in pieces of at most `PIECE_BYTES`."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._inflater = zlib.decompressobj(_GZIP_BITS if encoding == "gzip" else zlib.MAX_WBITS)
        self._may_be_bare = encoding == "deflate"
        self._rest = b""
        self.raw_bytes = 0
        """The number of bytes fed so far."""

    def feed(self, chunk: bytes) -> None:
        """Add received bytes. Drain `next_piece` after each call."""
        self.raw_bytes += len(chunk)
        self._rest = chunk

    def next_piece(self) -> bytes:
        """Return the next decoded bytes; empty if more are needed. Raises `httpcore2.RemoteProtocolError`."""
        while data := self._rest:
            self._rest = b""
            if self._inflater.eof:
                if self._encoding != "gzip" or data[0] != _GZIP_MAGIC:
                    break  # padding
                self._inflater = zlib.decompressobj(_GZIP_BITS)  # another member (RFC 1952, section 2.2)
            try:
                piece = self._inflater.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                if not self._may_be_bare:
                    raise httpcore2.RemoteProtocolError(f"the body is not valid {self._encoding}") from error
                # Without the head of zlib, as many servers send it (RFC 9110, section 8.4.1.2).
                self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
                self._rest, piece = data, b""
            else:
                ended = self._inflater.eof
                self._rest = self._inflater.unused_data if ended else self._inflater.unconsumed_tail
            self._may_be_bare = False
            if piece:
                return piece
        return b""

    def end(self) -> None:
        """Check that the encoding has ended with the body. Raises `httpcore2.RemoteProtocolError` if not."""
        if self.raw_bytes and not self._inflater.eof:
            raise httpcore2.RemoteProtocolError(f"the body ended before its {self._encoding} encoding did")


def decoder_for(encoding: str) -> Decoder | None:
    """Return the decoder for a `Content-Encoding`; None for one that is not decoded."""
    name = encoding.strip().lower().removeprefix("x-")
    return Decoder(name) if name in ("gzip", "deflate") else None
