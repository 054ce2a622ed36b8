"""Content blocks: every one kept as it came, beside a typed view of what is understood.

Blocks are parsed one by one, over the SDK's own types. One of a known type with a wrong or missing field is
still that block where what matters is there: the field is left out (or, for a link without a name, taken from
its URI), and a finding says so. One that is unknown, or without what matters, fails nothing either: it stands
in its place as an `UnknownBlock`. Dumping gives the raw objects back, unchanged: the SDK's types drop unknown
fields and turn `priority: 1` into `1.0`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from playhead.content.findings import MAX_FINDINGS, Finding, kind_of, step
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

_NEEDED: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"type", "text"}),
    "image": frozenset({"type", "data"}),
    "audio": frozenset({"type", "data"}),
    "resource_link": frozenset({"type", "uri"}),
    "resource": frozenset({"type", "resource"}),
}
"""What a block can't be understood without."""
_LISTS: Final = ("annotations", "icons")
"""The fields that hold lists of checked values; nobody needs them to understand a block."""

MOST_BYTES: Final = 2**53 - 1
"""The greatest size of a link: whole numbers above it are not the same in every JSON parser (RFC 8259, 6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownBlock:
    """A block of a type nobody here knows, or of a known type without what it must hold."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One content block: the object as it came, and what it was understood as."""

    raw: Any
    """As it came: an object, unless the server sent something else in its place."""
    content: TypedContent | UnknownBlock
    findings: tuple[Finding, ...] = field(default=())
    """What was wrong with it. Paths begin at the block: `$.name`."""


def parse_block(raw: object) -> Block:
    """`raw` as a block; never raises."""
    if not isinstance(raw, dict):
        reason = f"expected an object, came {kind_of(raw)}"
        return Block(raw=raw, content=UnknownBlock(kind="", reason=reason))
    named = raw.get("type")
    kind = named if isinstance(named, str) else ""
    model = KNOWN.get(kind)
    if model is None:
        return Block(raw=raw, content=UnknownBlock(kind=kind, reason=f"the type {named!r} is not known"))
    try:
        content = _validated(model, raw)
    except ValidationError as error:
        return _mended(kind, model, raw, error)
    return _with_possible_size(Block(raw=raw, content=content))


def _validated(model: type[TypedContent], raw: Mapping[str, Any]) -> TypedContent:
    # Of a union of models mypy keeps only their base.
    content: Any = model.model_validate(raw, by_name=False)
    return content  # type: ignore[no-any-return]


def _mended(kind: str, model: type[TypedContent], raw: Mapping[str, Any], error: ValidationError) -> Block:
    """The block without its wrong fields."""
    kept = dict(raw)
    findings: tuple[Finding, ...] = ()
    if (count := error.error_count()) > MAX_FINDINGS:
        # Only lists have so many faults. To name them all takes seconds for a message full of them.
        fewer = {key: value for key, value in raw.items() if key not in _LISTS}
        expected = f"at most {MAX_FINDINGS} wrong values in one block"
        many = Finding(path="$", expected=expected, came=f"{count}; {' and '.join(_LISTS)} are left out")
        rest = parse_block(fewer)
        return Block(raw=raw, content=rest.content, findings=(many, *rest.findings))
    if kind == "resource" and isinstance(contents := raw.get("resource"), dict):
        kept["resource"], findings = _mended_contents(contents)
    inside = bool(findings)
    found = dict[str, Finding]()
    for item in _errors(error):
        if kind == "resource" and item["loc"][0] == "resource":
            if inside:
                continue  # found already; the SDK names each member of its union, as text and as a blob
            item["loc"] = ("resource",)
        finding = _finding("$", raw, item)
        found.setdefault(finding.path, finding)
        kept.pop(str(item["loc"][0]), None)
    findings += tuple(found.values())
    if kind == "resource_link" and isinstance(uri := kept.get("uri"), str):
        kept.setdefault("name", uri)
    if kind in ("image", "audio"):
        kept.setdefault("mimeType", "application/octet-stream")
    if _NEEDED[kind] <= kept.keys():
        try:
            mended = Block(raw=raw, content=_validated(model, kept), findings=findings)
            return _with_possible_size(mended)
        except ValidationError:
            pass
    first = findings[0]
    reason = f"{first.path}: expected {first.expected}, came {first.came}"
    return Block(raw=raw, content=UnknownBlock(kind=kind, reason=reason), findings=findings)


def _with_possible_size(block: Block) -> Block:
    """The block, without a size that nothing has: what counts with it later holds 64 bits, and no sign."""
    link = block.content
    if not isinstance(link, ResourceLink) or link.size is None or 0 <= link.size <= MOST_BYTES:
        return block
    came = "a negative number" if link.size < 0 else "a greater number"
    finding = Finding(path="$.size", expected=f"a number of bytes from 0 to {MOST_BYTES}", came=came)
    return replace(block, content=link.model_copy(update={"size": None}), findings=(*block.findings, finding))


def _mended_contents(raw: dict[str, Any]) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Embedded contents without what is wrong among their optional fields."""
    blob = "blob" in raw and "text" not in raw
    model: type[ResourceContents] = BlobResourceContents if blob else TextResourceContents
    try:
        model.model_validate(raw, by_name=False)
    except ValidationError as error:
        wrong = _errors(error)
        dropped = {item["loc"][0] for item in wrong}
        kept = {key: value for key, value in raw.items() if key not in dropped}
        return kept, tuple(_finding("$.resource", raw, item) for item in wrong)
    return raw, ()


def _errors(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_input=False, include_url=False)


def _finding(path: str, raw: Mapping[str, Any], item: ErrorDetails) -> Finding:
    where = path
    for key in item["loc"]:
        where = step(where, key)
    if item["type"] == "missing":
        return Finding(path=where, expected="this field, which is required", came="nothing")
    is_object = item["type"] in ("dict_type", "model_type")
    expected = "an object" if is_object else item["msg"].removeprefix("Input should be ")
    return Finding(path=where, expected=expected, came=kind_of(_at(raw, item["loc"])))


def _at(raw: object, path: tuple[int | str, ...]) -> object:
    for part in path:
        match raw, part:
            case dict(), str():
                raw = raw.get(part)
            case list(), int() if part < len(raw):
                raw = raw[part]
            case _:
                return None
    return raw


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
