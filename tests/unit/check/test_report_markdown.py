"""The Markdown report: a parser finds our structure in it, whatever a server said."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len

from playhead.check.report import to_markdown
from playhead.check.results import Report
from tests.unit.check.report_kit import (
    CONTENT,
    HOSTILE_TEXTS,
    SPECIFICATION,
    call,
    hostile,
    long,
    report,
    small,
    unavailable,
)


def tokens(text: str) -> Iterator[Token]:
    for token in MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text):
        yield token
        yield from token.children or ()


def headings(text: str) -> list[str]:
    found = list(tokens(text))
    return [inline.content for opening, inline in pairwise(found) if opening.type == "heading_open"]


def test_a_reader_finds_the_summary_then_what_failed_then_the_rest() -> None:
    assert headings(to_markdown(small())) == [
        "playhead check: failed",
        "Failed",
        "tool forecast: valid arguments: the least, 312.5 ms",
        "tool forecast: invalid arguments: days is a string, 12.5 ms",
        "Undecided",
        "Skipped",
        "Tests",
    ]
    assert "**2 of 5 tests failed.**" in to_markdown(small())
    assert "Tests: 2 failed, 1 undecided, 1 skipped, 1 passed" in to_markdown(small())


def test_a_hostile_server_adds_no_markup_link_heading_or_row() -> None:
    text = to_markdown(hostile())
    found = list(tokens(text))
    assert not [token.content for token in found if token.type in ("html_inline", "html_block", "image")]
    links = {token.attrs["href"] for token in found if token.type == "link_open"}
    assert links == {f"{SPECIFICATION}/tools"}
    failed = [test for test in hostile().tests if test.status == "failed"]
    assert len(headings(text)) == len(failed) + 4
    assert sum(token.type == "tr_open" for token in found) == len(HOSTILE_TEXTS) + 1
    assert sum(token.type == "td_open" for token in found) == len(HOSTILE_TEXTS) * 6


@pytest.mark.parametrize("ticks", range(1, 9))
def test_a_fence_is_longer_than_any_run_of_backticks_inside(ticks: int) -> None:
    draft = call("t", "x", {"word": "`" * ticks}, {"text": "\n" + "`" * ticks + "\n# out"})
    message = f"came\n{'`' * ticks}\n# out\n{'`' * ticks}\n{'~' * ticks}"
    draft.failed(CONTENT, message)
    fences = [token for token in tokens(to_markdown(report(draft.done()))) if token.type == "fence"]
    assert [fence.info for fence in fences] == ["text", "json", "json", "sh"]
    assert fences[0].content == message + "\n"


def test_the_table_is_one_in_a_terminal_too() -> None:
    lines = [line for line in to_markdown(small()).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 5
    assert len({cell_len(line) for line in lines}) == 1


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (small(), "2 of 5 tests failed."),
        (long(100), "1 of 100 tests failed."),
        (report(small().tests[0]), "No test of 1 failed."),
        (report(small().tests[3]), "No test of 1 failed; 1 could not be decided."),
        (report(), "Nothing was tested."),
        (unavailable(), "The server could not be used."),
    ],
)
def test_the_report_sums_up_in_one_sentence(made: Report, sentence: str) -> None:
    assert f"**{sentence}**" in to_markdown(made)


def test_a_report_of_thousands_stays_one_that_github_shows() -> None:
    text = to_markdown(long(20_000))
    assert len(text.encode()) < 1024 * 1024
    assert "19,000 tests more; the JSON report has all." in text
