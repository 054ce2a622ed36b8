"""A stream as a thread sees it: a binary file that blocks until bytes arrive."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer


class SeekableStream(Protocol):
    """What a file view needs of a stream."""

    @property
    def position(self) -> int: ...
    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int: ...
    def seek_from_thread(self, offset: int) -> None: ...


class StreamFile(io.RawIOBase):
    """A raw binary file over a stream, for one thread that is not trio's.

    `read` gives what is there, as pipes do; `RangeStream.file` wraps it for whole blocks. Seeking to bytes
    that are in the ring is free; anywhere else starts new reads. The end is known as a place to seek from
    once the resource's size is. Closing the file leaves the stream open.
    """

    def __init__(
        self, stream: SeekableStream, *, size_bytes: Callable[[], int | None], timeout: float | None
    ) -> None:
        self._stream = stream
        self._size_bytes = size_bytes
        self._timeout = timeout

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        """As `RangeStream.readinto`; 0 is the end."""
        self._checkClosed()
        return self._stream.readinto(buffer, self._timeout)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to `offset`. Raises `io.UnsupportedOperation` from the end of a stream of unknown size."""
        self._checkClosed()
        if whence not in {os.SEEK_SET, os.SEEK_CUR, os.SEEK_END}:
            raise ValueError(f"seek: expected a whence of 0, 1 or 2, got {whence}")
        if whence == os.SEEK_CUR:
            offset += self.tell()
        elif whence == os.SEEK_END:
            size = self._size_bytes()
            if size is None:
                raise io.UnsupportedOperation(
                    "seek from the end: the stream's size is not known yet; read to its end first, or "
                    "open it with a size (size_bytes)"
                )
            offset += size
        if offset < 0:
            raise ValueError(f"seek: expected 0 or more, got {offset}")
        if offset != self.tell():
            self._stream.seek_from_thread(offset)
        return offset

    def tell(self) -> int:
        self._checkClosed()
        return self._stream.position
