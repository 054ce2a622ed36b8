"""Answers to ranged reads: measured, compared and cut without being decoded.

A read returns a `Page`, which is the server's answer in whatever form it was requested. `measure` turns it
into an `Answer`: blobs with their offset in the resource, and the claim that the resource ends there, if the
page made one. The rest of the package works with answers only.

The length of base64 can be computed without decoding it, so limits are checked first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from playhead._core import decode_base64
from playhead.content.formats import Base64Text, decoded_bytes
from playhead.errors import Base64Error, TextContentError
from playhead.limits import check_block

DONE_BYTES = b"[DONE]"
DONE_TEXT = "W0RPTkVd"
"""The base64 of `[DONE]`. A blob with only this is the end marker of the reference system's protocol."""

EndedBy = Literal["empty", "done", "416", "size", "error", "whole", "no-growth"]
"""The evidence that ended a stream: `empty` contents or an empty blob; a `[DONE]` blob; an error that the
range is past the end (`416`); the announced `size`; the same `error` repeatedly while the bytes before were
served; one answer with the `whole` resource; `no-growth` for long, if a resource grows and its server does
not announce the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The answer to one read of `[start, end)`, in bytes from 0.

    `blobs` are in the order in which the server sent them. `Base64Text` (a string, or a view of the message)
    is decoded straight into the ring; `bytes` are plain (an HTTP range, a test). An empty tuple means empty
    `contents`: a claim that the resource ends at `start`.
    """

    blobs: tuple[Base64Text | bytes, ...]
    text_items: int = 0
    """The number of text contents; 0 is expected in a read of bytes."""
    text: str = ""
    """The beginning of the first text: usually a message in place of bytes."""
    mime_type: str | None = None
    total_bytes: int | None = None
    """The resource's size by the answer (Content-Range): exact, unlike `ResourceLink.size`."""
    offset: int | None = None
    """The offset of the first byte, if the answer declares it. It may not be the requested one."""
    size_bytes: int | None = None
    """The current size, if the answer declares it. A resource may grow."""
    is_live: bool | None = None
    """True if the answer declares that the resource still grows, False if it declares that it no longer
    does."""
    etag: str | None = None
    """The version of the resource, if the answer declares it. It changes with any byte of the resource."""
    cache_scope: Literal["public", "private"] | None = None
    """The server's declaration of who may share the answer (since revision 2026-07-28)."""
    ttl_seconds: float | None = None
    """The time for which the answer may be shared; None if the server sets no limit."""
    n_bytes: int = field(init=False)
    """The decoded length of all blobs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_bytes", sum(map(blob_bytes, self.blobs)))


ReadRange = Callable[[int, int], Awaitable[Page]]
"""Reads `[start, end)`. Raises `errors.RangePastEndError` as a claim of the end, `errors.TransportError`
if a retry may help, and any other `errors.RemoteError` as the server's answer. Cancelling it cancels the
request on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Bytes `[offset, offset + n_bytes)` as the server sent them. No blob is empty."""

    offset: int
    blobs: tuple[Base64Text | bytes, ...]
    n_bytes: int
    claims_end: EndedBy | None = None
    """The evidence for an end at `end`, if the answer has any. Always set if `n_bytes` is 0."""
    declared_offset: int | None = None
    """The offset that the answer itself declares, if any."""

    @property
    def end(self) -> int:
        return self.offset + self.n_bytes


def blob_bytes(blob: Base64Text | bytes) -> int:
    """Return the decoded length of a blob."""
    return len(blob) if isinstance(blob, bytes) else decoded_bytes(blob)


def measure(
    page: Page, *, offset: int, size_bytes: int | None, block_bytes: int, ranged: bool = True
) -> Answer:
    """Measure `page`, the answer to a read at `offset`.

    A `[DONE]` blob at the end of a page claims the end of the resource. It is data in a read without a range
    (`ranged=False`), and at offset 0 of a resource with an announced size of 6.

    Raises `TextContentError` for text where bytes are expected, and `LimitError` for more than `block_bytes`
    decoded bytes, both before decoding. Both are the server's fault.
    """
    if page.text_items:
        raise TextContentError(
            f"page at byte {offset}: expected blob contents, got {page.text_items} text contents; "
            "ask the server's author to send blobs, or read it with `read_resource`",
            offset=offset,
        )
    total = page.n_bytes
    check_block(total, allowed=block_bytes, what=f"page at byte {offset}")
    blobs = list(filter(len, page.blobs))
    # Not a set, which would hash a whole page (72 us per 100 KiB). A blob this short is never a view.
    is_done = ranged and bool(blobs) and blobs[-1] in (DONE_TEXT, DONE_BYTES)
    if is_done and offset == 0 and total == size_bytes == len(DONE_BYTES):
        is_done = False
    if is_done:
        blobs.pop()
        total -= len(DONE_BYTES)
    claims_end: EndedBy | None = None
    if is_done:
        claims_end = "done"
    elif not total:
        claims_end = "empty"
    return Answer(
        offset=offset, blobs=tuple(blobs), n_bytes=total, claims_end=claims_end, declared_offset=page.offset
    )


def pieces(answer: Answer, start: int, stop: int) -> list[tuple[int, Base64Text | bytes]]:
    """Cut `answer` to the bytes `[start, stop)`. Return pairs of an offset and the piece to write there.

    Base64 can only be cut between its groups of three bytes. If a cut is inside a group, the group is
    decoded. Neither whole blobs nor parts of views are copied.
    """
    base = answer.offset
    if start <= base and stop >= base + answer.n_bytes and len(answer.blobs) == 1:
        return [(base, answer.blobs[0])]
    cuts: list[tuple[int, Base64Text | bytes]] = []
    for blob in answer.blobs:
        size = blob_bytes(blob)
        low, high = max(0, start - base), min(size, stop - base)
        if low < high:
            if (low, high) == (0, size):
                cuts.append((base, blob))
            elif isinstance(blob, bytes):
                cuts.append((base + low, blob[low:high]))
            else:
                cuts += _cut(blob, low, high, base=base)
        base += size
    return cuts


def _cut(blob: Base64Text, low: int, high: int, *, base: int) -> Iterator[tuple[int, Base64Text | bytes]]:
    whole = high if high == blob_bytes(blob) else high - high % 3
    while low < high:
        group, skipped = divmod(low, 3)
        if skipped or whole <= low:
            stop = min(high, 3 * group + 3)
            yield base + low, decode_base64(blob[4 * group : 4 * group + 4])[skipped : stop - 3 * group]
        else:
            stop = whole
            yield base + low, blob[4 * group : -(-whole // 3) * 4]
        low = stop


def leading(answer: Answer, n_bytes: int) -> bytes:
    """Return the first `n_bytes` of an answer, for comparison. Invalid base64 is returned undecoded."""
    head = b""
    for blob in answer.blobs:
        missing = n_bytes - len(head)
        if missing <= 0:
            break
        if isinstance(blob, bytes):
            head += blob[:missing]
            continue
        text = blob[: -(-missing // 3) * 4]
        try:
            head += decode_base64(text)[:missing]
        except Base64Error:
            head += text.encode() if isinstance(text, str) else bytes(text)
    return head
