"""What a result holds that can be opened: links that are read in ranges, bytes that came along, and images.

The first two look like `stream.source.Media`, which is all that a player knows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import trio
from mcp_types import ResourceLink

from playhead._core import decode_base64
from playhead.errors import LimitError
from playhead.results.sizes import decoded_bytes
from playhead.stream.options import DEFAULT_OPTIONS, StreamOptions
from playhead.stream.page import Page
from playhead.stream.reader import RangeStream, open_stream
from playhead.stream.saving import whole_file


class Streams(Protocol):
    """Who opens a resource (client.session.Session)."""

    def open(
        self, what: ResourceMedia | ResourceLink | str, *, options: StreamOptions | None = None
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
        return decoded_bytes(self.base64)

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[RangeStream]:
        """The bytes as a stream like any other.

        Raises `LimitError` before decoding where there are too many, `Base64Error` where the text is not
        base64.
        """
        data = memoryview(_decoded(self.base64, what=self.title, allowed=self.block_bytes))

        async def read_range(start: int, end: int) -> Page:
            part = bytes(data[start:end])
            return Page(blobs=(part,) if part else (), mime_type=self.mime_type, total_bytes=len(data))

        async with open_stream(
            read_range, options=options or DEFAULT_OPTIONS, size_bytes=len(data), strategy_name="held"
        ) as stream:
            yield stream


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageMedia:
    """An image that came inside a result, still as base64. Nobody has looked whether it is what it says."""

    mime_type: str
    base64: str = field(repr=False)
    block_bytes: int = field(repr=False)
    """`Limits.block_bytes` of the session it came from."""

    @property
    def size_bytes(self) -> int:
        """Exact for base64 that is valid."""
        return decoded_bytes(self.base64)

    def data(self) -> bytes:
        """The image's bytes, decoded anew each time.

        Raises `LimitError` before decoding where there are too many, `Base64Error` where the text is not
        base64.
        """
        return _decoded(self.base64, what=f"an image ({self.mime_type})", allowed=self.block_bytes)

    async def save(self, path: str | Path) -> None:
        """Write the image to `path`, which appears only when it is whole.

        Raises what `data` does, `OSError` where the folder can't be written, and `UsageError` where `path` is
        something that a file must not replace. Failed or cancelled: no file is left behind.
        """
        view = memoryview(self.data())
        async with whole_file(Path(path)) as file:
            while view:
                view = view[await trio.to_thread.run_sync(file.write, view) :]


def _decoded(base64: str, *, what: str, allowed: int) -> bytes:
    size_bytes = decoded_bytes(base64)
    if size_bytes > allowed:
        raise LimitError(
            f"{what}: {size_bytes} bytes in one block; {allowed} are allowed (Limits.block_bytes)",
            limit="block_bytes",
            allowed=allowed,
            got=size_bytes,
        )
    return decode_base64(base64)
