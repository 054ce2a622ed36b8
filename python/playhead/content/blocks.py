"""Content blocks: the raw object, and its content in the SDK's types.

Parsing checks a block, but makes its `content` only when a program reads it: the SDK's types take 100 ms to
load, and playing needs none. Only a block with an invalid field needs them at once (`content.mending`).
Dumping returns the raw objects unchanged, because the SDK's types drop unknown fields and turn `priority: 1`
into `1.0`.

Long base64 arrives as a view of its message (`messages.decode`), and stays a view in `fields`: a copy of 63
MiB costs more than receiving it. In `raw` and `content` it becomes a string when a program reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from playhead.content.block_types import BLOCK_TYPES
from playhead.content.findings import Finding, kind_of
from playhead.content.formats import Base64Text, Postponed, postpone, source_of, string_of
from playhead.errors import LimitError, ProtocolError
from playhead.limits import Limits

if TYPE_CHECKING:
    from playhead.content.types import TypedContent


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownBlock:
    """A block of an unknown type, or of a known type without an essential field."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Postponed):
    """One content block: the received object, and its content in the SDK's types."""

    raw: Any
    """The value received: an object, unless the server sent something else."""
    content: TypedContent | UnknownBlock
    findings: tuple[Finding, ...] = field(default=())
    """Findings about the block, with paths relative to it: `$.name`."""

    @property
    def fields(self) -> Mapping[str, Any] | None:
        """The valid fields of `content` under their wire names, and any unknown ones; None for an
        `UnknownBlock`. An optional field may be null, and base64 a view of its message."""
        if isinstance(received := source_of(self), dict):
            return received
        content = self.content
        if isinstance(content, UnknownBlock):
            return None
        fields: dict[str, Any] = content.model_dump(by_alias=True, exclude_none=True)
        return fields

    @property
    def outline(self) -> TypedContent | UnknownBlock:
        """`content` for reading other fields than base64, which may be an empty string here."""
        if isinstance(self.payload, memoryview) and isinstance(received := source_of(self), dict):
            return _content_without_base64(received)
        return self.content

    @property
    def payload(self) -> Base64Text | None:
        """The base64 of an image, audio or a blob as received: for `decode_base64`, which accepts a view."""
        if (fields := self.fields) is None:
            return None
        payload: Base64Text | None = None
        if BLOCK_TYPES[fields["type"]].has_data:
            payload = fields["data"]
        elif fields["type"] == "resource":
            payload = fields["resource"].get("blob")
        return payload


def parse_block(raw: object) -> Block:
    """Parse `raw` as a block; never raises."""
    if not isinstance(raw, dict):
        reason = f"expected an object, got {kind_of(raw)}"
        return Block(raw=raw, content=UnknownBlock(kind="", reason=reason))
    actual = raw.get("type")
    kind = actual if isinstance(actual, str) else ""
    unknown = UnknownBlock(kind=kind, reason=f"the type {actual!r} is not known")
    block_type = BLOCK_TYPES.get(kind)
    if block_type is not None and block_type.fits(raw):
        block = Block(raw=raw, content=unknown)
        views = [key for holder, key in _base64_places(raw) if isinstance(holder[key], memoryview)]
        if not views:
            postpone(block, raw, content=_typed_content)
            return block
        if (kind == "resource" and views == ["blob"]) or (block_type.has_data and views == ["data"]):
            postpone(block, raw, raw=_with_strings, content=_typed_content)
            return block
    raw = _with_strings(raw)
    if block_type is None:
        return Block(raw=raw, content=unknown)
    from playhead.content.mending import mended  # the SDK's types

    return mended(kind, raw)


def _typed_content(received: dict[str, Any]) -> TypedContent:
    from playhead.content.types import typed

    return typed(received["type"], _with_strings(received))


def _content_without_base64(received: dict[str, Any]) -> TypedContent:
    from playhead.content.types import typed

    if received["type"] == "resource":
        return typed("resource", {**received, "resource": {**received["resource"], "blob": ""}})
    return typed(received["type"], {**received, "data": ""})


def _base64_places(raw: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """Yield each object in a block that may hold base64, with its key there."""
    if "data" in raw:
        yield raw, "data"
    if isinstance(contents := raw.get("resource"), dict) and "blob" in contents:
        yield contents, "blob"


def _with_strings(raw: dict[str, Any]) -> dict[str, Any]:
    """Replace the views in a block by strings, in place."""
    for holder, key in _base64_places(raw):
        if isinstance(view := holder[key], memoryview):
            holder[key] = string_of(view)
    return raw


def fields_of(block: Block | None) -> Mapping[str, Any]:
    """Return the valid fields of a block; empty for no block and for an `UnknownBlock`."""
    return (None if block is None else block.fields) or {}


def parse_blocks(result: Mapping[str, Any], *, limits: Limits, server: str) -> tuple[Block, ...]:
    """Parse the blocks of a `tools/call` result.

    Raises `ProtocolError` if `content` is not a list, `LimitError` past `Limits.result_items`.
    """
    kind = result.get("resultType")
    if kind == "input_required":
        raise ProtocolError(f"{server} asks for input in the middle of a call, which was not offered to it")
    if "structuredContent" in result:
        result = {"content": [], **result}
    content = items_of(result, "content", method="tools/call", limits=limits, server=server)
    return tuple(parse_block(item) for item in content)


def items_of(
    result: Mapping[str, Any], key: str, *, method: str, limits: Limits, server: str
) -> list[object]:
    """Return the list at `key` of a result.

    Raises `ProtocolError` if it is not a list, `LimitError` past `Limits.result_items`.
    """
    items = result.get(key)
    if not isinstance(items, list):
        raise ProtocolError(
            f"{server} answered {method} without a list of {key} (it holds: {', '.join(result) or 'nothing'})"
        )
    if len(items) > limits.result_items:
        raise LimitError(
            f"expected at most {limits.result_items} {key} in the answer to {method} (Limits.result_items),"
            f" got {len(items)} from {server}",
            limit="result_items",
            allowed=limits.result_items,
            got=len(items),
        )
    return items
