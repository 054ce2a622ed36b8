"""The format of results in each protocol revision, and conversion of results for older clients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from playhead.content.block_types import BLOCK_TYPES
from playhead.content.findings import kind_of
from playhead.content.formats import number, quoted
from playhead.errors import UsageError

if TYPE_CHECKING:
    from mcp_types import CallToolResult

REVISION_NAMES: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Oldest first, so that revisions compare as strings."""
LATEST: Final = REVISION_NAMES[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The features of results in one revision."""

    revision: str
    structured: bool
    """True if results have `structuredContent`, as an object (since 2025-06-18)."""
    structured_any: bool
    """True if `structuredContent` may be of any type (since 2026-07-28)."""
    block_meta: bool
    """True if blocks and embedded contents may have `_meta` (since 2025-06-18). Results may have it in every
    revision."""
    last_modified: bool
    """True if annotations may have `lastModified` (since 2025-06-18)."""
    icons: bool
    """True if links may have `icons` (since 2025-11-25)."""
    result_type: bool
    """True if `resultType` is required (since 2026-07-28)."""

    @property
    def block_types(self) -> tuple[str, ...]:
        """The block types that the revision defines."""
        types = BLOCK_TYPES.items()
        return tuple(name for name, each in types if each.since is not None and each.since <= self.revision)


def features_of(revision: str) -> Features:
    """Return the features of `revision`. Raises `UsageError` if it is not in `REVISION_NAMES`."""
    if revision not in REVISION_NAMES:
        raise UsageError(
            f"expected a protocol revision, one of {', '.join(REVISION_NAMES)}; got {revision!r:.40}"
        )
    return Features(
        revision=revision,
        structured=revision >= "2025-06-18",
        structured_any=revision >= "2026-07-28",
        block_meta=revision >= "2025-06-18",
        last_modified=revision >= "2025-06-18",
        icons=revision >= "2025-11-25",
        result_type=revision >= "2026-07-28",
    )


def downgrade(response: CallToolResult, revision: str) -> CallToolResult:
    """Convert `response` for a client of `revision`. For the newest revision nothing changes.

    Raises `UsageError` for an unknown revision.
    """
    from playhead.content.builders import dump

    return type(response).model_validate(downgrade_raw(dump(response), revision))


def downgrade_raw(raw: Mapping[str, Any], revision: str) -> dict[str, Any]:
    """Convert a result in JSON, such as in a proxy. Unknown fields stay, and so does invalid data, which
    `validate_tool_response` detects.

    `raw` is not modified, but the returned object shares parts with it. Raises `UsageError` for an unknown
    revision.
    """
    features = features_of(revision)
    result = dict(raw)
    if isinstance(blocks := result.get("content"), list):
        result["content"] = [_converted_block(block, index, features) for index, block in enumerate(blocks)]
    if "structuredContent" in result:
        structured = result["structuredContent"]
        if not features.structured or not (features.structured_any or isinstance(structured, dict)):
            del result["structuredContent"]
            _add_as_text(result, structured)
    return result


def _converted_block(block: object, index: int, features: Features) -> object:
    if not isinstance(block, dict):
        return _text_block(f"[A block that is {kind_of(block)} was omitted]", {}, features)
    kind = block.get("type")
    if kind in features.block_types:
        return _without_newer_fields(block, features)
    if kind == "resource_link":
        return _text_block(_link_as_text(block), block, features)
    if kind == "file" and isinstance(file := block.get("file"), dict):
        return _text_block(_link_as_text(file), block, features)
    if isinstance(kind, str) and kind in BLOCK_TYPES and BLOCK_TYPES[kind].has_data:
        contents = {"uri": f"tool-result:/{kind}/{index}", "blob": block.get("data")}
        if "mimeType" in block:
            contents["mimeType"] = block["mimeType"]
        return _with_common_fields(block, {"type": "resource", "resource": contents}, features)
    name = quoted(kind) if isinstance(kind, str) else kind_of(kind)
    return _text_block(
        f"[A block of type {name} was omitted: {features.revision} does not define it]", block, features
    )


def _text_block(text: str, block: Mapping[str, object], features: Features) -> dict[str, object]:
    return _with_common_fields(block, {"type": "text", "text": text}, features)


def _with_common_fields(
    block: Mapping[str, object], new: dict[str, object], features: Features
) -> dict[str, object]:
    """Copy the fields that all types share, `annotations` and `_meta`, from `block` to `new`."""
    for key in ("annotations", "_meta"):
        if key in block:
            new[key] = block[key]
    return _without_newer_fields(new, features)


def _without_newer_fields(block: Mapping[str, object], features: Features) -> dict[str, object]:
    new = dict(block)
    if not features.block_meta:
        new.pop("_meta", None)
        if isinstance(contents := new.get("resource"), dict):
            new["resource"] = {key: value for key, value in contents.items() if key != "_meta"}
    if not features.icons and new.get("type") == "resource_link":
        new.pop("icons", None)
    if not features.last_modified and isinstance(notes := new.get("annotations"), dict):
        new["annotations"] = {key: value for key, value in notes.items() if key != "lastModified"}
    return new


def _link_as_text(link: Mapping[str, object]) -> str:
    """Format a link as `Title: URI (type, size)`, with its description on the next line."""
    words = {key: value for key, value in link.items() if isinstance(value, str)}
    name, uri = words.get("title") or words.get("name") or "Resource", words.get("uri", "")
    size = link.get("size")
    facts = [words["mimeType"]] if "mimeType" in words else []
    if isinstance(size, int | float) and not isinstance(size, bool):
        facts.append(f"{number(size)} bytes")
    line = f"{name}: {uri}" + (f" ({', '.join(facts)})" if facts else "")
    return f"{line}\n{words['description']}" if "description" in words else line


def _add_as_text(result: dict[str, Any], structured: object) -> None:
    """Append the JSON of `structured` as a text block, unless a block already contains it."""
    blocks = result.get("content")
    blocks = list(blocks) if isinstance(blocks, list) else []
    canonical = _canonical_json(structured)
    if canonical is None:
        text = "[Structured content was omitted: it is nested too deeply]"
    else:
        text = json.dumps(structured, ensure_ascii=False)
        if any(_contains_json(block, canonical) for block in blocks):
            return
    result["content"] = [*blocks, {"type": "text", "text": text}]


def _contains_json(block: object, canonical: str) -> bool:
    """Return True if `block` is a text block with the JSON whose canonical form is `canonical`."""
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    if not isinstance(text, str):
        return False
    try:
        return _canonical_json(json.loads(text)) == canonical
    except (ValueError, RecursionError):
        return False


def _canonical_json(value: object) -> str | None:
    """Return the JSON of a value with sorted keys; None if the value is nested too deeply."""
    try:
        return json.dumps(value, sort_keys=True)
    except RecursionError:
        return None
