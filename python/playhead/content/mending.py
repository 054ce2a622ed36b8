"""Parsing of blocks with invalid fields: it drops these fields, with a finding for each.

An invalid optional field does not affect the rest of the block. A block without an essential field is an
`UnknownBlock`. The SDK's types find the invalid fields; `content.blocks` loads this file only for such a
block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from mcp_types import BlobResourceContents, ResourceContents, ResourceLink, TextResourceContents
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from playhead.content.block_types import BLOCK_TYPES, MOST_BYTES
from playhead.content.blocks import Block, UnknownBlock
from playhead.content.findings import MAX_FINDINGS, Finding, kind_of, step
from playhead.content.types import FileContent, FileValue, TypedContent, typed

_LIST_FIELDS: Final = ("annotations", "icons")
"""Fields that hold lists of validated values; none is essential."""


def file_value(raw: object, *, uri: str) -> FileValue:
    """Parse the description `raw` of the file `uri`, without its invalid fields."""
    valid = _mended_fields(FileValue, raw, "$")[0] if isinstance(raw, dict) else {}
    return FileValue.model_validate({**valid, "uri": uri}, by_alias=True)


def mended(kind: str, raw: dict[str, Any]) -> Block:
    """Parse a block of a known type without its invalid fields; never raises."""
    try:
        return _with_valid_size(Block(raw=raw, content=typed(kind, raw)))
    except ValidationError as error:
        return _without_invalid_fields(kind, raw, error)


def _without_invalid_fields(kind: str, raw: dict[str, Any], error: ValidationError) -> Block:
    valid = dict(raw)
    findings: tuple[Finding, ...] = ()
    if (count := error.error_count()) > MAX_FINDINGS:
        return _without_lists(kind, raw, count)
    if kind == "resource" and isinstance(contents := raw.get("resource"), dict):
        valid["resource"], findings = _mended_contents(contents)
    if kind == "file" and isinstance(described := raw.get("file"), dict):
        valid["file"], findings = _mended_fields(FileValue, described, "$.file")
    has_inner_findings = bool(findings)
    finding_by_path = dict[str, Finding]()
    for item in _error_details(error):
        if kind in ("resource", "file") and item["loc"][0] == kind:
            if has_inner_findings:
                continue  # reported above; the SDK lists errors of both members of its union, text and blob
            item["loc"] = (kind,)
        finding = _finding_of("$", raw, item)
        finding_by_path.setdefault(finding.path, finding)
        valid.pop(str(item["loc"][0]), None)
    findings += tuple(finding_by_path.values())
    if kind == "resource_link" and isinstance(uri := valid.get("uri"), str):
        valid.setdefault("name", uri)
    if BLOCK_TYPES[kind].has_data:
        valid.setdefault("mimeType", "application/octet-stream")
    if {"type", BLOCK_TYPES[kind].essential} <= valid.keys():
        try:
            block = Block(raw=raw, content=typed(kind, valid), findings=findings)
            return _with_valid_size(block)
        except ValidationError:
            pass
    first = findings[0]
    reason = f"{first.path}: expected {first.expected}, got {first.got}"
    return Block(raw=raw, content=UnknownBlock(kind=kind, reason=reason), findings=findings)


def _without_lists(kind: str, raw: dict[str, Any], n_errors: int) -> Block:
    """Parse a block with too many errors. Only lists have so many, and to list them all takes seconds."""
    without_lists = {key: value for key, value in raw.items() if key not in _LIST_FIELDS}
    finding = Finding(
        path="$",
        expected=f"at most {MAX_FINDINGS} invalid values in one block",
        got=f"{n_errors}; {' and '.join(_LIST_FIELDS)} are ignored",
    )
    rest = mended(kind, without_lists)
    return Block(raw=raw, content=rest.content, findings=(finding, *rest.findings))


def _with_valid_size(block: Block) -> Block:
    """Drop a negative or too large size, because later code uses unsigned 64-bit integers."""
    content = block.content
    link = content.file if isinstance(content, FileContent) else content
    if not isinstance(link, ResourceLink | FileValue) or link.size is None or 0 <= link.size <= MOST_BYTES:
        return block
    actual = "a negative number" if link.size < 0 else "a greater number"
    path = "$.size" if link is content else "$.file.size"
    finding = Finding(path=path, expected=f"a number of bytes from 0 to {MOST_BYTES}", got=actual)
    corrected: TypedContent
    if isinstance(content, FileContent):
        corrected = content.model_copy(update={"file": content.file.model_copy(update={"size": None})})
    else:
        assert isinstance(link, ResourceLink)
        corrected = link.model_copy(update={"size": None})
    return replace(block, content=corrected, findings=(*block.findings, finding))


def _mended_contents(raw: dict[str, Any]) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Drop the invalid fields of embedded contents."""
    has_blob = "blob" in raw and "text" not in raw
    model: type[ResourceContents] = BlobResourceContents if has_blob else TextResourceContents
    return _mended_fields(model, raw, "$.resource")


def _mended_fields(
    model: type[BaseModel], raw: dict[str, Any], path: str
) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Drop the invalid fields of an object inside a block."""
    try:
        model.model_validate(raw, by_name=False)
    except ValidationError as error:
        errors = _error_details(error)
        invalid = {item["loc"][0] for item in errors}
        valid = {key: value for key, value in raw.items() if key not in invalid}
        return valid, tuple(_finding_of(path, raw, item) for item in errors)
    return raw, ()


def _error_details(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_input=False, include_url=False)


def _finding_of(path: str, raw: Mapping[str, Any], item: ErrorDetails) -> Finding:
    where = path
    for key in item["loc"]:
        where = step(where, key)
    if item["type"] == "missing":
        return Finding(path=where, expected="this required field", got="nothing")
    is_object = item["type"] in ("dict_type", "model_type")
    expected = "an object" if is_object else item["msg"].removeprefix("Input should be ")
    return Finding(path=where, expected=expected, got=kind_of(_value_at(raw, item["loc"])))


def _value_at(raw: object, path: tuple[int | str, ...]) -> object:
    for part in path:
        match raw, part:
            case dict(), str():
                raw = raw.get(part)
            case list(), int() if part < len(raw):
                raw = raw[part]
            case _:
                return None
    return raw
