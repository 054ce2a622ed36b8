"""One answer to a ranged read, measured but not yet decoded: how many bytes, from where, and what it proves.

The length of base64 text is arithmetic, so caps are checked before anything is decoded. `[DONE]` is data
unless it is a whole blob, at or past all data read: see `measure`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from playhead._core import decode_base64
from playhead.errors import Base64Error, LimitError, TextContentError
from playhead.stream.page import Page
from playhead.stream.statistics import EndedBy

DONE_BYTES = b"[DONE]"
DONE_TEXT = "W0RPTkVd"
"""The base64 of `[DONE]`, as a whole blob: the end, in the reference system's protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Bytes `[offset, offset + n_bytes)` as a server sent them; `blobs` are never empty ones."""

    offset: int
    blobs: tuple[str | bytes, ...]
    n_bytes: int
    proof: EndedBy | None = None
    """What proves that nothing follows `end`, if anything does. Always set where `n_bytes` is 0."""

    @property
    def end(self) -> int:
        return self.offset + self.n_bytes


def decoded_bytes(blob: str | bytes) -> int:
    """How many bytes a blob holds; of text that is not base64, at least as many as could be decoded."""
    if isinstance(blob, bytes):
        return len(blob)
    if len(blob) % 4:
        return len(blob) * 3 // 4 + 1
    return len(blob) // 4 * 3 - (blob.endswith("=") + blob.endswith("=="))


def measure(
    page: Page,
    *,
    offset: int,
    data_end: int,
    size_bytes: int | None,
    block_bytes: int,
    ranged: bool = True,
) -> Answer:
    """What `page`, the answer to a read at `offset`, amounts to.

    `data_end` is the end of all data read so far: `[DONE]` below it is data, and so it is at offset 0 of a
    resource whose known size is 6, and in a read without a range (`ranged=False`).

    Raises `TextContentError` for text where bytes are expected, and `LimitError` for more than
    `block_bytes` decoded bytes; both before anything is decoded. Both are the server's fault.
    """
    if page.text_items:
        raise TextContentError(
            f"page at byte {offset}: expected blob contents, got {page.text_items} text; "
            "read this resource as text, or ask the server's author for blobs",
            offset=offset,
        )
    sizes = [decoded_bytes(blob) for blob in page.blobs]
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
    done = False
    while ranged and blobs and blobs[-1] in {DONE_TEXT, DONE_BYTES}:
        at = offset + total - len(DONE_BYTES)
        if at < data_end or (at == 0 and size_bytes == len(DONE_BYTES)):
            break
        blobs.pop()
        total -= len(DONE_BYTES)
        done = True
    proof: EndedBy | None = "done" if done else None if total else "empty"
    return Answer(offset=offset, blobs=tuple(blobs), n_bytes=total, proof=proof)


def pieces(answer: Answer, start: int, stop: int) -> Iterator[tuple[int, str | bytes]]:
    """Cut `answer` to the bytes `[start, stop)`: pairs of an offset and a piece to be written there.

    Base64 can only be cut between its groups of three bytes, so the first piece may begin up to two bytes
    before `start`; the last never goes past `stop`. Whole blobs are passed on without a copy.
    """
    base = answer.offset
    for blob in answer.blobs:
        size = decoded_bytes(blob)
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
    """The first `n_bytes` of an answer. Text that does not decode stands for itself: it is only compared."""
    found = b""
    for _, piece in pieces(answer, answer.offset, answer.offset + n_bytes):
        try:
            found += piece if isinstance(piece, bytes) else decode_base64(piece)
        except Base64Error:
            found += piece.encode() if isinstance(piece, str) else piece
    return found
