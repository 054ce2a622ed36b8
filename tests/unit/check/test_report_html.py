"""The source of the HTML report, one self-contained file;  tests/e2e/test_report_browser.py opens it."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from importlib import resources

import pytest

from playhead.check.report import to_html
from playhead.check.results import Report
from tests.unit.check.report_kit import call, empty, hostile, long, report, small, triaged, unavailable

OURS = {"https://modelcontextprotocol.io/specification/2025-11-25/server/tools"}


class Page(HTMLParser):
    """Every tag and attribute, and whether each tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend((tag, name, value or "") for name, value in attrs)
        if tag not in {"meta", "link", "input", "img"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend((tag, name, value or "") for name, value in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("make", [small, hostile, empty, unavailable, long])
def test_a_page_has_only_our_elements_and_makes_no_requests(make: Callable[[], Report]) -> None:
    page = Page(to_html(make()))
    assert page.open == []
    assert page.tags.count("script") == page.tags.count("style") == 1
    assert not {"img", "iframe", "object", "embed", "base", "b-x"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on") or name in ("style", "src")]
    links = [(tag, value) for tag, name, value in page.attributes if name in ("href", "action", "srcset")]
    for tag, value in links:
        own = re.fullmatch(r"#row(s|-\d+)", value) or (
            tag == "link" and value.startswith("data:image/svg+xml,")
        )
        assert own or value in OURS, value
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_the_policy_names_the_one_script_and_the_one_style_by_their_hashes() -> None:
    page = Page(to_html(small()))
    (policy,) = [value for _, _, value in page.attributes if value.startswith("default-src")]
    assert re.fullmatch(
        r"default-src 'none'; script-src 'sha256-[\w+/]{43}='; style-src 'sha256-[\w+/]{43}='; "
        r"img-src data:; media-src data:; base-uri 'none'; form-action 'none'",
        policy,
    )


def test_the_style_and_script_cannot_end_their_element() -> None:
    for name in ("report.css", "report.js"):
        text = resources.files("playhead.check.report").joinpath(name).read_text("utf-8")
        assert "</" not in text
        assert "<!--" not in text


def test_the_bar_the_filters_and_the_rows_count_the_same_tests() -> None:
    text = to_html(small())
    assert 'aria-label="Tests: 2 failed, 1 undecided, 1 skipped, 1 passed"' in text
    assert re.findall(r'<rect class="(\w+)" x="([\d.]+)" y="0" width="([\d.]+)"', text) == [
        ("failed", "0.0", "40.0"),
        ("undecided", "40.0", "20.0"),
        ("skipped", "60.0", "20.0"),
        ("passed", "80.0", "20.0"),
    ]
    chips = re.findall(r'data-outcome="(\w*)" aria-pressed.*?<span>(\d+)</span>', text)
    assert chips == [("", "5"), ("failed", "2"), ("undecided", "1"), ("skipped", "1"), ("passed", "1")]
    rows = [*["failed"] * 2, "undecided", "skipped", "passed"]
    assert re.findall(r'<li class="row (\w+)"', text) == rows


def test_each_tool_is_a_row_with_its_verdict_and_its_share_of_the_tests() -> None:
    tools = re.findall(
        r'<li class="tool">\s*<span class="badge (\w+)">.*?<bdi>(\w+)</bdi>.*?tool-counts">([^<]*)<'
        r'.*?latency">([^<]*)<',
        to_html(small()),
        re.S,
    )
    assert tools == [
        ("failed", "forecast", "2 failed of 2 tests", "162.5 ms"),
        ("skipped", "forget", "1 skipped of 1 test", ""),
        ("undecided", "lookup", "1 undecided of 1 test", "12.5 ms"),
    ]


def test_media_of_a_tool_are_in_its_row_and_nothing_else_is_embedded() -> None:
    page = Page(to_html(triaged()))
    sources = [(tag, value.partition(",")[0]) for tag, name, value in page.attributes if name == "src"]
    assert sources == [("img", "data:image/png;base64"), ("audio", "data:audio/wav;base64")]
    assert "audio/mpeg, 2,048 KiB" in to_html(triaged())
    assert "too large to be included" in to_html(triaged())


def test_an_accepted_failure_is_shown_with_the_reason_and_the_page_passes() -> None:
    text = to_html(triaged())
    assert ": passed · playhead check</title>" in text
    assert '<span class="note">accepted (a SHOULD), should</span>' in text


def test_only_passed_tests_are_left_out_of_a_page_that_would_be_too_long() -> None:
    text = to_html(long(6_000))
    assert text.count('<li class="row ') == 5_000
    assert text.count('<li class="row failed"') == 60
    assert "1,000 tests that passed are omitted here; the JSON report has all." in text


def test_names_between_backticks_in_a_title_are_code() -> None:
    draft = call("lookup", "`city` of <b>1</b> character", {"city": "e"})
    draft.undecided = "no such city"
    assert '<bdi class="title"><code>city</code> of &lt;b&gt;1&lt;/b&gt; character' in to_html(
        report(draft.done())
    )


@pytest.mark.parametrize(("target", "notes"), [("home", 0), ("node server.js --api-key abc", 1)])
def test_a_line_without_its_secret_says_so(target: str, notes: int) -> None:
    draft = call("lookup", "the least", {})
    draft.undecided = "no such city"
    page = to_html(report(draft.done(), target=target))
    assert page.count("replace … with the secret") == notes
    assert "abc" not in page
