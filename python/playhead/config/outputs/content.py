"""What of a content block is saved: its bytes, decoded, and what they are."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final, assert_never

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from playhead._core import decode_base64
from playhead.content import UnknownBlock
from playhead.content.blocks import TypedContent
from playhead.errors import LimitError
from playhead.limits import DEFAULT_LIMITS, MIB, Limits

TEXT: Final = "text/plain"
JSON: Final = "application/json"
JSON_CHARS: Final = 4 * MIB
"""The longest text that is looked at for JSON: one of `[],[],…` takes 23 times its size as Python's lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What `OutputStore.save` takes."""

    data: bytes | str = field(repr=False)
    mime_type: str
    title: str | None = None


def content_of(content: TypedContent | UnknownBlock, *, limits: Limits = DEFAULT_LIMITS) -> Content | None:
    """The bytes of a block; None for a link (it is read, or teed while it plays) and an unknown block.

    Text that is a JSON object or list, of at most `JSON_CHARS` (4 Mi), is saved as JSON. Raises
    `LimitError` before decoding more than `Limits.block_bytes`, `Base64Error` for what is no base64.
    """
    match content:
        case TextContent(text=text):
            return Content(data=text, mime_type=JSON if _is_json(text) else TEXT)
        case ImageContent(data=data, mime_type=mime_type) | AudioContent(data=data, mime_type=mime_type):
            return Content(data=decoded(data, limits=limits), mime_type=mime_type)
        case EmbeddedResource(resource=TextResourceContents() as inner):
            return Content(data=inner.text, mime_type=inner.mime_type or TEXT, title=inner.uri)
        case EmbeddedResource(resource=BlobResourceContents() as inner):
            return Content(
                data=decoded(inner.blob, limits=limits), mime_type=inner.mime_type or "", title=inner.uri
            )
        case EmbeddedResource() | ResourceLink() | UnknownBlock():
            return None
        case _:
            assert_never(content)


def decoded(text: str, *, limits: Limits) -> bytes:
    """Strict base64, its size checked first. Raises as `content_of`."""
    size = len(text) // 4 * 3 - text[-2:].count("=")
    if size > limits.block_bytes:
        raise LimitError(
            f"an output of {size} bytes in one block; {limits.block_bytes} are allowed (Limits.block_bytes)",
            limit="block_bytes",
            allowed=limits.block_bytes,
            got=size,
        )
    return decode_base64(text)


def _is_json(text: str) -> bool:
    if len(text) > JSON_CHARS or not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
