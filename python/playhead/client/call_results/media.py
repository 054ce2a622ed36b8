"""The openable contents of a result: links that are read in ranges, embedded bytes, and images.

The first two implement `stream.source.Playable`, the only interface that a player needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import trio
from mcp_types import ResourceLink

from playhead._core import decode_base64
from playhead.content.blocks import FileValue
from playhead.content.formats import decoded_bytes
from playhead.errors import LimitError
from playhead.stream.answer import Page
from playhead.stream.options import DEFAULT_OPTIONS, StreamOptions
from playhead.stream.reader import RangeStream, open_stream
from playhead.stream.saving import whole_file


class Streams(Protocol):
    """Opens resources; implemented by `Session`."""

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
    """The announced size: a hint, checked against the bytes received."""
    tool: str | None = None
    """The tool whose result has the link. Behind a gateway its name tells which server wrote the link."""
    queue_arguments: Mapping[str, object] | None = None
    """Set for the chunks that `tool`, a queue tool, hands out for these arguments, not a resource."""
    file: FileValue | None = None
    """Set for a file that the server authorises for download (SEP-2631): no resource has its URI."""
    streams: Streams = field(repr=False, compare=False)

    def open(self, options: StreamOptions | None = None) -> AbstractAsyncContextManager[RangeStream]:
        """Start reading in ranges; see `Session.open`."""
        return self.streams.open(self, options=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesMedia:
    """Bytes embedded in a result, held as base64 and decoded only while open."""

    title: str
    mime_type: str | None
    base64: str = field(repr=False)
    block_bytes: int = field(repr=False)
    """`Limits.block_bytes` of the session."""
    uri: str | None = None

    @property
    def size_bytes(self) -> int:
        """Exact for valid base64."""
        return decoded_bytes(self.base64)

    @asynccontextmanager
    async def open(self, options: StreamOptions | None = None) -> AsyncIterator[RangeStream]:
        """Open the bytes as a stream.

        Raises `LimitError`, before decoding, if there are too many, and `Base64Error` for invalid base64.
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
    """An image embedded in a result, held as base64. Its content has not been checked."""

    mime_type: str
    base64: str = field(repr=False)
    block_bytes: int = field(repr=False)
    """`Limits.block_bytes` of the session."""

    @property
    def size_bytes(self) -> int:
        """Exact for valid base64."""
        return decoded_bytes(self.base64)

    def data(self) -> bytes:
        """Decode the image, anew on each call.

        Raises `LimitError`, before decoding, if there are too many bytes, and `Base64Error` for invalid
        base64.
        """
        return _decoded(self.base64, what=f"an image ({self.mime_type})", allowed=self.block_bytes)

    async def save(self, path: str | Path) -> None:
        """Write the image to `path`, which appears only when it is complete.

        Raises what `data` raises, `OSError` if the directory can't be written to, and `UsageError` if `path`
        is something that a file must not replace. No file is left behind after a failure or cancellation.
        """
        view = memoryview(self.data())
        async with whole_file(Path(path)) as file:
            while view:
                view = view[await trio.to_thread.run_sync(file.write, view) :]


def _decoded(base64: str, *, what: str, allowed: int) -> bytes:
    size_bytes = decoded_bytes(base64)
    if size_bytes > allowed:
        raise LimitError(
            f"{what}: expected at most {allowed} bytes in one block (Limits.block_bytes), got {size_bytes}",
            limit="block_bytes",
            allowed=allowed,
            got=size_bytes,
        )
    return decode_base64(base64)
