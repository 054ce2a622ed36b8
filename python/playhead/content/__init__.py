"""What a tool result is made of: its blocks, over the SDK's types, with what came kept beside them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from playhead.content.absent import ABSENT, Absent
from playhead.content.findings import Finding
from playhead.content.revisions import LATEST, REVISIONS

if TYPE_CHECKING:
    from playhead.content.blocks import KNOWN, Block, TypedContent, UnknownBlock, parse_block, parse_blocks
    from playhead.content.builders import (
        create_annotations,
        create_audio_content,
        create_embedded_resource,
        create_image_content,
        create_resource_link,
        create_text_content,
        create_tool_response,
        dump,
    )
    from playhead.content.downgrades import downgrade, downgrade_raw
    from playhead.content.http import tool_response_from_http
    from playhead.content.validation import validate_tool_response

__all__ = [
    "ABSENT",
    "KNOWN",
    "LATEST",
    "REVISIONS",
    "Absent",
    "Block",
    "Finding",
    "TypedContent",
    "UnknownBlock",
    "create_annotations",
    "create_audio_content",
    "create_embedded_resource",
    "create_image_content",
    "create_resource_link",
    "create_text_content",
    "create_tool_response",
    "downgrade",
    "downgrade_raw",
    "dump",
    "parse_block",
    "parse_blocks",
    "tool_response_from_http",
    "validate_tool_response",
]

_NAMES: Final = {
    "blocks": ("KNOWN", "Block", "TypedContent", "UnknownBlock", "parse_block", "parse_blocks"),
    "builders": (
        "create_annotations",
        "create_audio_content",
        "create_embedded_resource",
        "create_image_content",
        "create_resource_link",
        "create_text_content",
        "create_tool_response",
        "dump",
    ),
    "downgrades": ("downgrade", "downgrade_raw"),
    "http": ("tool_response_from_http",),
    "validation": ("validate_tool_response",),
}
_HOMES: Final = {name: f"playhead.content.{home}" for home, names in _NAMES.items() for name in names}
"""Imported when first asked for: the SDK's types take a while, and the player needs only `content.audio`."""


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
