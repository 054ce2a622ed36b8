"""Bodies of HTTP answers, read whole within a limit, and decoded if the server has compressed them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final, Protocol

import httpcore2

from playhead._core import MessageBuffer
from playhead.errors import LimitError
from playhead.limits import MIB

PIECE_BYTES: Final = MIB
"""The most that is decoded at once: a few bytes can stand for very many."""
_GZIP_BITS: Final = zlib.MAX_WBITS | 16


class Decoder:
    """Decodes gzip or deflate, in pieces of at most `PIECE_BYTES`."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._inflater = zlib.decompressobj(_GZIP_BITS if encoding == "gzip" else zlib.MAX_WBITS)
        self._may_be_bare = encoding == "deflate"
        self._rest = b""
        self.raw_bytes = 0
        """Bytes fed so far."""

    def feed(self, chunk: bytes) -> None:
        """Add received bytes. Drain `next_piece` after each call."""
        self.raw_bytes += len(chunk)
        self._rest = b"" if self._inflater.eof else chunk

    def next_piece(self) -> bytes:
        """The next decoded bytes; empty if more are needed. Raises `httpcore2.RemoteProtocolError`."""
        data, self._rest = self._rest, b""
        if not data:
            return b""
        try:
            piece = self._inflater.decompress(data, PIECE_BYTES)
        except zlib.error as error:
            if not self._may_be_bare:
                raise httpcore2.RemoteProtocolError(f"the body is not valid {self._encoding}") from error
            # Without the head of zlib, as many servers send it (RFC 9110, section 8.4.1.2).
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
            piece = b""
            self._rest = data
        else:
            self._rest = self._inflater.unconsumed_tail
        self._may_be_bare = False
        return piece or self.next_piece()


def decoder_for(encoding: str) -> Decoder | None:
    """The decoder for a `Content-Encoding`; None for one that is left as it is."""
    name = encoding.strip().lower().removeprefix("x-")
    return Decoder(name) if name in ("gzip", "deflate") else None


class ArrivingBody(Protocol):
    """An answer of which the head has arrived."""

    headers: dict[str, str]

    @property
    def raw_bytes(self) -> int: ...

    async def receive(self) -> bytes: ...


async def gather_body(response: ArrivingBody, allowed: int, *, touched: Callable[[], None]) -> bytes:
    """Read the whole body. A long one is never held twice.

    Raises `LimitError` once more than `allowed` bytes are announced or received, encoded or not.
    """
    announced = response.headers.get("content-length", "")
    expected = int(announced) if announced.isdecimal() else 0
    if expected > allowed:
        raise _too_big(allowed, expected)
    whole = b""
    buffer: MessageBuffer | None = None
    got = 0
    while chunk := await response.receive():
        touched()
        got += len(chunk)
        if max(got, response.raw_bytes) > allowed:
            raise _too_big(allowed, max(got, response.raw_bytes))
        if buffer is not None:
            buffer.write(chunk)
        elif not whole:
            whole = chunk
        else:
            buffer = MessageBuffer(expected)
            buffer.write(whole)
            buffer.write(chunk)
            whole = b""
    return whole if buffer is None else buffer.take()


def _too_big(allowed: int, got: int) -> LimitError:
    return LimitError(
        f"expected an HTTP answer of at most {allowed} bytes, got at least {got}; ask for smaller pages, or"
        " raise Limits.message_bytes",
        limit="message_bytes",
        allowed=allowed,
        got=got,
    )
