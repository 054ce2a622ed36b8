"""What a result holds that can be opened: links that are read in ranges, and bytes that came along.

Both look like `stream.source.Media`, which is all that a player knows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from playhead._core import decode_base64
from playhead.errors import LimitError
from playhead.stream.options import DEFAULT_OPTIONS, StreamOptions
from playhead.stream.page import Page
from playhead.stream.reader import RangeStream, open_stream


class Streams(Protocol):
    """Who opens a resource (client.session.Session)."""

    def open(
        self, what: ResourceMedia | str, *, options: StreamOptions | None = None
    ) -> AbstractAsyncContextManager[RangeStream]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceMedia:
    """A link to a resource of the session's server."""

    uri: str
    title: str
    description: str | None = None
    mime_type: str | None = None
    size_bytes: int | None = None
    """As announced; a hint, checked against what comes."""
    streams: Streams = field(repr=False, compare=False)

    def open(self, options: StreamOptions | None = None) -> AbstractAsyncContextManager[RangeStream]:
        """Start reading in ranges; see `Session.open`."""
        return self.streams.open(self, options=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesMedia:
    """Bytes that came inside a result, still as base64: decoded when opened, for as long as it is open."""

    title: str
    mime_type: str | None
    base64: str = field(repr=False)
    block_bytes: int = field(repr=False)
    """`Limits.block_bytes` of the session it came from."""
    uri: str | None = None

    @property
    def size_bytes(self) -> int:
        """Exact for base64 that is valid."""
        return len(self.base64) // 4 * 3 - self.base64[-2:].count("=")

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[RangeStream]:
        """The bytes as a stream like any other.

        Raises `LimitError` before decoding where there are too many, `Base64Error` where the text is not
        base64.
        """
        if self.size_bytes > self.block_bytes:
            raise LimitError(
                f"{self.title}: {self.size_bytes} bytes in one block; {self.block_bytes} are allowed"
                " (Limits.block_bytes)",
                limit="block_bytes",
                allowed=self.block_bytes,
                got=self.size_bytes,
            )
        data = memoryview(decode_base64(self.base64))

        async def read_range(start: int, end: int) -> Page:
            part = bytes(data[start:end])
            return Page(blobs=(part,) if part else (), mime_type=self.mime_type, total_bytes=len(data))

        async with open_stream(
            read_range, options=options or DEFAULT_OPTIONS, size_bytes=len(data), strategy_name="held"
        ) as stream:
            yield stream
