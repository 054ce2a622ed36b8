"""The result of a tool call: every block kept as it came, and a typed view of those that are understood.

Blocks are parsed one by one. One that is unknown or invalid fails nothing: it stands in its place as an
`UnknownBlock`, with its raw object and the reason. Dumping gives the raw objects back, unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from pydantic import BaseModel, ValidationError

from playhead.client.media import BytesMedia, ResourceMedia, Streams
from playhead.errors import LimitError, ProtocolError
from playhead.limits import Limits

TypedContent = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource

KNOWN: Final[Mapping[str, type[TypedContent]]] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "resource_link": ResourceLink,
    "resource": EmbeddedResource,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownBlock:
    """A block of a type nobody here knows, or of a known type that doesn't hold what it must."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One content block: the object as it came, and what it was understood as."""

    raw: Mapping[str, Any]
    content: TypedContent | UnknownBlock


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


def parse_block(raw: object) -> Block:
    if not isinstance(raw, dict):
        return Block(raw={}, content=UnknownBlock(kind="", reason=f"not an object but {type(raw).__name__}"))
    named = raw.get("type")
    kind = named if isinstance(named, str) else ""
    model: type[BaseModel] | None = KNOWN.get(kind)
    if model is None:
        return Block(raw=raw, content=UnknownBlock(kind=kind, reason=f"the type {named!r} is not known"))
    try:
        content: Any = model.model_validate(raw, by_name=False)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return Block(raw=raw, content=UnknownBlock(kind=kind, reason=f"{place}: {first['msg']}"))
    return Block(raw=raw, content=content)


def parse_blocks(result: Mapping[str, Any], *, limits: Limits, server: str) -> tuple[Block, ...]:
    """The blocks of a `tools/call` result. Raises `ProtocolError` without a list, `LimitError` past
    `Limits.result_items`."""
    kind = result.get("resultType")
    if kind == "input_required":
        raise ProtocolError(f"{server} asks for input in the middle of a call, which was not offered to it")
    content = result.get("content", [] if "structuredContent" in result else None)
    if not isinstance(content, list):
        raise ProtocolError(f"{server} answered tools/call without a list of content")
    if len(content) > limits.result_items:
        raise LimitError(
            f"{server} sent {len(content)} blocks in one result; {limits.result_items} are allowed"
            " (Limits.result_items)",
            limit="result_items",
            allowed=limits.result_items,
            got=len(content),
        )
    return tuple(parse_block(item) for item in content)


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
