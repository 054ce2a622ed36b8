"""The openable contents of a result: links that are read in ranges, embedded bytes, and images.

The first two implement `stream.source.Playable`, the only interface that a player needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from playhead._core import check_base64, decode_base64
from playhead.content.formats import Base64Holder, Base64Text, decoded_bytes
from playhead.limits import check_block
from playhead.stream.answer import Answer, Page, pieces
from playhead.stream.options import DEFAULT_OPTIONS, StreamOptions
from playhead.stream.reader import RangeStream, open_stream
from playhead.stream.saving import whole_file

if TYPE_CHECKING:
    from mcp_types import ResourceLink

    from playhead.content.types import FileValue


class Head(NamedTuple):
    """The first bytes behind a URL or a path."""

    data: bytes
    mime_type: str | None
    total_bytes: int | None
    """None if not known."""


class Streams(Protocol):
    """Opens resources; implemented by `Session` and `Web`."""

    def open(
        self, what: ResourceMedia | ResourceLink | str, *, options: StreamOptions | None = None
    ) -> AbstractAsyncContextManager[RangeStream]: ...


class SessionStreams(Streams, Protocol):
    """Opens what results name; implemented by `Session`."""

    async def head(self, address: str, n_bytes: int) -> Head: ...

    async def read_text(self, uri: str) -> str: ...


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
    is_live: bool = False
    """True if the resource still grows, as its link says; `size_bytes` is then its present size."""
    is_local: bool = False
    """True if `uri` is a file of this machine, which may be read if it is below
    `ServerConfig.allow_paths`."""
    validator: str = ""
    """The version of the bytes, as the link names it; empty if it does not. A page cache keeps versions apart
    by it."""
    streams: Streams = field(repr=False, compare=False)

    def open(self, options: StreamOptions | None = None) -> AbstractAsyncContextManager[RangeStream]:
        """Start reading in ranges; see `Session.open`."""
        return self.streams.open(self, options=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesMedia(Base64Holder[Base64Text]):
    """Bytes embedded in a result, held as base64 and decoded page by page."""

    title: str
    mime_type: str | None
    base64: str = field(repr=False)
    block_bytes: int = field(repr=False)
    """`Limits.block_bytes` of the session."""
    uri: str | None = None
    _is_checked: bool = field(default=False, init=False, repr=False, compare=False)

    @property
    def size_bytes(self) -> int:
        """Exact for valid base64."""
        return decoded_bytes(self.payload)

    def open(self, options: StreamOptions | None = None) -> AbstractAsyncContextManager[RangeStream]:
        """Open the bytes as a stream.

        Raises `LimitError`, before decoding, if there are too many, and `Base64Error` for invalid base64.
        """
        base64 = self.payload
        size_bytes = decoded_bytes(base64)
        check_block(size_bytes, allowed=self.block_bytes, what=self.title)
        if not self._is_checked:
            check_base64(base64)
        whole = Answer(offset=0, blobs=(base64,), n_bytes=size_bytes)

        async def read_range(start: int, end: int) -> Page:
            blobs = tuple(piece for _, piece in pieces(whole, start, end))
            return Page(blobs=blobs, mime_type=self.mime_type, total_bytes=size_bytes)

        return open_stream(
            read_range, options=options or DEFAULT_OPTIONS, size_bytes=size_bytes, strategy_name="held"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageMedia(Base64Holder[Base64Text]):
    """An image embedded in a result, held as base64. Its content has not been checked."""

    mime_type: str
    base64: str = field(repr=False)
    block_bytes: int = field(repr=False)
    """`Limits.block_bytes` of the session."""

    @property
    def size_bytes(self) -> int:
        """Exact for valid base64."""
        return decoded_bytes(self.payload)

    def data(self) -> bytes:
        """Decode the image, anew on each call.

        Raises `LimitError`, before decoding, if there are too many bytes, and `Base64Error` for invalid
        base64.
        """
        check_block(self.size_bytes, allowed=self.block_bytes, what=f"an image ({self.mime_type})")
        return decode_base64(self.payload)

    async def save(self, path: str | Path) -> None:
        """Write the image to `path`, which appears only when it is complete.

        Raises what `data` raises, `OSError` if the directory can't be written to, and `UsageError` if `path`
        is something that a file must not replace. No file is left behind after a failure or cancellation.
        """
        view = memoryview(self.data())
        async with whole_file(Path(path)) as file:
            while view:
                view = view[await trio.to_thread.run_sync(file.write, view) :]


def checked(media: BytesMedia) -> BytesMedia:
    """Note that the base64 of `media` is valid. To check it takes as long as to decode it."""
    object.__setattr__(media, "_is_checked", True)  # frozen to its users
    return media
