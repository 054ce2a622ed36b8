"""URI templates are parsed, expanded and matched as by the SDK."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp.shared import uri_template as sdk

from playhead.stream.uri_template import UriTemplate

NAMES = st.sampled_from(["a", "b", "start", "end", "url", "x.y", "id*", "path*"])
EXPRESSIONS = st.builds(
    "{{{}{}}}".format,
    st.sampled_from(["", *"+#./;?&"]),
    st.lists(NAMES, min_size=1, max_size=3).map(",".join),
)
LITERALS = st.sampled_from(
    ["x://", "/", "-", ".", "?f=1", "&", "#", ";", "a", "aa", "b=", "{", "}", "{}", "é"]
)
TEMPLATES = st.lists(EXPRESSIONS | LITERALS, max_size=7).map("".join)
VALUES = st.text("ab/?#&=;,.%2Fé-", max_size=6)
PATH_PARAMETER = re.compile(r"\{;")
"""The operator of which less is matched here."""


def parsed_by_sdk(text: str) -> sdk.UriTemplate | None:
    try:
        return sdk.UriTemplate.parse(text)
    except sdk.InvalidUriTemplate:
        return None


@given(TEMPLATES)
@example("x://{a}{?start,end}")
@example("x://{+url}/{start}-{end}")
@example("{/path*}{.a}")
@example("{")
@example("{a:3}")
@example("{+}")
@example("{" + ",".join(f"v{number}" for number in range(257)) + "}")
@example("a" * 8_193)
def test_the_same_templates_are_valid_and_have_the_same_variables(text: str) -> None:
    template, oracle = UriTemplate.parse(text), parsed_by_sdk(text)
    if template is None:
        assert oracle is None or re.search(r"\{;[^}]*\*", text)
        return
    assert oracle is not None
    assert str(template) == str(oracle)
    assert template.variable_names == oracle.variable_names
    assert [each.operator for each in template.variables] == [each.operator for each in oracle.variables]
    assert template.query_variable_names == oracle.query_variable_names


@given(
    TEMPLATES,
    st.dictionaries(
        st.sampled_from(["a", "b", "start", "end", "url", "x.y", "id", "path"]), VALUES | st.lists(VALUES)
    ),
)
def test_a_template_is_expanded_as_by_the_sdk(text: str, values: dict[str, str | Sequence[str]]) -> None:
    template, oracle = UriTemplate.parse(text), parsed_by_sdk(text)
    if template is not None and oracle is not None:
        assert template.expand(values) == oracle.expand(values)


@given(TEMPLATES, st.data())
@example("x://{a}-{b}", None)
def test_a_uri_is_matched_as_by_the_sdk(text: str, data: st.DataObject | None) -> None:
    template, oracle = UriTemplate.parse(text), parsed_by_sdk(text)
    if template is None or oracle is None or data is None:
        return
    values = {name: data.draw(VALUES | st.lists(VALUES, max_size=3)) for name in template.variable_names}
    uri = data.draw(st.just(template.expand(values)) | st.text("xab:/?#&=;,.-%2F", max_size=20))
    matched, expected = template.match(uri), oracle.match(uri)
    if matched is None and PATH_PARAMETER.search(text):
        return
    assert matched == expected


@pytest.mark.parametrize("size", [65_536, 65_537])
def test_a_uri_past_the_limit_is_not_matched(size: int) -> None:
    template = UriTemplate.parse("{a}")
    assert template is not None
    assert (template.match("a" * size) is None) == (size > 65_536)
