"""Content blocks as text for a person."""

from __future__ import annotations

from typing import assert_never

from mcp_types import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from playhead.cli.progress import human_bytes
from playhead.cli.terminal import escape_line
from playhead.content import Block, UnknownBlock


def shown(block: Block) -> str:
    """One content block as the lines that `playhead call` prints; escaping is left to the terminal."""
    match block.content:
        case TextContent(text=text):
            return text
        case ResourceLink() as link:
            size = f", {human_bytes(link.size)}" if link.size else ""
            kind = link.mime_type or "unknown type"
            return f"link: {escape_line(link.title or link.name)} <{link.uri}> ({kind}{size})"
        case ImageContent(mime_type=kind, data=data) | AudioContent(mime_type=kind, data=data):
            return f"{block.content.type}: {kind}, {human_bytes(len(data) * 3 // 4)}"
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
        case EmbeddedResource(resource=resource):
            return f"resource: <{resource.uri}> ({resource.mime_type or 'unknown type'})"
        case UnknownBlock(kind=kind, reason=reason):
            return f"{kind}: {reason}"
        case never:
            assert_never(never)
