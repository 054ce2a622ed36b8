"""The two ends of a byte stream as other layers see them: what can be opened, and what can be read.

The player accepts anything that looks like this; it knows neither sessions nor planners.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from typing_extensions import Buffer


@runtime_checkable
class BlockingReader(Protocol):
    """Bytes that a thread reads, in order, while they are still arriving."""

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        """Block until at least one byte is there and give what is there (never waits to fill `buffer`).

        Returns the number of bytes; 0 is the end, and nothing else is. Raises `TimeoutError` after
        `timeout` seconds without a byte, and the stream's own error after the good bytes before it.
        """
        ...


@runtime_checkable
class Media(Protocol):
    """Something that can be played: opened for each time it is."""

    @property
    def title(self) -> str: ...
    @property
    def mime_type(self) -> str | None: ...
    @property
    def uri(self) -> str | None: ...
    @property
    def size_bytes(self) -> int | None: ...

    def open(self) -> AbstractAsyncContextManager[BlockingReader]:
        """Start reading; leaving the context stops every read in flight and closes the reader."""
        ...


class MediaAround:
    """What `inner` is, to everybody who asks; how it is opened is left to the class that extends this."""

    def __init__(self, inner: Media) -> None:
        self.inner = inner

    @property
    def title(self) -> str:
        return self.inner.title

    @property
    def mime_type(self) -> str | None:
        return self.inner.mime_type

    @property
    def uri(self) -> str | None:
        return self.inner.uri

    @property
    def size_bytes(self) -> int | None:
        return self.inner.size_bytes
