"""The result of a tool call: every block kept as it came, and what can be opened among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_types import AudioContent, BlobResourceContents, EmbeddedResource, ResourceLink, TextContent

from playhead.client.media import BytesMedia, ResourceMedia, Streams
from playhead.content import Block
from playhead.limits import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What a tool call gave back. `raw` is the result as it came on the wire."""

    raw: Mapping[str, Any]
    blocks: tuple[Block, ...]
    is_error: bool
    media: tuple[ResourceMedia | BytesMedia, ...] = field(default=())
    """What can be opened, in the order of the blocks: links, audio blocks and embedded blobs."""

    @property
    def links(self) -> tuple[ResourceMedia, ...]:
        return tuple(item for item in self.media if isinstance(item, ResourceMedia))

    @property
    def text(self) -> str:
        """The text blocks, one a line."""
        return "\n".join(
            block.content.text for block in self.blocks if isinstance(block.content, TextContent)
        )


def linked(link: ResourceLink, *, streams: Streams) -> ResourceMedia:
    """What a link leads to."""
    return ResourceMedia(
        uri=link.uri,
        title=link.title or link.name,
        description=link.description,
        mime_type=link.mime_type,
        size_bytes=link.size,
        streams=streams,
    )


def media_of(
    blocks: Iterable[Block], *, streams: Streams, limits: Limits
) -> tuple[ResourceMedia | BytesMedia, ...]:
    """What can be opened among `blocks`, in their order."""

    def held(title: str, data: str, mime_type: str | None, uri: str | None = None) -> BytesMedia:
        return BytesMedia(
            title=title, mime_type=mime_type, base64=data, block_bytes=limits.block_bytes, uri=uri
        )

    found: list[ResourceMedia | BytesMedia] = []
    for block in blocks:
        match block.content:
            case ResourceLink() as link:
                found.append(linked(link, streams=streams))
            case AudioContent(data=data, mime_type=mime_type):
                found.append(held("audio", data, mime_type))
            case EmbeddedResource(resource=BlobResourceContents() as inner):
                found.append(held(inner.uri, inner.blob, inner.mime_type, inner.uri))
            case _:
                pass
    return tuple(found)
