"""A result for a client of an older revision: what it could not read, in a form that it can.

* a link (before 2025-06-18) becomes a line of text with its URI: there are no contents to embed, and the
  model or the person can still hand the URI on;
* sound (before 2025-03-26) becomes an embedded blob of the same type: a client that plays blobs plays it,
  and the bytes are not lost;
* `structuredContent` that the revision lacks, or that is no object before 2026-07-28, becomes text JSON,
  unless a text block already says the same;
* a block of a type nobody knows becomes a line that says so: one unknown block fails the whole result in
  clients that hold it against the schema;
* fields that came later (`_meta` on blocks, `lastModified`, `icons`) are left out.

Order, annotations and everything else stay, and a result that the revision has already is not changed.
What was valid in the newest revision is valid in the one asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp_types import CallToolResult

from playhead.content.builders import dump
from playhead.content.findings import kind_of
from playhead.content.formats import number, quoted
from playhead.content.revisions import Features, features_of


def downgrade(response: CallToolResult, revision: str) -> CallToolResult:
    """`response` as a client of `revision` can read it; the newest revision changes nothing.

    Raises `UsageError` for an unknown revision.
    """
    return CallToolResult.model_validate(downgrade_raw(dump(response), revision))


def downgrade_raw(raw: Mapping[str, Any], revision: str) -> dict[str, Any]:
    """The same for a result as JSON, such as a proxy holds; fields that no revision knows are kept.

    `raw` is not changed, though the answer shares parts with it. What is wrong with it stays wrong: see
    `validate_tool_response`. Raises `UsageError` for an unknown revision.
    """
    features = features_of(revision)
    result = dict(raw)
    if isinstance(blocks := result.get("content"), list):
        result["content"] = [_block(block, index, features) for index, block in enumerate(blocks)]
    if "structuredContent" in result:
        structured = result["structuredContent"]
        if not features.structured or not (features.structured_any or isinstance(structured, dict)):
            del result["structuredContent"]
            _add_text(result, structured)
    return result


def _block(block: object, index: int, features: Features) -> object:
    if not isinstance(block, dict):
        return _note(f"[A block that is {kind_of(block)} was left out]", {}, features)
    kind = block.get("type")
    if kind in features.block_types:
        return _older(block, features)
    if kind == "resource_link":
        return _note(_link_line(block), block, features)
    if kind == "audio":
        contents = {"uri": f"tool-result:/audio/{index}", "blob": block.get("data")}
        if "mimeType" in block:
            contents["mimeType"] = block["mimeType"]
        return _kept(block, {"type": "resource", "resource": contents}, features)
    name = quoted(kind) if isinstance(kind, str) else kind_of(kind)
    return _note(f"[A block of type {name} was left out: {features.revision} has none]", block, features)


def _note(text: str, block: Mapping[str, object], features: Features) -> dict[str, object]:
    return _kept(block, {"type": "text", "text": text}, features)


def _kept(block: Mapping[str, object], new: dict[str, object], features: Features) -> dict[str, object]:
    """`new` with the annotations that `block` had."""
    for key in ("annotations", "_meta"):
        if key in block:
            new[key] = block[key]
    return _older(new, features)


def _older(block: Mapping[str, object], features: Features) -> dict[str, object]:
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


def _link_line(link: Mapping[str, object]) -> str:
    """`Title: URI (type, size). Description`."""
    words = {key: value for key, value in link.items() if isinstance(value, str)}
    name, uri = words.get("title") or words.get("name") or "Resource", words.get("uri", "")
    size = link.get("size")
    facts = [words["mimeType"]] if "mimeType" in words else []
    if isinstance(size, int | float) and not isinstance(size, bool):
        facts.append(f"{number(size)} bytes")
    line = f"{name}: {uri}" + (f" ({', '.join(facts)})" if facts else "")
    return f"{line}\n{words['description']}" if "description" in words else line


def _add_text(result: dict[str, Any], structured: object) -> None:
    """The JSON of `structured` as a text block at the end, where no block already says it."""
    blocks = result.get("content")
    blocks = list(blocks) if isinstance(blocks, list) else []
    wanted = _canonical(structured)
    if wanted is None:
        text = "[Structured content was left out: it is nested too deep]"
    else:
        text = json.dumps(structured, ensure_ascii=False)
        if any(_says(block, wanted) for block in blocks):
            return
    result["content"] = [*blocks, {"type": "text", "text": text}]


def _says(block: object, wanted: str) -> bool:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    if not isinstance(text, str):
        return False
    try:
        return _canonical(json.loads(text)) == wanted
    except (ValueError, RecursionError):
        return False


def _canonical(value: object) -> str | None:
    try:
        return json.dumps(value, sort_keys=True)
    except RecursionError:
        return None
