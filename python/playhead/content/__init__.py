"""The content of a tool result: its blocks, as raw objects and in the SDK's types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from playhead.content.findings import ABSENT, Absent, Finding
from playhead.lazy_names import lazy_names

if TYPE_CHECKING:
    from playhead.content.blocks import Block, UnknownBlock, parse_block, parse_blocks
    from playhead.content.builders import (
        create_annotations,
        create_audio_content,
        create_embedded_resource,
        create_image_content,
        create_resource_link,
        create_text_content,
        create_tool_response,
        dump,
        tool_response_from_http,
    )
    from playhead.content.revisions import LATEST, REVISION_NAMES, downgrade, downgrade_raw
    from playhead.content.types import KNOWN, TypedContent
    from playhead.content.validation import validate_tool_response

__all__ = [
    "ABSENT",
    "KNOWN",
    "LATEST",
    "REVISION_NAMES",
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

_MODULES: Final = {
    "blocks": ("Block", "UnknownBlock", "parse_block", "parse_blocks"),
    "builders": (
        "create_annotations",
        "create_audio_content",
        "create_embedded_resource",
        "create_image_content",
        "create_resource_link",
        "create_text_content",
        "create_tool_response",
        "dump",
        "tool_response_from_http",
    ),
    "revisions": ("LATEST", "REVISION_NAMES", "downgrade", "downgrade_raw"),
    "types": ("KNOWN", "TypedContent"),
    "validation": ("validate_tool_response",),
}
"""Imported lazily: the SDK's types are slow to import, and the player needs only `content.audio`."""


if not TYPE_CHECKING:  # a type checker would take every misspelt name for one that `__getattr__` has
    __getattr__ = lazy_names(__name__, _MODULES)
