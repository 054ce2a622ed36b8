"""Laws of content: parsing loses nothing, and no JSON makes the validator or the downgrade fail."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from playhead.content import REVISIONS, downgrade_raw, dump, parse_blocks, validate_tool_response
from playhead.content.findings import MAX_FINDINGS
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


@given(JSON | RESULTS, st.sampled_from(REVISIONS))
def test_validation_never_fails_and_changes_nothing(result: Any, revision: str) -> None:
    before = spelled(result)
    found = validate_tool_response(result, revision)
    assert len(found) <= MAX_FINDINGS + 1
    assert spelled(result) == before


@given(JSON, SCHEMAS)
def test_no_schema_makes_validation_fail(value: Any, schema: Any) -> None:
    validate_tool_response({"content": [], "structuredContent": value}, output_schema=schema)


@given(RESULTS, st.sampled_from(REVISIONS))
def test_a_downgrade_never_fails_and_finds_no_new_fault(result: dict[str, Any], revision: str) -> None:
    before = copy.deepcopy(result)
    older = downgrade_raw(result, revision)
    assert spelled(result) == spelled(before)
    assert spelled(downgrade_raw(older, revision)) == spelled(older)
