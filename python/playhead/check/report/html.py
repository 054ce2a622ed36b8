"""The HTML report: one self-contained file that loads nothing.

The template escapes everything from a server. Should that ever fail, the page's Content-Security-Policy
allows only the one script and the one style sheet whose hashes it names. Without JavaScript every row is
visible; the script adds filters, search and copy buttons.

Every number on the page counts tests: all of them, those with one verdict, or those of one tool. A row is a
test with its checks.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from statistics import median
from typing import Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as escape_html

from playhead.check.report.evidence import Allowance, json_text, lacks_a_secret, plain, server_words
from playhead.check.report.rows import (
    ACCEPTED_BECAUSE,
    LOAD_COLUMNS,
    Outcome,
    Row,
    by_outcome,
    counts,
    load_words,
    milliseconds,
    rows,
    started,
    verdict_of,
    verdict_sentence,
)
from playhead.check.results import Report, Sample
from playhead.escaping import counted

_ROWS: Final = 5_000
"""Limits the rows of the page, so that a browser stays responsive. Passed checks are last and are omitted
first."""
_VALUE_CHARS: Final = 16_000
_REPORT_CHARS: Final = 8 * 1024 * 1024
_TOOLS: Final = 1_000
_MOST_MEDIA: Final = 6
"""Limits the images and audio per tool."""
_NAME_CHARS: Final = 200
_PEEK_CHARS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tool:
    """One row of the overview."""

    name: str
    outcome: Outcome
    words: str
    latency: str
    row: int | None
    """The number of the tool's first row, which is its worst; None if that row is omitted."""
    media: list[Sample]


def render(report: Report) -> str:
    """Render the report."""
    all_rows = by_outcome(rows(report, Allowance(left=_REPORT_CHARS), value_chars=_VALUE_CHARS))
    css, script = _file("report.css"), _file("report.js")
    is_available = report.mcp_service_status == "available"
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page.filters |= {
        "name": lambda text: plain(text, _NAME_CHARS),
        "peek": lambda text: plain(text, _PEEK_CHARS),
        "plain": plain,
        "sentence": _sentence,
        "json": json_text,
        "counted": counted,
    }
    return (
        page.from_string(_file("report.html")).render(
            css=Markup(css),
            script=Markup(script),
            policy=(
                f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(css)}'; img-src data:; "
                "media-src data:; base-uri 'none'; form-action 'none'"
            ),
            report=report,
            state=("passed" if report.passed else "failed") if is_available else report.mcp_service_status,
            heading=report.server_name or server_words(report),
            server=plain(server_words(report), 2_000),
            lacks_a_secret=lacks_a_secret(report),
            started=started(report),
            verdict=verdict_sentence(report),
            counts=counts(all_rows),
            tools=list(_tools(report, all_rows)),
            load_columns=LOAD_COLUMNS,
            load_words=load_words,
            rows=all_rows[:_ROWS],
            subjects=list(dict.fromkeys(plain(row.test.subject, _NAME_CHARS) for row in all_rows[:_ROWS])),
            accepted_because=ACCEPTED_BECAUSE,
            left_out=max(0, len(all_rows) - _ROWS),
        )
        + "\n"
    )


def _tools(report: Report, all_rows: Sequence[Row]) -> Iterator[_Tool]:
    """Yield one overview row per tool, in the order of the listing. `all_rows` has the order of the page."""
    rows_by_tool: dict[str, list[tuple[int, Row]]] = {name: [] for name in report.tools[:_TOOLS]}
    for number, row in enumerate(all_rows, start=1):
        if row.test.tool in rows_by_tool:
            rows_by_tool[row.test.tool].append((number, row))
    for name, numbered in rows_by_tool.items():
        tool_rows = [row for _, row in numbered]
        tests = [row.test for row in tool_rows]
        verdicts = [f"{count:,} {outcome}" for outcome, count in counts(tool_rows).items() if count]
        latencies = [
            test.latency_ms for test in tests if test.method == "tools/call" and test.latency_ms is not None
        ]
        yield _Tool(
            name=name,
            outcome=verdict_of(tool_rows),
            words=f"{', '.join(verdicts)} of {counted(len(tests), 'test')}" if tests else "no tests",
            latency=milliseconds(median(latencies) if latencies else None),
            row=numbered[0][0] if numbered and numbered[0][0] <= _ROWS else None,
            media=[sample for test in tests for sample in test.samples][:_MOST_MEDIA],
        )


def _sentence(text: str) -> Markup:
    """Format a title as HTML: backticks in it enclose the names of fields."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape_html(text))))


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8").strip()


def _hash(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode()
