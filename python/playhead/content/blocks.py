"""Content blocks: the raw object alongside a typed view.

Blocks are parsed one at a time with the SDK's types. An invalid optional field is dropped with a finding, and
the block keeps its type as long as the essential fields are valid; a link without a name is named after its
URI. A block of an unknown type, or without an essential field, becomes an `UnknownBlock` and does not fail
the result. Dumping returns the raw objects unchanged, because the SDK's types drop unknown fields and turn
`priority: 1` into `1.0`.

Long base64 that arrives as a view of its message (`messages.parse_message`) stays one: the SDK's types take
only strings, and a copy of 63 MiB costs more than receiving it. Such a block is validated with an empty
string in its place; `raw` and `content` are made when somebody reads them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from mcp_types import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from playhead.content.findings import MAX_FINDINGS, Finding, kind_of, step
from playhead.content.formats import Base64Text, Postponed, postpone, source_of, string_of
from playhead.errors import LimitError, ProtocolError
from playhead.limits import Limits

_HEX_SHA256: Final = re.compile("[0-9a-fA-F]{64}", re.ASCII)
_BASE64_SHA256: Final = re.compile("[A-Za-z0-9+/_-]{43}=?", re.ASCII)


class FileValue(BaseModel):
    """A file that is read out of band (SEP-2631, a draft): a handle, and what the server says about it."""

    model_config = ConfigDict(populate_by_name=True, frozen=True)

    uri: str
    """For `files/authorizeDownload`; `resources/read` need not know it."""
    name: str | None = None
    mime_type: str | None = Field(default=None, alias="mimeType")
    size: int | None = None
    digest: dict[str, Any] | None = None
    """`{"sha-256": value}`, or `{"algorithm": "sha-256", "value": value}` in newer drafts."""

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of the file in hexadecimal; None if the server gives none that can be read."""
        digest = self.digest or {}
        value = digest.get("sha-256")
        if str(digest.get("algorithm", "")).lower() == "sha-256":
            value = digest.get("value")
        if not isinstance(value, str):
            return None
        if _HEX_SHA256.fullmatch(value):
            return value.lower()
        if _BASE64_SHA256.fullmatch(value) is None:
            return None
        try:
            return base64.urlsafe_b64decode(value.rstrip("=").translate(_URL_SAFE) + "=").hex()
        except binascii.Error:
            return None


_URL_SAFE: Final = str.maketrans("+/", "-_")


class FileContent(BaseModel):
    """A content block with a `FileValue`. The SDK has no type for it."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["file"] = "file"
    file: FileValue
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = Field(default=None, alias="_meta")


def file_value(raw: object, *, uri: str) -> FileValue:
    """Return what `raw` says about the file `uri`, without its invalid fields."""
    kept = _mended_fields(FileValue, raw, "$")[0] if isinstance(raw, dict) else {}
    return FileValue.model_validate({**kept, "uri": uri}, by_alias=True)


StandardContent = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
"""The blocks of the protocol's revisions."""
TypedContent = StandardContent | FileContent

KNOWN: Final[Mapping[str, type[TypedContent]]] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "resource_link": ResourceLink,
    "resource": EmbeddedResource,
    "file": FileContent,
}

_NEEDED: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"type", "text"}),
    "image": frozenset({"type", "data"}),
    "audio": frozenset({"type", "data"}),
    "resource_link": frozenset({"type", "uri"}),
    "resource": frozenset({"type", "resource"}),
    "file": frozenset({"type", "file"}),
}
"""Essential fields of a block."""
_LISTS: Final = ("annotations", "icons")
"""Fields that hold lists of validated values; none is essential."""

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
    def outline(self) -> TypedContent | UnknownBlock:
        """`content`, or the same with an empty string in place of its base64: for all other fields."""
        held = source_of(self)
        return held.outline if isinstance(held, _Held) else self.content

    @property
    def payload(self) -> Base64Text | None:
        """The base64 of an image, audio or a blob as received, for decoding, which needs no string."""
        held = source_of(self)
        return held.view if isinstance(held, _Held) else _base64_in(self.content)


@dataclass(slots=True, kw_only=True)
class _Held:
    """A block whose base64 is a view of its message."""

    received: dict[str, Any]
    view: memoryview
    outline: TypedContent

    def raw(self) -> dict[str, Any]:
        """The object received, with a string in place of the view."""
        _make_strings(self.received)
        return self.received

    def content(self) -> TypedContent:
        raw = self.raw()
        if isinstance(self.outline, EmbeddedResource):
            contents = self.outline.resource.model_copy(update={"blob": raw["resource"]["blob"]})
            return self.outline.model_copy(update={"resource": contents})
        return self.outline.model_copy(update={"data": raw["data"]})


def _base64_in(content: TypedContent | UnknownBlock) -> str | None:
    match content:
        case ImageContent(data=base64) | AudioContent(data=base64):
            return base64
        case EmbeddedResource(resource=BlobResourceContents(blob=base64)):
            return base64
        case _:
            return None


def parse_block(raw: object) -> Block:
    """Parse `raw` as a block; never raises."""
    if not isinstance(raw, dict):
        reason = f"expected an object, got {kind_of(raw)}"
        return Block(raw=raw, content=UnknownBlock(kind="", reason=reason))
    if any(isinstance(holder[key], memoryview) for holder, key in _base64_places(raw)):
        return _parse_held(raw)
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


def _parse_held(raw: dict[str, Any]) -> Block:
    """Parse a block with a view. If it is not as its type says, the view becomes a string first."""
    places = [(holder, key) for holder, key in _base64_places(raw) if isinstance(holder[key], memoryview)]
    holder, key = places[0]
    emptied = {**holder, key: ""}
    outlined = parse_block(emptied if holder is raw else {**raw, "resource": emptied})
    outline = outlined.content
    home = EmbeddedResource if key == "blob" else ImageContent | AudioContent
    if len(places) > 1 or outlined.findings or not isinstance(outline, home) or _base64_in(outline) != "":
        _make_strings(raw)
        return parse_block(raw)
    block = Block(raw=raw, content=outline)
    postpone(
        block,
        _Held(received=raw, view=holder[key], outline=outline),
        raw=_Held.raw,
        content=_Held.content,
    )
    return block


def _base64_places(raw: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects in a block that may hold base64, and its key there."""
    if "data" in raw:
        yield raw, "data"
    if isinstance(contents := raw.get("resource"), dict) and "blob" in contents:
        yield contents, "blob"


def _make_strings(raw: dict[str, Any]) -> None:
    """Make the views in a block strings, in place."""
    for holder, key in _base64_places(raw):
        if isinstance(view := holder[key], memoryview):
            holder[key] = string_of(view)


def _validated(model: type[TypedContent], raw: Mapping[str, Any]) -> TypedContent:
    # mypy reduces a union of models to their base class.
    content: Any = model.model_validate(raw, by_name=False)
    return content  # type: ignore[no-any-return]


def _mended(kind: str, model: type[TypedContent], raw: Mapping[str, Any], error: ValidationError) -> Block:
    """Parse the block without its invalid fields."""
    kept = dict(raw)
    findings: tuple[Finding, ...] = ()
    if (count := error.error_count()) > MAX_FINDINGS:
        # Only lists have this many errors, and listing them all takes seconds for a large message.
        fewer = {key: value for key, value in raw.items() if key not in _LISTS}
        expected = f"at most {MAX_FINDINGS} invalid values in one block"
        many = Finding(path="$", expected=expected, came=f"{count}; {' and '.join(_LISTS)} are ignored")
        rest = parse_block(fewer)
        return Block(raw=raw, content=rest.content, findings=(many, *rest.findings))
    if kind == "resource" and isinstance(contents := raw.get("resource"), dict):
        kept["resource"], findings = _mended_contents(contents)
    if kind == "file" and isinstance(described := raw.get("file"), dict):
        kept["file"], findings = _mended_fields(FileValue, described, "$.file")
    inside = bool(findings)
    found = dict[str, Finding]()
    for item in _errors(error):
        if kind in ("resource", "file") and item["loc"][0] == kind:
            if inside:
                continue  # already found; the SDK reports errors for both members of its union, text and blob
            item["loc"] = (kind,)
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
    reason = f"{first.path}: expected {first.expected}, got {first.came}"
    return Block(raw=raw, content=UnknownBlock(kind=kind, reason=reason), findings=findings)


def _with_possible_size(block: Block) -> Block:
    """Drop a negative or too large size, because the code that uses it later has unsigned 64-bit integers."""
    content = block.content
    link = content.file if isinstance(content, FileContent) else content
    if not isinstance(link, ResourceLink | FileValue) or link.size is None or 0 <= link.size <= MOST_BYTES:
        return block
    came = "a negative number" if link.size < 0 else "a greater number"
    path = "$.size" if link is content else "$.file.size"
    finding = Finding(path=path, expected=f"a number of bytes from 0 to {MOST_BYTES}", came=came)
    mended: TypedContent
    if isinstance(content, FileContent):
        mended = content.model_copy(update={"file": content.file.model_copy(update={"size": None})})
    else:
        assert isinstance(link, ResourceLink)
        mended = link.model_copy(update={"size": None})
    return replace(block, content=mended, findings=(*block.findings, finding))


def _mended_contents(raw: dict[str, Any]) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Drop the invalid fields of embedded contents."""
    blob = "blob" in raw and "text" not in raw
    model: type[ResourceContents] = BlobResourceContents if blob else TextResourceContents
    return _mended_fields(model, raw, "$.resource")


def _mended_fields(
    model: type[BaseModel], raw: dict[str, Any], path: str
) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Drop the invalid fields of an object inside a block."""
    try:
        model.model_validate(raw, by_name=False)
    except ValidationError as error:
        wrong = _errors(error)
        dropped = {item["loc"][0] for item in wrong}
        kept = {key: value for key, value in raw.items() if key not in dropped}
        return kept, tuple(_finding(path, raw, item) for item in wrong)
    return raw, ()


def _errors(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_input=False, include_url=False)


def _finding(path: str, raw: Mapping[str, Any], item: ErrorDetails) -> Finding:
    where = path
    for key in item["loc"]:
        where = step(where, key)
    if item["type"] == "missing":
        return Finding(path=where, expected="this required field", came="nothing")
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
