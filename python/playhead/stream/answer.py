"""Answers to ranged reads, measured but not yet decoded: offset, length, and claim of an end.

The length of base64 text is arithmetic, so limits are checked before anything is decoded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from playhead._core import decode_base64
from playhead.content.formats import decoded_bytes
from playhead.errors import Base64Error, LimitError, TextContentError

DONE_BYTES = b"[DONE]"
DONE_TEXT = "W0RPTkVd"
"""The base64 of `[DONE]`, as a whole blob: an end marker of the reference system's protocol."""

EndedBy = Literal["empty", "done", "416", "size", "error", "whole"]
"""The evidence that ended a stream: empty contents or an empty blob; a `[DONE]` blob; an answer that the
range is past the end; the announced size; the same error repeatedly while the bytes before were served; one
answer that held the whole resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The answer to one read of `[start, end)`, in bytes from 0.

    `blobs` are in the order in which the server sent them: `str` is base64 text that is decoded straight into
    the ring, `bytes` are plain (an HTTP range, a test). An empty tuple means empty `contents`: a claim that
    the resource ends at `start`.
    """

    blobs: tuple[str | bytes, ...]
    text_items: int = 0
    """Number of text contents; none is expected in a read of bytes."""
    text: str = ""
    """The beginning of the first of them: a message in place of bytes."""
    mime_type: str | None = None
    total_bytes: int | None = None
    """The resource's size in the answer (Content-Range): exact, unlike `ResourceLink.size`."""


ReadRange = Callable[[int, int], Awaitable[Page]]
"""Reads `[start, end)`. Raises `errors.RangePastEndError` as a claim of the end, `errors.TransportError`
if a retry may help, and any other `errors.RemoteError` as the server's answer. Cancelling it cancels the
request on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Bytes `[offset, offset + n_bytes)` as a server sent them; no blob is empty."""

    offset: int
    blobs: tuple[str | bytes, ...]
    n_bytes: int
    claims_end: EndedBy | None = None
    """The claim that nothing follows `end`, if any. Always set if `n_bytes` is 0."""

    @property
    def end(self) -> int:
        return self.offset + self.n_bytes


def blob_bytes(blob: str | bytes) -> int:
    """Return the number of bytes that a blob holds, decoded."""
    return len(blob) if isinstance(blob, bytes) else decoded_bytes(blob)


def measure(
    page: Page, *, offset: int, size_bytes: int | None, block_bytes: int, ranged: bool = True
) -> Answer:
    """Measure `page`, the answer to a read at `offset`.

    A `[DONE]` blob, the last of its page, claims the end. It is data at offset 0 of a resource with an
    announced size of 6, and in a read without a range (`ranged=False`).

    Raises `TextContentError` for text where bytes are expected, and `LimitError` for more than
    `block_bytes` decoded bytes; both before decoding. Both are the server's fault.
    """
    if page.text_items:
        raise TextContentError(
            f"page at byte {offset}: expected blob contents, got {page.text_items} text contents; "
            "ask the server's author to send blobs, or read it with `read_resource`",
            offset=offset,
        )
    sizes = [blob_bytes(blob) for blob in page.blobs]
    total = sum(sizes)
    if total > block_bytes:
        raise LimitError(
            f"page at byte {offset}: expected at most {block_bytes} bytes, got {total}; "
            "raise Limits.block_bytes if the server may send that much at once",
            limit="block_bytes",
            allowed=block_bytes,
            got=total,
        )
    blobs = [blob for blob, size in zip(page.blobs, sizes, strict=True) if size]
    # A tuple: membership in a set would hash a whole page (72 us per 100 KiB).
    is_done = ranged and bool(blobs) and blobs[-1] in (DONE_TEXT, DONE_BYTES)
    if is_done and offset == 0 and total == size_bytes == len(DONE_BYTES):
        is_done = False
    if is_done:
        blobs.pop()
        total -= len(DONE_BYTES)
    claims_end: EndedBy | None = "done" if is_done else None if total else "empty"
    return Answer(offset=offset, blobs=tuple(blobs), n_bytes=total, claims_end=claims_end)


def pieces(answer: Answer, start: int, stop: int) -> Iterator[tuple[int, str | bytes]]:
    """Cut `answer` to the bytes `[start, stop)`. Yields pairs of an offset and the piece to write there.

    Base64 can only be cut between its groups of three bytes, so the first piece may begin up to two bytes
    before `start`; the last never goes past `stop`. Whole blobs are not copied.
    """
    base = answer.offset
    for blob in answer.blobs:
        size = blob_bytes(blob)
        low, high = max(0, start - base), min(size, stop - base)
        if low < high:
            if (low, high) == (0, size):
                yield base, blob
            elif isinstance(blob, bytes):
                yield base + low, blob[low:high]
            else:
                yield from _cut_text(blob, base, low, high, size)
        base += size


def _cut_text(blob: str, base: int, low: int, high: int, size: int) -> Iterator[tuple[int, str | bytes]]:
    low -= low % 3
    whole = high if high == size else high - high % 3
    if whole > low:
        yield base + low, blob[low // 3 * 4 : -(-whole // 3) * 4]
    if high > whole:
        group = blob[whole // 3 * 4 : whole // 3 * 4 + 4]
        yield base + whole, decode_base64(group)[: high - whole]


def leading(answer: Answer, n_bytes: int) -> bytes:
    """Return the first `n_bytes` of an answer, for comparison. Text that does not decode is returned as it
    is."""
    found = b""
    for _, piece in pieces(answer, answer.offset, answer.offset + n_bytes):
        try:
            found += piece if isinstance(piece, bytes) else decode_base64(piece)
        except Base64Error:
            found += piece.encode() if isinstance(piece, str) else piece
    return found
