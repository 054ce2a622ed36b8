"""What a read of a range gives back, whoever did the reading."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The answer to one read of `[start, end)`, in bytes from 0.

    `blobs` are in the order in which the server sent them: `str` is base64 text that nobody has decoded
    yet (it is decoded straight into the ring), `bytes` are plain (an HTTP range, a test).
    An empty tuple means empty `contents`: a proof of the end.
    """

    blobs: tuple[str | bytes, ...]
    text_items: int = 0
    """How many text contents came: none is expected where bytes are read."""
    mime_type: str | None = None
    total_bytes: int | None = None
    """The resource's size where the answer says it (Content-Range): a hint, like `ResourceLink.size`."""


ReadRange = Callable[[int, int], Awaitable[Page]]
"""Reads `[start, end)`. Raises `errors.TransportError` where a retry may help, `errors.RangePastEndError`
as a proof of the end, and any other `errors.RemoteError` as the server's final answer. Cancelling it
cancels the request on the wire."""
