"""Each type of block has a kind, and its fields are those of the kind."""

from __future__ import annotations

from typing import Any

import pytest

from playhead.content import KNOWN, parse_block
from playhead.content.block_types import BLOCK_TYPES
from playhead.results.kinds import Kind, view_of

EXAMPLES: list[tuple[dict[str, Any], Kind]] = [
    ({"type": "text", "text": "hello"}, "text"),
    ({"type": "image", "data": "AAAA", "mimeType": "image/png"}, "image"),
    ({"type": "audio", "data": "AAAA", "mimeType": "audio/mpeg"}, "audio"),
    ({"type": "resource_link", "uri": "x:song", "name": "Song", "size": 3}, "link"),
    ({"type": "file", "file": {"uri": "x:handle", "name": "song.mp3", "size": 3}}, "link"),
    ({"type": "resource", "resource": {"uri": "x:page", "text": "hello"}}, "text"),
    ({"type": "resource", "resource": {"uri": "x:song", "blob": "AAAA"}}, "data"),
]


def test_every_type_has_an_example_here() -> None:
    assert {raw["type"] for raw, _kind in EXAMPLES} == BLOCK_TYPES.keys() == KNOWN.keys()


@pytest.mark.parametrize(("raw", "kind"), EXAMPLES)
def test_each_type_of_block_has_a_kind_with_its_fields(raw: dict[str, Any], kind: Kind) -> None:
    block = parse_block(raw)
    assert block.fields is not None
    view = view_of(block.fields)
    assert view.kind == kind
    if kind == "text":
        assert view.text == "hello"
    elif kind == "link":
        assert (view.uri or "").startswith("x:")
        assert view.size_bytes == 3
    else:
        assert view.data == block.payload == "AAAA"
        assert view.size_bytes == 3
