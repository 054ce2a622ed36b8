"""Answers to ranged reads: read from a result, and measured (offset, length, claim of an end), not decoded.

The length of base64 text is arithmetic, so limits are checked before anything is decoded.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from playhead._core import decode_base64
from playhead.cache import ETAG_META, OFFSET_META, SIZE_META, strong_etag
from playhead.content.formats import Base64Text, decoded_bytes
from playhead.errors import (
    Base64Error,
    LimitError,
    ProtocolError,
    RangeNotHonouredError,
    TextContentError,
    ToolFailedError,
)
from playhead.limits import Limits

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

    `blobs` are in the order in which the server sent them: `Base64Text` (a string, or its place in the
    message) is decoded straight into the ring, `bytes` are plain (an HTTP range, a test). An empty tuple
    means empty `contents`: a claim that the resource ends at `start`.
    """

    blobs: tuple[Base64Text | bytes, ...]
    text_items: int = 0
    """Number of text contents; none is expected in a read of bytes."""
    text: str = ""
    """The beginning of the first of them: a message in place of bytes."""
    mime_type: str | None = None
    total_bytes: int | None = None
    """The resource's size in the answer (Content-Range): exact, unlike `ResourceLink.size`."""
    offset: int | None = None
    """The offset of the first byte, if the answer declares it: that of another page is never used."""
    size_bytes: int | None = None
    """The present size, if the answer declares it. A resource may grow."""
    etag: str | None = None
    """The version of the resource, if the answer names one: another for any other byte."""
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
    """Bytes `[offset, offset + n_bytes)` as a server sent them; no blob is empty."""

    offset: int
    blobs: tuple[Base64Text | bytes, ...]
    n_bytes: int
    claims_end: EndedBy | None = None
    """The claim that nothing follows `end`, if any. Always set if `n_bytes` is 0."""
    declared_offset: int | None = None
    """The offset that the answer itself declares, if it does."""

    @property
    def end(self) -> int:
        return self.offset + self.n_bytes


def blob_bytes(blob: Base64Text | bytes) -> int:
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
    total = page.n_bytes
    if total > block_bytes:
        raise LimitError(
            f"page at byte {offset}: expected at most {block_bytes} bytes, got {total}; "
            "raise Limits.block_bytes if the server may send that much at once",
            limit="block_bytes",
            allowed=block_bytes,
            got=total,
        )
    blobs = list(filter(len, page.blobs))
    # A tuple: membership in a set would hash a whole page (72 us per 100 KiB). A view is never so short.
    is_done = ranged and bool(blobs) and blobs[-1] in (DONE_TEXT, DONE_BYTES)
    if is_done and offset == 0 and total == size_bytes == len(DONE_BYTES):
        is_done = False
    if is_done:
        blobs.pop()
        total -= len(DONE_BYTES)
    claims_end: EndedBy | None = "done" if is_done else None if total else "empty"
    return Answer(
        offset=offset, blobs=tuple(blobs), n_bytes=total, claims_end=claims_end, declared_offset=page.offset
    )


def pieces(answer: Answer, start: int, stop: int) -> list[tuple[int, Base64Text | bytes]]:
    """Cut `answer` to the bytes `[start, stop)`. Returns pairs of an offset and the piece to write there.

    Base64 can only be cut between its groups of three bytes, so the first piece may begin up to two bytes
    before `start`; the last never goes past `stop`. Neither whole blobs nor parts of views are copied.
    """
    base = answer.offset
    if start <= base and stop >= base + answer.n_bytes and len(answer.blobs) == 1:
        return [(base, answer.blobs[0])]
    found: list[tuple[int, Base64Text | bytes]] = []
    for blob in answer.blobs:
        size = blob_bytes(blob)
        low, high = max(0, start - base), min(size, stop - base)
        if low < high:
            if (low, high) == (0, size):
                found.append((base, blob))
            elif isinstance(blob, bytes):
                found.append((base + low, blob[low:high]))
            else:
                low -= low % 3
                whole = high if high == size else high - high % 3
                if whole > low:
                    found.append((base + low, blob[low // 3 * 4 : -(-whole // 3) * 4]))
                if high > whole:
                    group = blob[whole // 3 * 4 : whole // 3 * 4 + 4]
                    found.append((base + whole, decode_base64(group)[: high - whole]))
        base += size
    return found


def leading(answer: Answer, n_bytes: int) -> bytes:
    """Return the first `n_bytes` of an answer, for comparison. Text that does not decode is returned as it
    is."""
    found = b""
    for blob in answer.blobs:
        missing = n_bytes - len(found)
        if missing <= 0:
            break
        if isinstance(blob, bytes):
            found += blob[:missing]
            continue
        text = blob[: -(-missing // 3) * 4]
        try:
            found += decode_base64(text)[:missing]
        except Base64Error:
            found += text.encode() if isinstance(text, str) else bytes(text)
    return found


SHOWN_CHARS = 200
"""Saved of text where bytes were expected."""


def page_of_contents(result: Mapping[str, Any], *, limits: Limits, server: str) -> Page:
    """The page in the result of `resources/read`; its blobs stay base64, as strings or views of the message.

    Raises `ProtocolError` without a list of contents or if an item is neither text nor blob, and
    `LimitError` past `Limits.result_items` or (before anything is decoded) `Limits.block_bytes`.
    """
    contents = result.get("contents")
    if not isinstance(contents, list):
        raise ProtocolError(
            f"{server} answered resources/read without a list of contents"
            f" (it holds: {', '.join(result) or 'nothing'})"
        )
    if len(contents) > limits.result_items:
        raise LimitError(
            f"expected at most {limits.result_items} contents in an answer (Limits.result_items), got"
            f" {len(contents)} from {server}",
            limit="result_items",
            allowed=limits.result_items,
            got=len(contents),
        )
    blobs: list[Base64Text | bytes] = []
    texts: list[str] = []
    mime_type: str | None = None
    etag: str | None = None
    offset: int | None = None
    size_bytes: int | None = None
    for index, item in enumerate(contents):
        before = len(blobs)
        kind = item if isinstance(item, dict) else {}
        if isinstance(blob := kind.get("blob"), str | memoryview):
            blobs.append(blob)
        elif isinstance(text := kind.get("text"), str):
            texts.append(text[:SHOWN_CHARS])
        else:
            raise ProtocolError(
                f"{server} answered resources/read with neither text nor blob in contents[{index}]"
            )
        if isinstance(meta := kind.get("_meta"), dict):
            if etag is None:
                etag = strong_etag(meta.get(ETAG_META))
            declared = _whole_number(meta.get(OFFSET_META))
            if offset is None and declared is not None:
                offset = max(0, declared - sum(map(blob_bytes, blobs[:before])))
            size_bytes = _whole_number(meta.get(SIZE_META)) if size_bytes is None else size_bytes
        if mime_type is None and isinstance(named := kind.get("mimeType"), str):
            mime_type = named
    scope, ttl_ms = result.get("cacheScope"), result.get("ttlMs")
    page = Page(
        blobs=tuple(blobs),
        text_items=len(texts),
        text=next(iter(texts), ""),
        mime_type=mime_type,
        offset=offset,
        size_bytes=size_bytes,
        etag=etag,
        cache_scope=scope if scope in ("public", "private") else None,
        ttl_seconds=None if not isinstance(ttl_ms, int | float) else max(0.0, ttl_ms / 1000),
    )
    check_page_bytes(page.n_bytes, limits=limits, server=server)
    return page


DATA_FIELDS = ("bytes", "data", "blob", "audio_base64")
"""The names under which tools return base64."""
CURSOR_FIELDS = ("next_cursor", "nextCursor", "nextOffset", "next_offset", "cursor")
"""The names under which tools return the cursor of the next page."""


def page_of_tool(result: Mapping[str, Any], *, tool: str, start: int, limits: Limits, server: str) -> Page:
    """Return the page in the result of a reader tool: `{bytes | data | blob, offset, totalBytes, hasMore}`.

    `totalBytes`, or `hasMore` that is false, tells the resource's size. Raises `ToolFailedError` for
    `isError`, `TextContentError` if no member holds base64, `RangeNotHonouredError` if `offset` is not
    `start`, and `ProtocolError` or `LimitError` if the data are not as long as `byteCount` says, or longer
    than `Limits.block_bytes`.
    """
    fields = structured_content(result, tool=tool, server=server)
    data, n_bytes = tool_data(fields, tool=tool, start=start, limits=limits, server=server)
    offset, count, total = (_whole_number(fields.get(name)) for name in ("offset", "byteCount", "totalBytes"))
    if offset is not None and offset != start:
        raise RangeNotHonouredError(
            f"{server}: asked tool {tool!r} for the bytes from {start}, got those from {offset}", offset=start
        )
    if count is not None and count != n_bytes:
        raise ProtocolError(
            f"{server}: tool {tool!r} announced {count} bytes (byteCount) and sent {n_bytes}, at byte {start}"
        )
    if total is None and fields.get("hasMore") is False:
        total = start + n_bytes
    mime_type = fields.get("mimeType")
    return Page(
        blobs=(data,) if data else (),
        mime_type=mime_type if isinstance(mime_type, str) else None,
        total_bytes=total,
    )


def tool_data(
    fields: Mapping[str, Any], *, tool: str, start: int, limits: Limits, server: str
) -> tuple[str, int]:
    """Return the base64 in a tool's structured result, and its decoded length. Raises as `page_of_tool`."""
    data = next((fields[name] for name in DATA_FIELDS if isinstance(fields.get(name), str)), None)
    if data is None:
        raise TextContentError(
            f"{server}: expected base64 from tool {tool!r} in one of {', '.join(DATA_FIELDS)}, got"
            f" {', '.join(fields) or 'no structured content'}",
            offset=start,
        )
    n_bytes = decoded_bytes(data)
    check_page_bytes(n_bytes, limits=limits, server=server)
    return data, n_bytes


def structured_content(result: Mapping[str, Any], *, tool: str, server: str) -> Mapping[str, Any]:
    """Return a tool's structured result; of a tool without one, its text if that is a JSON object.

    Raises `ToolFailedError` for `isError`, with its text.
    """
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    if result.get("isError") is True:
        said = " ".join(texts)[:SHOWN_CHARS] or "(it gave no reason)"
        raise ToolFailedError(f"{server}: tool {tool!r} failed: {said}")
    structured = result.get("structuredContent")
    if structured is None and texts:
        try:
            structured = json.loads(texts[0])
        except ValueError:
            return {}
    return structured if isinstance(structured, dict) else {}


def _whole_number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def check_page_bytes(page_bytes: int, *, limits: Limits, server: str) -> None:
    """Raise `LimitError` for a page longer than `Limits.block_bytes`."""
    if page_bytes > limits.block_bytes:
        raise LimitError(
            f"expected a page of at most {limits.block_bytes} bytes (Limits.block_bytes), got {page_bytes}"
            f" from {server}",
            limit="block_bytes",
            allowed=limits.block_bytes,
            got=page_bytes,
        )
