"""Laws of content: parsing loses nothing, and no JSON makes the validator or the downgrade fail."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from playhead.content import (
    REVISION_NAMES,
    Block,
    downgrade_raw,
    dump,
    parse_block,
    parse_blocks,
    validate_tool_response,
)
from playhead.content.findings import MAX_FINDINGS
from playhead.content.mending import mended
from playhead.limits import DEFAULT_LIMITS

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        "type",
        "text",
        "data",
        "mimeType",
        "uri",
        "name",
        "title",
        "description",
        "size",
        "icons",
        "src",
        "sizes",
        "theme",
        "resource",
        "blob",
        "annotations",
        "audience",
        "priority",
        "lastModified",
        "_meta",
    ]
)
LIKELY = st.sampled_from(
    ["text", "image", "audio", "resource_link", "resource", "user", "AAE=", "a/b", "x:1"]
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(NAMES | st.text(max_size=4), inner | LIKELY, max_size=6)


BLOCKS = st.lists(objects(objects(JSON) | JSON) | JSON, max_size=5)
RESULTS = st.fixed_dictionaries(
    {"content": BLOCKS},
    optional={
        "structuredContent": JSON,
        "isError": JSON,
        "_meta": JSON,
        "resultType": st.text(),
        "else": JSON,
    },
)
TEXT = st.text(st.characters(exclude_categories=()), max_size=4) | LIKELY
OPTIONAL_TEXT = TEXT | st.none()
META = st.dictionaries(TEXT, JSON, max_size=2) | st.none()
SIZE = st.sampled_from([0, 7, 2**53 - 1, 2**53, -1, 3.0, 3.5, True, "7", None, float("nan")])
ICONS = st.lists(
    st.fixed_dictionaries(
        {"src": TEXT},
        optional={
            "mimeType": OPTIONAL_TEXT,
            "sizes": st.lists(TEXT, max_size=2) | st.none(),
            "theme": st.sampled_from(["light", "dark", "blue", None]),
        },
    ),
    max_size=2,
)
NOTES = st.fixed_dictionaries(
    {},
    optional={
        "audience": st.lists(st.sampled_from(["user", "assistant", "all", 1, []]), max_size=2) | st.none(),
        "priority": st.sampled_from([0, 1, 0.5, 1.5, -0.0, True, "0.5", float("nan"), None]),
        "lastModified": OPTIONAL_TEXT,
    },
)
COMMON = {"_meta": META, "annotations": NOTES | st.none() | JSON, "else": JSON, "meta": JSON}
CONTENTS = st.fixed_dictionaries(
    {"uri": TEXT}, optional={"text": TEXT, "blob": TEXT, "mimeType": OPTIONAL_TEXT, "_meta": META}
)
FILE = st.fixed_dictionaries(
    {"uri": TEXT}, optional={"name": OPTIONAL_TEXT, "mimeType": OPTIONAL_TEXT, "size": SIZE, "digest": META}
)
NEARLY_VALID = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}, optional=COMMON),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["image", "audio"]), "data": TEXT, "mimeType": TEXT}, optional=COMMON
    ),
    st.fixed_dictionaries(
        {"type": st.just("resource_link"), "uri": TEXT, "name": TEXT},
        optional={
            **COMMON,
            "title": OPTIONAL_TEXT,
            "description": OPTIONAL_TEXT,
            "mimeType": OPTIONAL_TEXT,
            "size": SIZE,
            "icons": ICONS | st.none() | JSON,
        },
    ),
    st.fixed_dictionaries({"type": st.just("resource"), "resource": CONTENTS | JSON}, optional=COMMON),
    st.fixed_dictionaries({"type": st.just("file"), "file": FILE | JSON}, optional=COMMON),
)
SCHEMA_NAMES = st.sampled_from(
    [
        "type",
        "properties",
        "items",
        "required",
        "enum",
        "const",
        "pattern",
        "patternProperties",
        "additionalProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "$ref",
        "$id",
        "$anchor",
        "$dynamicRef",
        "$schema",
        "$defs",
        "format",
        "multipleOf",
        "maximum",
        "minItems",
        "contains",
        "prefixItems",
        "unevaluatedProperties",
        "unevaluatedItems",
        "dependentSchemas",
        "propertyNames",
        "uniqueItems",
    ]
)
SCHEMA_VALUES = st.sampled_from(
    ["object", "#", "#/$defs/a", "http://[", "^(a|a)*$", "(", "string", 1e308, 1e-308]
)
SCHEMAS = st.recursive(
    SCALARS | SCHEMA_VALUES,
    lambda inner: st.dictionaries(SCHEMA_NAMES, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=10,
)


def spelled(value: object) -> str:
    """JSON text, which tells 1 from 1.0 and from true, and holds NaN equal to itself."""
    return json.dumps(value)


@given(RESULTS)
def test_any_result_is_dumped_as_it_came(result: dict[str, Any]) -> None:
    before = spelled(result)
    blocks = parse_blocks(result, limits=DEFAULT_LIMITS, server="a server")
    again = {**result, "content": [dump(block) for block in blocks]}
    assert spelled(again) == before


@given(JSON | RESULTS, st.sampled_from(REVISION_NAMES))
def test_validation_never_fails_and_changes_nothing(result: Any, revision: str) -> None:
    before = spelled(result)
    found = validate_tool_response(result, revision)
    assert len(found) <= MAX_FINDINGS + 1
    assert spelled(result) == before


@given(JSON, SCHEMAS)
def test_no_schema_makes_validation_fail(value: Any, schema: Any) -> None:
    validate_tool_response({"content": [], "structuredContent": value}, output_schema=schema)


@given(RESULTS, st.sampled_from(REVISION_NAMES))
def test_a_downgrade_never_fails_and_finds_no_new_fault(result: dict[str, Any], revision: str) -> None:
    before = copy.deepcopy(result)
    older = downgrade_raw(result, revision)
    assert spelled(result) == spelled(before)
    assert spelled(downgrade_raw(older, revision)) == spelled(older)


@given(NEARLY_VALID)
def test_a_block_is_checked_as_the_types_of_the_sdk_check_it(raw: dict[str, Any]) -> None:
    block, oracle = parse_block(copy.deepcopy(raw)), mended(raw["type"], copy.deepcopy(raw))
    assert (block.content, block.findings) == (oracle.content, oracle.findings)
    made = Block(raw=raw, content=oracle.content).fields
    assert _common(block.fields, made) == _common(made, made)


def _common(fields: Any, made: Any) -> Any:
    """The values of `fields` that a typed block has too; nulls are left out of one."""
    if not isinstance(fields, dict) or not isinstance(made, dict):
        return fields
    return {
        key: _common(value, made[key])
        for key, value in fields.items()
        if key in made and value is not None and key not in ("_meta", "digest", "icons")
    }
