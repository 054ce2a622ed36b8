"""From the raw result of `resources/read` to a page: no copies of what is big, no guesses about the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from playhead.client.requests import RangedReadParams, RangedReadRequest
from playhead.errors import LimitError, ProtocolError
from playhead.limits import Limits
from playhead.stream.page import Page


def read_request(
    uri: str, arguments: Mapping[str, object] | None, meta: Mapping[str, object] | None
) -> RangedReadRequest:
    params: dict[str, Any] = {"uri": uri}
    if arguments is not None:
        params["arguments"] = dict(arguments)
    if meta is not None:
        params["_meta"] = dict(meta)
    return RangedReadRequest(params=RangedReadParams.model_validate(params))


def page_from(result: Mapping[str, Any], *, limits: Limits, server: str) -> Page:
    """The page in `result`; its blobs stay the base64 text that came.

    Raises `ProtocolError` where there is no list of contents, or an item is neither text nor blob, and
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
            f"{server} sent {len(contents)} contents in one answer; {limits.result_items} are allowed"
            " (Limits.result_items)",
            limit="result_items",
            allowed=limits.result_items,
            got=len(contents),
        )
    blobs: list[str | bytes] = []
    text_items = 0
    mime_type: str | None = None
    decoded_bytes = 0
    for index, item in enumerate(contents):
        kind = item if isinstance(item, dict) else {}
        if isinstance(blob := kind.get("blob"), str):
            blobs.append(blob)
            decoded_bytes += len(blob) // 4 * 3
        elif isinstance(kind.get("text"), str):
            text_items += 1
        else:
            raise ProtocolError(
                f"{server} answered resources/read with contents[{index}] that hold neither text nor blob"
            )
        if mime_type is None and isinstance(named := kind.get("mimeType"), str):
            mime_type = named
    if decoded_bytes > limits.block_bytes + 2:
        raise LimitError(
            f"{server} sent a page of about {decoded_bytes} bytes; {limits.block_bytes} are allowed"
            " (Limits.block_bytes)",
            limit="block_bytes",
            allowed=limits.block_bytes,
            got=decoded_bytes,
        )
    return Page(blobs=tuple(blobs), text_items=text_items, mime_type=mime_type)
