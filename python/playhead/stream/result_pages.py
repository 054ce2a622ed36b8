"""Pages in the results of `resources/read` and of reader tools. Their base64 is not decoded here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from playhead._core import decode_base64
from playhead.cache import ETAG_META, LIVE_META, OFFSET_META, SIZE_META, strong_etag
from playhead.content.block_types import MOST_BYTES, is_size
from playhead.content.blocks import items_of
from playhead.content.formats import Base64Text, decoded_bytes
from playhead.errors import (
    ProtocolError,
    RangeNotHonouredError,
    TextContentError,
    ToolFailedError,
)
from playhead.limits import Limits, check_block
from playhead.stream.answer import Page, blob_bytes

SHOWN_CHARS = 200
"""Limits the text to save for error messages where bytes were expected."""


def resource_bytes(result: Mapping[str, Any], *, limits: Limits, server: str) -> bytes:
    """Return the text or the decoded blobs of a result of `resources/read`. Raises as `page_of_contents`, and
    `Base64Error`."""
    page_of_contents(result, limits=limits, server=server)
    data = b""
    for item in items_of(result, "contents", method="resources/read", limits=limits, server=server):
        fields = item if isinstance(item, dict) else {}
        text = fields.get("text")
        data += text.encode() if isinstance(text, str) else decode_base64(fields.get("blob", ""))
    return data


def page_of_contents(result: Mapping[str, Any], *, limits: Limits, server: str) -> Page:
    """Return the page in a result of `resources/read`. Its blobs stay base64, as strings or views of the
    message.

    Raises `ProtocolError` without a list of contents or if an item is neither text nor blob, and
    `LimitError` past `Limits.result_items` or (before anything is decoded) `Limits.block_bytes`.
    """
    contents = items_of(result, "contents", method="resources/read", limits=limits, server=server)
    blobs: list[Base64Text | bytes] = []
    texts: list[str] = []
    mime_type: str | None = None
    etag: str | None = None
    offset: int | None = None
    size_bytes, is_live = _growth(result.get("_meta"))
    for index, item in enumerate(contents):
        n_earlier = len(blobs)
        fields = item if isinstance(item, dict) else {}
        if isinstance(blob := fields.get("blob"), str | memoryview):
            blobs.append(blob)
        elif isinstance(text := fields.get("text"), str):
            texts.append(text[:SHOWN_CHARS])
        else:
            raise ProtocolError(
                f"{server} answered resources/read with neither text nor blob in contents[{index}]"
            )
        if isinstance(meta := fields.get("_meta"), dict):
            if etag is None:
                etag = strong_etag(meta.get(ETAG_META))
            item_offset = _whole_number(meta.get(OFFSET_META))
            if offset is None and item_offset is not None:
                offset = max(0, item_offset - sum(map(blob_bytes, blobs[:n_earlier])))
            size, live = _growth(meta)
            size_bytes = size if size_bytes is None else size_bytes
            is_live = live if is_live is None else is_live
        if mime_type is None and isinstance(item_type := fields.get("mimeType"), str):
            mime_type = item_type
    scope, ttl_ms = result.get("cacheScope"), result.get("ttlMs")
    page = Page(
        blobs=tuple(blobs),
        text_items=len(texts),
        text=next(iter(texts), ""),
        mime_type=mime_type,
        offset=offset,
        size_bytes=size_bytes,
        is_live=is_live,
        etag=etag,
        cache_scope=scope if scope in ("public", "private") else None,
        ttl_seconds=None if not isinstance(ttl_ms, int | float) else min(max(0, ttl_ms), MOST_BYTES) / 1000,
    )
    check_block(page.n_bytes, allowed=limits.block_bytes, what=f"a page from {server}")
    return page


def _growth(meta: object) -> tuple[int | None, bool | None]:
    """Return the present size, and whether the resource still grows, as far as `meta` declares them."""
    fields = meta if isinstance(meta, dict) else {}
    live = fields.get(LIVE_META)
    return _whole_number(fields.get(SIZE_META)), live if isinstance(live, bool) else None


DATA_FIELDS = ("bytes", "data", "blob", "audio_base64")
"""The names under which tools return base64."""
MIME_FIELDS = ("mimeType", "mime_type")
CURSOR_FIELDS = ("next_cursor", "nextCursor", "nextOffset", "next_offset", "cursor")
"""The names under which tools return the cursor of the next page."""


def page_of_tool(result: Mapping[str, Any], *, tool: str, start: int, limits: Limits, server: str) -> Page:
    """Return the page in the result of a reader tool: `{bytes | data | blob, offset, totalBytes, hasMore}`.

    `totalBytes`, or a false `hasMore`, gives the resource's size. Raises `ToolFailedError` for `isError`,
    `TextContentError` if no member has base64, `RangeNotHonouredError` if `offset` is not `start`,
    `ProtocolError` if the data is not as long as `byteCount` says, and `LimitError` if it is longer than
    `Limits.block_bytes`.
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
    return Page(blobs=(data,) if data else (), mime_type=first_string(fields, MIME_FIELDS), total_bytes=total)


def tool_data(
    fields: Mapping[str, Any], *, tool: str, start: int, limits: Limits, server: str
) -> tuple[str, int]:
    """Return the base64 in a tool's structured result, and its decoded length. Raises as `page_of_tool`."""
    data = first_string(fields, DATA_FIELDS)
    if data is None:
        raise TextContentError(
            f"{server}: expected base64 from tool {tool!r} in one of {', '.join(DATA_FIELDS)}, got"
            f" {', '.join(fields) or 'no structured content'}",
            offset=start,
        )
    n_bytes = decoded_bytes(data)
    check_block(n_bytes, allowed=limits.block_bytes, what=f"a page from {server}")
    return data, n_bytes


def first_string(fields: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the value of the first of `names` that is a string; None without any."""
    return next((fields[name] for name in names if isinstance(fields.get(name), str)), None)


def structured_content(result: Mapping[str, Any], *, tool: str, server: str) -> Mapping[str, Any]:
    """Return a tool's structured result or, without one, the JSON object in its text. Empty without either.

    Raises `ToolFailedError` for `isError`, with its text.
    """
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    if result.get("isError") is True:
        message = " ".join(texts)[:SHOWN_CHARS] or "(it gave no reason)"
        raise ToolFailedError(f"{server}: tool {tool!r} failed: {message}")
    structured = result.get("structuredContent")
    if structured is None and texts:
        try:
            structured = json.loads(texts[0])
        except ValueError:
            return {}
    return structured if isinstance(structured, dict) else {}


def _whole_number(value: object) -> int | None:
    return value if is_size(value) else None
