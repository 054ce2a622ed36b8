"""The four forms of a ranged read, and which of them is chosen."""

from __future__ import annotations

import pytest
from mcp.shared.uri_template import UriTemplate

from playhead.errors import UsageError
from playhead.stream.ranges import ResourceRequest, choose_strategy

URI = "resource://read_from_http"
TEMPLATE = "resource://read_from_http{?url,start,end}"
URL = "http://127.0.0.1:8000/a b/../%2F?x=1&y=ü#z".replace(" ", "%20")


def test_a_template_with_start_and_end_is_expanded_and_its_reserved_characters_survive() -> None:
    strategy = choose_strategy(uri=URI, description=URL, templates=["x://{y}", TEMPLATE])
    request = strategy.request(5, 10)
    assert strategy.name == "uri-template"
    assert request.arguments is None
    assert request.meta is None
    assert UriTemplate.parse(TEMPLATE).match(request.uri) == {"url": URL, "start": "5", "end": "10"}
    assert request.uri.count("?") == 1
    assert request.uri.count("#") == 0


def test_a_template_wins_over_arguments_over_meta_over_whole() -> None:
    def name(templates: list[str], description: str | None, key: str | None) -> str:
        return choose_strategy(uri=URI, description=description, templates=templates, meta_key=key).name

    assert name([TEMPLATE], URL, "range") == "uri-template"
    assert name([], URL, "range") == "arguments"
    assert name([], "a nice song", "range") == "meta"
    assert name([], None, None) == "whole"


@pytest.mark.parametrize("override", ["uri-template", "arguments", "meta", "whole"])
def test_an_override_wins_over_what_the_server_offers(override: str) -> None:
    strategy = choose_strategy(
        uri=URI, description=URL, templates=[TEMPLATE], override=override, meta_key="range"
    )
    assert strategy.name == override


def test_arguments_hold_the_url_the_range_and_the_extra_ones() -> None:
    strategy = choose_strategy(uri=URI, description=URL, extra_arguments={"token": 7})
    assert strategy.request(0, 9) == ResourceRequest(
        uri=URI, arguments={"url": URL, "token": 7, "start": 0, "end": 9}
    )


def test_extra_arguments_never_replace_the_range() -> None:
    strategy = choose_strategy(uri=URI, extra_arguments={"start": 99, "url": "http://other/"})
    assert strategy.name == "arguments"
    assert strategy.request(1, 2).arguments == {"url": "http://other/", "start": 1, "end": 2}


def test_meta_holds_the_range_under_its_key() -> None:
    strategy = choose_strategy(uri=URI, meta_key="com.example/range")
    assert strategy.request(3, 4) == ResourceRequest(
        uri=URI, meta={"com.example/range": {"start": 3, "end": 4}}
    )


def test_whole_asks_for_no_range() -> None:
    assert choose_strategy(uri=URI).request(3, 4) == ResourceRequest(uri=URI)


@pytest.mark.parametrize(
    ("template", "uri", "expanded"),
    [
        ("song://{id}{?start,end}", "song://3", "song://3?start=0&end=8"),
        ("song://{id}{?start,end,rate}", "song://3", "song://3?start=0&end=8"),
        ("file:///{+path}{?start,end}", "file:///a/b.mp3", "file:///a/b.mp3?start=0&end=8"),
        ("a://b{?start,end}", "a://b", "a://b?start=0&end=8"),
        (TEMPLATE, TEMPLATE, "resource://read_from_http?url=http%3A%2F%2Fh%2F&start=0&end=8"),
        (TEMPLATE, URI + "?url=http%3A%2F%2Fo%2F", URI + "?url=http%3A%2F%2Fo%2F&start=0&end=8"),
    ],
)
def test_a_template_fits_a_uri_that_it_could_have_made(template: str, uri: str, expanded: str) -> None:
    strategy = choose_strategy(uri=uri, description="http://h/", templates=[template])
    assert strategy.request(0, 8).uri == expanded


@pytest.mark.parametrize(
    "template",
    [
        "resource://read_from_http{?url,start}",
        "resource://other{?url,start,end}",
        "resource://read_from_http/{part}{?start,end}",
        "resource://read_from_http{?url,start,end",
        "resource://{a}{+b}{+c}",
    ],
)
def test_a_template_of_another_resource_or_that_nobody_can_expand_is_passed_over(template: str) -> None:
    assert choose_strategy(uri=URI, description=URL, templates=[template]).name == "arguments"


def test_a_template_that_needs_a_url_is_not_used_without_one() -> None:
    assert choose_strategy(uri=URI, description="a song", templates=[TEMPLATE]).name == "whole"


@pytest.mark.parametrize(
    "text", ["", "a song", "ftp://h/x", "http://", "http:/x", "http://h/a b", "http://[::1"]
)
def test_a_description_that_is_no_web_address_is_not_taken_for_one(text: str) -> None:
    assert choose_strategy(uri=URI, description=text).name == "whole"


@pytest.mark.parametrize(
    ("override", "said"), [("range", "one of"), ("uri-template", "fits"), ("meta", "meta_key")]
)
def test_an_override_that_cannot_be_done_says_why(override: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        choose_strategy(uri=URI, override=override, templates=["x://{start,end}"])
