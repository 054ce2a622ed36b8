"""A link and the templates that a server, or a gateway in front of several servers, lists."""

from __future__ import annotations

from urllib.parse import quote, unquote

import pytest

from playhead.errors import UsageError
from playhead.stream.templates import TemplateMatch, match_templates

LINK = "resource://read_from_http"
READER = "resource://read_from_http{?url,start,end}"
URL = "http://127.0.0.1:8000/a?x=1&y=2"
ENCODED = quote(URL, safe="")
READ = f"resource://read_from_http?url={ENCODED}&start=0&end=8"


def relayed(server: str, uri: str) -> str:
    """As endara-relay writes it: everything but RFC 3986's unreserved characters, and a template's braces."""
    return f"mcp-relay://{server}/" + quote(uri, safe="{}")


def match(*templates: str, uri: str = LINK, tool: str | None = None) -> TemplateMatch | None:
    return next(iter(match_templates(templates, uri=uri, url=URL, extra={}, tool=tool)), None)


def read(*templates: str, uri: str = LINK, tool: str | None = None) -> str | None:
    found = match(*templates, uri=uri, tool=tool)
    return None if found is None else found.expand(0, 8)


@pytest.mark.parametrize(
    ("template", "expanded"),
    [
        ("x://a{?offset,length}", "x://a?offset=3&length=5"),
        ("x://a{?range_start,range_end}", "x://a?range_start=3&range_end=5"),
        ("x://a/{start}/{end}", "x://a/3/5"),
        ("x://a{/offset,count}", "x://a/3/5"),
        ("x://a/bytes/{from}-{to}", "x://a/bytes/3-5"),
        ("x://a?begin={begin}&until={until}", "x://a?begin=3&until=5"),
        ("x://a;{startByte},{endByte}", "x://a;3,5"),
        ("x://{id}/{page}/{page_size}", "x://a/3/5"),
        ("x://{id}/page/{pageNumber}{?limit}", "x://a/page/3?limit=5"),
        ("x://{id}/{page}", "x://a/3"),
        ("x://{id}/{v}/{w}", "x://a/3/5"),
    ],
)
def test_the_variables_of_a_range_are_found_wherever_they_stand(template: str, expanded: str) -> None:
    found = match(template, uri="x://a")
    assert found is not None
    assert found.expand(3, 5) == expanded
    assert found.reason == f"the server lists the template {template!r}"


@pytest.mark.parametrize(
    ("template", "link"),
    [
        ("x://{id}/{start}/{end}", "x://a/3/5"),
        ("x://{id}/{start}/{end}", "x://a/b"),
        ("x://{id}/{part}/{start}/{end}", "x://a"),
        ("x://{start}/{end}", "x://a"),
        ("x://{id}{?quality}", "x://a"),
        ("x://{id}{?v,w}", "x://a?v=1"),
        ("y://{id}/{start}/{end}", "x://a"),
    ],
)
def test_a_link_fits_only_what_equals_it_up_to_the_first_variable_of_the_range(
    template: str, link: str
) -> None:
    assert match(template, uri=link) is None


def test_of_templates_that_fit_those_with_known_names_go_first() -> None:
    listed = ["x://{id}/{v}/{w}", "x://{id}/{page}", "any://{uri}/{start}/{end}", "x://{id}{?start,end}"]
    found = match_templates(listed, uri="x://a", url=None, extra={})
    assert [str(each.template) for each in found] == [listed[3], listed[1], listed[0], listed[2]]


def test_an_address_is_sent_plain_and_in_base64url() -> None:
    (found,) = match_templates(["any://{uri}/{start}/{end}"], uri="x://a?b", url=None, extra={})
    encoded = found.with_encoded_address()
    assert encoded is not None
    assert found.expand(0, 8) == "any://x%3A%2F%2Fa%3Fb/0/8"
    assert encoded.expand(0, 8) == "any://eDovL2E_Yg/0/8"


def test_an_address_in_the_path_is_the_descriptions() -> None:
    assert read("resource://reader/{url}/{start}/{end}", uri="resource://reader") == (
        f"resource://reader/{ENCODED}/0/8"
    )


@pytest.mark.parametrize("tool", ["music_musicPlayer", "player", None])
@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("resource://music/read_from_http{?url,start,end}", READ.replace("://", "://music/")),
        ("music+" + READER, "music+" + READ),
        (relayed("music", READER), "mcp-relay://music/" + quote(READ, safe="")),
    ],
    ids=["segment", "scheme", "relay"],
)
def test_a_template_that_a_gateway_has_renamed_is_read_in_the_gateways_form(
    listed: str, expected: str, tool: str | None
) -> None:
    found = match("other://{x}", listed, tool=tool)
    assert found is not None
    assert found.expand(0, 8) == expected
    assert "'music'" in found.reason
    assert repr(listed) in found.reason
    assert ("begins the name of the tool" in found.reason) == (tool == "music_musicPlayer")


def test_a_relayed_read_is_the_inner_servers_once_it_is_unquoted() -> None:
    found = read(relayed("music", "song://{artist}/{title}{?start,end}"), uri="song://Bj%C3%B6rk/100%25")
    assert found is not None
    assert unquote(found.removeprefix("mcp-relay://music/")) == "song://Bj%C3%B6rk/100%25?start=0&end=8"


@pytest.mark.parametrize(
    ("listed", "link", "expected"),
    [
        ("song://music/{id}{?start,end}", "song://music/3", "song://music/3?start=0&end=8"),
        ("music+song://{id}{?start,end}", "music+song://3", "music+song://3?start=0&end=8"),
        (
            relayed("music", "song://{id}{?start,end}"),
            "mcp-relay://music/song%3A%2F%2F3",
            "mcp-relay://music/" + quote("song://3?start=0&end=8", safe=""),
        ),
    ],
    ids=["segment", "scheme", "relay"],
)
def test_a_link_that_the_gateway_has_renamed_as_well_fits(listed: str, link: str, expected: str) -> None:
    assert read(listed, uri=link) == expected


def test_a_relayed_link_of_another_server_does_not_fit() -> None:
    assert read(relayed("music", "song://{id}{?start,end}"), uri="mcp-relay://radio/song%3A%2F%2F3") is None


@pytest.mark.parametrize("tool", ["house_music_musicPlayer", None])
@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("resource://house/music/read_from_http{?url,start,end}", READ.replace("://", "://house/music/")),
        ("house+music+" + READER, "house+music+" + READ),
        (
            relayed("house", "resource://music/read_from_http{?url,start,end}"),
            "mcp-relay://house/" + quote(READ.replace("://", "://music/"), safe=""),
        ),
    ],
    ids=["segments", "schemes", "relay"],
)
def test_a_gateway_of_a_gateway_names_both_servers(listed: str, expected: str, tool: str | None) -> None:
    found = match("resource://other/house{?start,end}", listed, tool=tool)
    assert found is not None
    assert found.expand(0, 8) == expected
    assert "its server 'house/music'" in found.reason
    assert ("begins the name of the tool" in found.reason) == (tool is not None)


@pytest.mark.parametrize("form", ["resource://SERVER/read_from_http{?url,start,end}", "SERVER+" + READER])
def test_of_several_servers_the_one_whose_name_begins_the_tools_name_is_read(form: str) -> None:
    templates = [form.replace("SERVER", server) for server in ("music", "music-2", "radio")]
    for server in ("music", "music-2", "radio"):
        for separator in ("_", "__", "-", ".", "/"):
            found = match(*templates, tool=f"{server}{separator}musicPlayer")
            assert found is not None
            assert found.renamed is not None
            assert found.renamed.server == server


def test_of_two_servers_none_is_guessed() -> None:
    with pytest.raises(UsageError, match=r"2 servers.*: music\+resource://read_from_http, radio\+res"):
        match("music+" + READER, "radio+" + READER, tool="musicPlayer")


def test_the_same_template_listed_twice_for_one_server_is_not_ambiguous() -> None:
    assert read("music+" + READER, "music+" + READER) == "music+" + READ


def test_a_template_as_listed_goes_before_a_renamed_one() -> None:
    assert read("resource://music/read_from_http{?url,start,end}", READER, tool="music_play") == READ


def test_a_first_segment_is_a_servers_name_only_if_the_tool_or_the_link_itself_says_so() -> None:
    listed = "song://music/{id}{?start,end}"
    assert read(listed, uri="song://3", tool="music_find") == "song://music/3?start=0&end=8"
    assert read(listed, uri="song://3", tool="find") is None, "ids of something else"
    assert read(listed, uri="song://3") is None


@pytest.mark.parametrize(
    "listed", ["file:///{+path}{?start,end}", "song://{a}/{b}{?start,end}", "://x/{?start,end}"]
)
def test_a_variable_is_not_a_servers_name(listed: str) -> None:
    assert read(listed, uri="resource://other", tool="music_find") is None
