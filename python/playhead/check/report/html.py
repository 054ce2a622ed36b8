"""The HTML report: one self-contained file that loads nothing.

The template escapes everything from a server. Should that ever fail, the page's Content-Security-Policy
allows only the one script and the one style sheet whose hashes it names. Without JavaScript every row is
visible; the script adds filters, search and copy buttons.

Every count on the page is one of tests: of all, of a verdict, and of a tool. A row is a test with its checks.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from statistics import median
from typing import Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as escape_html

from playhead.check.report.evidence import (
    ACCEPTED_BECAUSE,
    LOAD_COLUMNS,
    OUTCOMES,
    STATUS_OUTCOME,
    Allowance,
    Outcome,
    bounded,
    by_outcome,
    command,
    counted,
    counts,
    json_text,
    lacks_a_secret,
    load_words,
    message,
    plain,
    server_words,
    started,
    verdict_of,
    verdict_sentence,
)
from playhead.check.results import Check, Report, Sample, TestResult

_ROWS: Final = 5_000
"""A browser stays responsive with this many; passed checks come last and are omitted first."""
_VALUE_CHARS: Final = 16_000
_REPORT_CHARS: Final = 8 * 1024 * 1024
_TOOLS: Final = 1_000
_MOST_MEDIA: Final = 6
"""Per tool."""
_NAME_CHARS: Final = 200
_PEEK_CHARS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """The request and the answer, shown once per test."""

    request: str | None
    is_whole: bool
    command: str | None
    answer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judgement:
    """One check of a test, with its strings ready for escaping."""

    outcome: Outcome
    name: str
    level: str
    expected: Markup
    message: str
    accepted: str
    source: str
    source_is_link: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Media:
    """An image or audio of an answer. `address` is a data URL, empty if it is too large for the page."""

    kind: str
    label: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One row: a test."""

    number: int
    outcome: Outcome
    title: Markup
    subject: str
    finding: str
    """The name of the check that decided: the first that failed."""
    level: str
    latency: str
    reason: str
    """Of a test whose checks don't state it."""
    peek: str
    """The start of the message, for a closed row."""
    judgements: list[_Judgement]
    evidence: _Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tool:
    """One row of the overview."""

    name: str
    outcome: Outcome
    words: str
    latency: str
    row: int | None
    """The first of its rows, the worst."""
    media: list[_Media]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """A segment of the bar, in percent of its width, and its entry in the legend."""

    outcome: Outcome
    count: int
    start: float
    width: float


def render(report: Report) -> str:
    """Render the report."""
    tests = by_outcome(report.tests)
    lines = _lines(report, tests[:_ROWS])
    css, script = _file("report.css"), _file("report.js")
    return (
        Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        .from_string(_file("report.html"))
        .render(
            css=Markup(css),
            script=Markup(script),
            policy=(
                f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(css)}'; img-src data:; "
                "media-src data:; base-uri 'none'; form-action 'none'"
            ),
            report=report,
            started=started(report),
            state=_state(report),
            heading=plain(report.server_name or server_words(report), _NAME_CHARS),
            version=plain(report.server_version or "", _NAME_CHARS),
            server=plain(server_words(report), 2_000),
            lacks_a_secret=lacks_a_secret(report),
            protocol=plain(report.protocol_version or "", _NAME_CHARS),
            remarks=[plain(remark) for remark in report.remarks],
            sentence=verdict_sentence(report),
            segments=_segments(report),
            tools=_tools(report, tests),
            load_columns=LOAD_COLUMNS,
            load=[
                (plain(it.subject, _NAME_CHARS), counted(it.requests, "request"), it.failures, load_words(it))
                for it in report.load
            ],
            subjects=list(dict.fromkeys(line.subject for line in lines)),
            lines=lines,
            left_out=counted(len(tests) - _ROWS, "test") if len(tests) > _ROWS else "",
        )
        + "\n"
    )


def _state(report: Report) -> str:
    if report.mcp_service_status != "available":
        return report.mcp_service_status
    return "passed" if report.passed else "failed"


def _segments(report: Report) -> list[_Segment]:
    found: list[_Segment] = []
    start = 0.0
    for outcome, count in counts(report.tests).items():
        width = 100 * count / max(1, len(report.tests))
        found.append(_Segment(outcome=outcome, count=count, start=round(start, 3), width=round(width, 3)))
        start += width
    return found


def _lines(report: Report, tests: Sequence[TestResult]) -> list[_Line]:
    allowance = Allowance(left=_REPORT_CHARS)
    return [_line(number, report, test, allowance) for number, test in enumerate(tests, start=1)]


def _line(number: int, report: Report, test: TestResult, allowance: Allowance) -> _Line:
    outcome = STATUS_OUTCOME[test.status]
    checks = sorted(test.checks, key=lambda check: OUTCOMES.index(check.verdict))
    decided = [check for check in checks if check.verdict == outcome and outcome in ("failed", "accepted")]
    return _Line(
        number=number,
        outcome=outcome,
        title=_sentence(plain(test.title, _NAME_CHARS)),
        subject=plain(test.subject, _NAME_CHARS),
        finding=decided[0].kind.name if decided else "",
        level=decided[0].kind.level if decided else "",
        latency=_milliseconds(test.latency_ms),
        reason="" if any(check.message == test.error for check in checks) else plain(test.error or ""),
        peek="" if outcome == "passed" else plain(test.error or "", _PEEK_CHARS),
        judgements=[_judgement(check) for check in checks],
        evidence=_evidence(report, test, allowance),
    )


def _judgement(check: Check) -> _Judgement:
    return _Judgement(
        outcome=check.verdict,
        name=check.kind.name,
        level=check.kind.level,
        expected=_sentence(check.kind.title),
        message=plain(check.message),
        accepted="" if check.accepted is None else ACCEPTED_BECAUSE[check.accepted],
        source=check.kind.source,
        source_is_link=check.kind.source.startswith("https://"),
    )


def _tools(report: Report, tests: Sequence[TestResult]) -> list[_Tool]:
    """Return one row per tool, in the order of the listing. `tests` are in the order of the rows."""
    own: dict[str, list[tuple[int, TestResult]]] = {name: [] for name in report.tools[:_TOOLS]}
    for number, test in enumerate(tests, start=1):
        if test.tool in own:
            own[test.tool].append((number, test))
    return [_tool(name, rows) for name, rows in own.items()]


def _tool(name: str, rows: Sequence[tuple[int, TestResult]]) -> _Tool:
    tests = [test for _, test in rows]
    found = [f"{count:,} {outcome}" for outcome, count in counts(tests).items() if count]
    latencies = [
        test.latency_ms for test in tests if test.method == "tools/call" and test.latency_ms is not None
    ]
    return _Tool(
        name=plain(name, _NAME_CHARS),
        outcome=verdict_of(tests),
        words=f"{', '.join(found)} of {counted(len(tests), 'test')}" if tests else "no tests",
        latency=_milliseconds(median(latencies) if latencies else None),
        row=rows[0][0] if rows and rows[0][0] <= _ROWS else None,
        media=[_media(sample) for test in tests for sample in test.samples][:_MOST_MEDIA],
    )


def _media(sample: Sample) -> _Media:
    kind = sample.mime_type.partition("/")[0]
    size = f"{sample.size_bytes / 1024:,.0f} KiB" if sample.size_bytes >= 1024 else f"{sample.size_bytes} B"
    return _Media(
        kind=kind,
        label=f"{sample.mime_type}, {size}",
        address="" if sample.base64 is None else f"data:{sample.mime_type};base64,{sample.base64}",
    )


def _milliseconds(latency_ms: float | None) -> str:
    return "" if latency_ms is None else f"{latency_ms:,.1f} ms"


def _evidence(report: Report, test: TestResult, allowance: Allowance) -> _Evidence:
    sent = bounded(test.input, allowance, chars=_VALUE_CHARS)
    got = bounded(test.output, allowance, chars=_VALUE_CHARS)
    request = message(test, sent)
    return _Evidence(
        request=None if request is None else json_text(request),
        is_whole=sent.is_whole,
        command=command(report, test, sent),
        answer=None if test.output is None else json_text(got.value),
    )


def _sentence(text: str) -> Markup:
    """Mark up a title, in which names of fields are between backticks."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape_html(plain(text)))))


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8").strip()


def _hash(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode()
