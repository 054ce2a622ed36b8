"""Validation of tool results against a protocol revision: every defect, with its path.

No server data raises an exception, and there are at most `findings.MAX_FINDINGS` findings and one that
reports an omission. Where the text of the specification is stricter than its schemas, so is this module: for
base64, MIME types, times, `_meta` keys, and the revision that introduced each type of block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from playhead.content.block_types import (
    ANNOTATIONS,
    BLOB_CONTENTS,
    BLOCK_TYPES,
    COMMON,
    ICON,
    ICONS,
    SIZE,
    TEXT_CONTENTS,
    Field,
    JsonType,
    text_field,
    uri_field,
)
from playhead.content.findings import Finding, Notes, kind_of, step
from playhead.content.formats import meta_key_problem, number, quoted
from playhead.content.revisions import LATEST, Features, features_of
from playhead.content.validation_schema import check_output

_TYPE_WITH_ARTICLE: Final[Mapping[JsonType, str]] = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "object": "an object",
    "array": "an array",
}
SERVER_INFO: Final = (
    text_field("name", required=True),
    text_field("version", required=True),
    text_field("title"),
    text_field("description"),
    uri_field("websiteUrl"),
    ICONS,
)
"""`Implementation`: the description of the server in a result's `_meta` (2026-07-28)."""


def check_fields(notes: Notes, path: str, raw: Mapping[str, object], fields: tuple[Field, ...]) -> None:
    """Add a finding for each missing or invalid field. Unknown fields are allowed everywhere."""
    for field in fields:
        if field.name in raw:
            check_value(notes, step(path, field.name), raw[field.name], field)
        elif field.required:
            notes.add(step(path, field.name), expected=_expected(field), got="nothing")


def check_value(notes: Notes, path: str, value: object, field: Field) -> None:
    """Add a finding if `value` has another JSON type than `field`, or another syntax."""
    if not _has_type(field.kind, value):
        notes.add(path, expected=_expected(field), got=kind_of(value))
    elif isinstance(value, str) and field.problem is not None and (problem := field.problem(value)):
        notes.add(path, expected=field.expected, got=problem)


def _expected(field: Field) -> str:
    return field.expected or _TYPE_WITH_ARTICLE[field.kind]


def _has_type(kind: JsonType, value: object) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "integer":
            # JSON has one kind of number: 3.0 is an integer (JSON Schema, validation, 6.1.1).
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and not isinstance(value, bool)
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)


_RESULT_FIELDS = (Field(name="isError", kind="boolean"), Field(name="_meta", kind="object"))
_RESULT_TYPE_FIELD = Field(name="resultType", required=True, expected="resultType, such as complete")
_SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
_NO_META = "no _meta here: only results, blocks and embedded contents carry one"


def validate_tool_response(
    raw: object, revision: str = LATEST, *, output_schema: object = None
) -> list[Finding]:
    """Return the defects of a raw `tools/call` result; empty if valid.

    `output_schema` is the tool's `outputSchema`, if any. Unless the result is an error, its
    `structuredContent` must match it. The schema is as untrusted as the result: nothing is fetched for it,
    and an invalid or slow one is a finding. The largest messages take at most a few seconds of CPU time. The
    clock is read only to stop a runaway regular expression.

    Raises `UsageError` for an unknown revision, and never because of server data.
    """
    features = features_of(revision)
    notes = Notes()
    if not isinstance(raw, dict):
        notes.add("$", expected="an object", got=kind_of(raw))
        return notes.all()
    fields = (*_RESULT_FIELDS, _RESULT_TYPE_FIELD) if features.result_type else _RESULT_FIELDS
    check_fields(notes, "$", raw, fields)
    _check_meta(notes, "$", raw, features)
    _check_server_info(notes, raw, features)
    content = raw.get("content")
    if not isinstance(content, list):
        actual = kind_of(content) if "content" in raw else "nothing"
        notes.add("$.content", expected="an array of blocks", got=actual)
        content = []
    for index, block in enumerate(content):
        if notes.full:
            break
        _check_block(notes, f"$.content[{index}]", block, features)
    _check_structured(notes, raw, features, output_schema)
    return notes.all()


def _check_block(notes: Notes, path: str, block: object, features: Features) -> None:
    if not isinstance(block, dict):
        notes.add(path, expected="an object", got=kind_of(block))
        return
    kind = block.get("type")
    types = features.block_types
    if not isinstance(kind, str) or kind not in types:
        actual = quoted(kind) if isinstance(kind, str) else kind_of(kind)
        if "type" not in block:
            actual = "nothing"
        notes.add(f"{path}.type", expected=f"one of {', '.join(types)} in {features.revision}", got=actual)
        return
    check_fields(notes, path, block, (*BLOCK_TYPES[kind].fields, *COMMON))
    _check_block_meta(notes, path, block, features)
    if isinstance(annotations := block.get("annotations"), dict):
        _check_annotations(notes, f"{path}.annotations", annotations, features)
    if kind == "resource" and isinstance(contents := block.get("resource"), dict):
        _check_contents(notes, f"{path}.resource", contents, features)
    if kind == "resource_link":
        _check_link(notes, path, block, features)


def _check_contents(notes: Notes, path: str, contents: dict[str, object], features: Features) -> None:
    has_text, has_blob = "text" in contents, "blob" in contents
    fields: tuple[Field, ...] = BLOB_CONTENTS if has_blob else TEXT_CONTENTS
    if has_text == has_blob:
        notes.add(path, expected="either text or blob", got="both" if has_text else "neither")
        fields = tuple(field for field in fields if field.name in contents or field.name == "uri")
    check_fields(notes, path, contents, fields)
    _check_block_meta(notes, path, contents, features)


def _check_link(notes: Notes, path: str, link: dict[str, object], features: Features) -> None:
    size = link.get("size")
    if isinstance(size, int | float) and size < 0:
        notes.add(f"{path}.size", expected="0 or more", got=number(size))
    if "icons" in link and not features.icons:
        notes.add(f"{path}.icons", expected=f"no icons in {features.revision}", got="icons")
    _check_icons(notes, path, link)


def _check_icons(notes: Notes, path: str, holder: Mapping[str, object]) -> None:
    icons = holder.get("icons")
    for index, icon in enumerate(icons if isinstance(icons, list) else ()):
        if notes.full:
            return
        place = f"{path}.icons[{index}]"
        if not isinstance(icon, dict):
            notes.add(place, expected="an object", got=kind_of(icon))
            continue
        check_fields(notes, place, icon, ICON)
        if "_meta" in icon:
            notes.add(f"{place}._meta", expected=_NO_META, got="_meta")
        sizes = icon.get("sizes")
        for at, size in enumerate(sizes if isinstance(sizes, list) else ()):
            if notes.full:
                return
            check_value(notes, f"{place}.sizes[{at}]", size, SIZE)


def check_annotations(notes: Notes, path: str, annotations: Mapping[str, object]) -> None:
    """Check the fields of annotations that are the same in every revision."""
    check_fields(notes, path, annotations, ANNOTATIONS)
    priority = annotations.get("priority")
    if isinstance(priority, int | float) and not isinstance(priority, bool) and not 0 <= priority <= 1:
        notes.add(f"{path}.priority", expected="a number from 0 to 1", got=number(priority))
    audience = annotations.get("audience")
    for index, role in enumerate(audience if isinstance(audience, list) else ()):
        if notes.full:
            return
        if role not in ("user", "assistant"):
            actual = quoted(role) if isinstance(role, str) else kind_of(role)
            notes.add(f"{path}.audience[{index}]", expected="user or assistant", got=actual)


def _check_annotations(notes: Notes, path: str, raw: dict[str, object], features: Features) -> None:
    check_annotations(notes, path, raw)
    if "lastModified" in raw and not features.last_modified:
        notes.add(f"{path}.lastModified", expected=f"no lastModified in {features.revision}", got="one")
    if "_meta" in raw:
        notes.add(f"{path}._meta", expected=_NO_META, got="_meta")


def _check_block_meta(notes: Notes, path: str, raw: dict[str, object], features: Features) -> None:
    if "_meta" in raw and not features.block_meta:
        expected = f"_meta on the result only in {features.revision}"
        notes.add(f"{path}._meta", expected=expected, got="_meta")
        return
    _check_meta(notes, path, raw, features)


def _check_meta(notes: Notes, path: str, raw: dict[str, object], features: Features) -> None:
    meta = raw.get("_meta")
    if not isinstance(meta, dict) or not features.block_meta:  # older revisions do not define its keys
        return
    for key in meta:
        if notes.full:
            return
        if problem := meta_key_problem(key):
            notes.add(step(f"{path}._meta", key), expected="a key such as com.example/name", got=problem)


def _check_server_info(notes: Notes, raw: dict[str, object], features: Features) -> None:
    meta = raw.get("_meta")
    if not features.result_type or not isinstance(meta, dict) or _SERVER_INFO_KEY not in meta:
        return
    path, info = step("$._meta", _SERVER_INFO_KEY), meta[_SERVER_INFO_KEY]
    if not isinstance(info, dict):
        notes.add(path, expected="an object", got=kind_of(info))
        return
    check_fields(notes, path, info, SERVER_INFO)
    _check_icons(notes, path, info)


def _check_structured(
    notes: Notes, raw: dict[str, object], features: Features, output_schema: object
) -> None:
    path = "$.structuredContent"
    if "structuredContent" in raw:
        value = raw["structuredContent"]
        if not features.structured:
            notes.add(path, expected=f"no structuredContent in {features.revision}", got=kind_of(value))
            return
        if not features.structured_any and not isinstance(value, dict):
            notes.add(path, expected=f"an object in {features.revision}", got=kind_of(value))
    if output_schema is not None and features.structured:
        _check_output(notes, raw, output_schema)


def _check_output(notes: Notes, raw: Mapping[str, object], output_schema: object) -> None:
    path = "$.structuredContent"
    if raw.get("isError") is True:
        return
    if "structuredContent" in raw:
        check_output(notes, path, raw["structuredContent"], output_schema)
    else:
        notes.add(path, expected="content that matches the tool's outputSchema", got="nothing")


def check_structured_content(raw: Mapping[str, object], output_schema: object) -> list[Finding]:
    """Return only the findings of `validate_tool_response` that concern `structuredContent` and the schema.

    May take a second for a hostile schema: call it in a thread.
    """
    notes = Notes()
    _check_output(notes, raw, output_schema)
    return notes.all()
