"""Content blocks: the raw object alongside a typed view.

A block is checked when it is parsed, and typed when a program reads `content`: the SDK's types take 100 ms to
load, and playing needs none. A block with an invalid field is the exception (`content.mending`). Dumping
returns the raw objects unchanged, because the SDK's types drop unknown fields and turn `priority: 1` into
`1.0`.

Long base64 that arrives as a view of its message (`messages.parse_message`) stays one in `fields`: a copy of
63 MiB costs more than receiving it. `raw` and `content` have a string in its place, made when they are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from playhead.content.findings import Finding, kind_of
from playhead.content.formats import Base64Text, Postponed, postpone, source_of, string_of
from playhead.errors import LimitError, ProtocolError
from playhead.limits import Limits

if TYPE_CHECKING:
    from playhead.content.types import TypedContent

MOST_BYTES: Final = 2**53 - 1
"""Largest size of a link: JSON parsers disagree about larger integers (RFC 8259, section 6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownBlock:
    """A block of an unknown type, or of a known type without an essential field."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Postponed):
    """One content block: the object received, and its typed view."""

    raw: Any
    """As received: an object, unless the server sent something else."""
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
        """`content`, or the same with an empty string in place of its base64: for all other fields."""
        if isinstance(self.payload, memoryview) and isinstance(received := source_of(self), dict):
            return _outline(received)
        return self.content

    @property
    def payload(self) -> Base64Text | None:
        """The base64 of an image, audio or a blob as received, for decoding, which needs no string."""
        if (fields := self.fields) is None:
            return None
        payload: Base64Text | None = None
        if fields["type"] in ("image", "audio"):
            payload = fields["data"]
        elif fields["type"] == "resource":
            payload = fields["resource"].get("blob")
        return payload


def parse_block(raw: object) -> Block:
    """Parse `raw` as a block; never raises."""
    if not isinstance(raw, dict):
        reason = f"expected an object, got {kind_of(raw)}"
        return Block(raw=raw, content=UnknownBlock(kind="", reason=reason))
    named = raw.get("type")
    kind = named if isinstance(named, str) else ""
    unknown = UnknownBlock(kind=kind, reason=f"the type {named!r} is not known")
    fits = _TYPES.get(kind)
    if fits is not None and fits(raw):
        block = Block(raw=raw, content=unknown)
        views = [key for holder, key in _base64_places(raw) if isinstance(holder[key], memoryview)]
        if not views:
            postpone(block, raw, content=_content)
            return block
        if views == ["blob" if kind == "resource" else "data"] and kind in ("resource", "image", "audio"):
            postpone(block, raw, raw=_with_strings, content=_content)
            return block
    raw = _with_strings(raw)
    if fits is None:
        return Block(raw=raw, content=unknown)
    from playhead.content.mending import mended  # the SDK's types

    return mended(kind, raw)


def _content(received: dict[str, Any]) -> TypedContent:
    from playhead.content.types import typed

    return typed(received["type"], _with_strings(received))


def _outline(received: dict[str, Any]) -> TypedContent:
    from playhead.content.types import typed

    if received["type"] == "resource":
        return typed("resource", {**received, "resource": {**received["resource"], "blob": ""}})
    return typed(received["type"], {**received, "data": ""})


def _base64_places(raw: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """The objects in a block that may hold base64, and its key there."""
    if "data" in raw:
        yield raw, "data"
    if isinstance(contents := raw.get("resource"), dict) and "blob" in contents:
        yield contents, "blob"


def _with_strings(raw: dict[str, Any]) -> dict[str, Any]:
    """Make the views in a block strings, in place."""
    for holder, key in _base64_places(raw):
        if isinstance(view := holder[key], memoryview):
            holder[key] = string_of(view)
    return raw


# --- the types of fields -------------------------------------------------------------------------------

Check = Callable[[object], bool]
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _Fields:
    """The check of an object: its required fields, and the optional ones, which may be null."""

    required: Mapping[str, Check]
    optional: Mapping[str, Check]

    def __call__(self, value: object) -> bool:
        return (
            isinstance(value, dict)
            and all(key in value and check(value[key]) for key, check in self.required.items())
            and all(value.get(key) is None or check(value[key]) for key, check in self.optional.items())
        )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and (value.isascii() or _SURROGATE.search(value) is None)


def _is_base64(value: object) -> bool:
    return isinstance(value, memoryview) or _is_text(value)


def _is_object(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value))


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST_BYTES


def _is_fraction(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1  # type: ignore[operator] # a number


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _is_contents(value: object) -> bool:
    return isinstance(value, dict) and ("text" in value) != ("blob" in value) and _CONTENTS(value)


_NOTES: Final = _Fields(
    {},
    {
        "audience": _list_of(lambda role: role in ("user", "assistant")),
        "priority": _is_fraction,
        "lastModified": _is_text,
    },
)
_ICON: Final = _Fields(
    {"src": _is_text},
    {
        "mimeType": _is_text,
        "sizes": _list_of(_is_text),
        "theme": lambda theme: theme in ("light", "dark"),
    },
)
_CONTENTS: Final = _Fields(
    {"uri": _is_text}, {"mimeType": _is_text, "_meta": _is_object, "text": _is_text, "blob": _is_base64}
)
_FILE: Final = _Fields(
    {"uri": _is_text}, {"name": _is_text, "mimeType": _is_text, "size": _is_size, "digest": _is_object}
)
_COMMON: Final[Mapping[str, Check]] = {"annotations": _NOTES, "_meta": _is_object}
_MEDIA: Final = _Fields({"data": _is_base64, "mimeType": _is_text}, _COMMON)
_LINK: Final = _Fields(
    {"uri": _is_text, "name": _is_text},
    {
        **_COMMON,
        "title": _is_text,
        "description": _is_text,
        "mimeType": _is_text,
        "size": _is_size,
        "icons": _list_of(_ICON),
    },
)
_TYPES: Final[Mapping[str, Check]] = {
    "text": _Fields({"text": _is_text}, _COMMON),
    "image": _MEDIA,
    "audio": _MEDIA,
    "resource_link": _LINK,
    "resource": _Fields({"resource": _is_contents}, _COMMON),
    "file": _Fields({"file": _FILE}, _COMMON),
}
"""A block that passes is valid to the SDK's types too, with the same values."""


def parse_blocks(result: Mapping[str, Any], *, limits: Limits, server: str) -> tuple[Block, ...]:
    """Parse the blocks of a `tools/call` result.

    Raises `ProtocolError` if `content` is not a list, `LimitError` past `Limits.result_items`.
    """
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
