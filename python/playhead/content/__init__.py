"""What a tool result is made of: its blocks, over the SDK's types, with what came kept beside them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from playhead.content.findings import Finding

if TYPE_CHECKING:
    from playhead.content.blocks import KNOWN, Block, TypedContent, UnknownBlock, parse_block, parse_blocks

__all__ = ["KNOWN", "Block", "Finding", "TypedContent", "UnknownBlock", "parse_block", "parse_blocks"]

_HOMES: Final = {
    "KNOWN": "playhead.content.blocks",
    "Block": "playhead.content.blocks",
    "TypedContent": "playhead.content.blocks",
    "UnknownBlock": "playhead.content.blocks",
    "parse_block": "playhead.content.blocks",
    "parse_blocks": "playhead.content.blocks",
}
"""Imported when first asked for: the SDK's types take a while, and the player needs only `content.audio`."""


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
