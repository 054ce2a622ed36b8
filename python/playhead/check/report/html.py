"""The HTML report: one self-contained file that loads nothing.

The template escapes everything from a server. Should that ever fail, the page's Content-Security-Policy
allows only the one script and the one style sheet whose hashes it names. Without JavaScript every row is
visible; the script adds filters, search and copy buttons.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as escape_html

from playhead.check.report.evidence import (
    Allowance,
    bounded,
    command,
    json_text,
    lacks_a_secret,
    message,
    plain,
    server_words,
)
from playhead.check.report.rows import (
    OUTCOMES,
    Outcome,
    Row,
    count_rows,
    counted,
    counts,
    rows,
    started,
    verdict_sentence,
)
from playhead.check.results import Report, TestResult

_ROWS: Final = 5_000
"""A browser stays responsive with this many; passed checks come last and are omitted first."""
_VALUE_CHARS: Final = 16_000
_REPORT_CHARS: Final = 8 * 1024 * 1024
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
class _Line:
    """One row, with all of its strings ready for escaping."""

    number: int
    outcome: Outcome
    name: str | None
    title: Markup
    level: str | None
    subject: str
    did: Markup
    latency: str
    message: str
    peek: str
    """The start of the message, for a closed row."""
    expected: Markup | None
    source: str | None
    source_is_link: bool
    evidence: _Evidence | None
    evidence_row: int
    """The row with the evidence: this one, or an earlier one of the same test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """A segment of the bar, in percent of its width, and its entry in the legend."""

    outcome: Outcome
    count: int
    start: float
    width: float


def render(report: Report) -> str:
    """Render the report."""
    found = rows(report.tests)
    css, script = _file("report.css"), _file("report.js")
    return (
        Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        .from_string(_file("report.html"))
        .render(
            css=Markup(css),
            script=Markup(script),
            policy=(
                f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(css)}'; img-src data:; "
                "base-uri 'none'; form-action 'none'"
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
            outcomes=OUTCOMES,
            counts=count_rows(found),
            subjects=_subjects(found[:_ROWS]),
            lines=_lines(report, found[:_ROWS]),
            total=len(found),
            left_out=counted(len(found) - _ROWS, "row") if len(found) > _ROWS else "",
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
    for outcome, count in counts(report).items():
        width = 100 * count / max(1, len(report.tests))
        found.append(_Segment(outcome=outcome, count=count, start=round(start, 3), width=round(width, 3)))
        start += width
    return found


def _subjects(found: Sequence[Row]) -> list[str]:
    """Return each subject once, in the order of the tests."""
    return list(dict.fromkeys(plain(row.test.subject, _NAME_CHARS) for row in found))


def _lines(report: Report, found: Iterable[Row]) -> list[_Line]:
    allowance = Allowance(left=_REPORT_CHARS)
    places: dict[int, int] = {}
    lines: list[_Line] = []
    for number, row in enumerate(found, start=1):
        first = places.setdefault(id(row.test), number)
        evidence = _evidence(report, row.test, allowance) if first == number else None
        lines.append(_line(number, row, evidence, first))
    return lines


def _line(number: int, row: Row, evidence: _Evidence | None, evidence_row: int) -> _Line:
    test, kind = row.test, None if row.check is None else row.check.kind
    did = plain(test.title, _NAME_CHARS)
    return _Line(
        number=number,
        outcome=row.outcome,
        name=None if kind is None else kind.name,
        title=_sentence(did if kind is None else kind.title),
        level=None if kind is None else kind.level,
        subject=plain(test.subject, _NAME_CHARS),
        did=Markup() if kind is None else _sentence(did),
        latency="" if test.latency_ms is None else f"{test.latency_ms:,.1f} ms",
        message=plain(row.message),
        peek=plain(row.message, _PEEK_CHARS) if row.outcome in ("failed", "undecided") else "",
        expected=None if kind is None else _sentence(kind.title),
        source=None if kind is None else kind.source,
        source_is_link=kind is not None and kind.source.startswith("https://"),
        evidence=evidence,
        evidence_row=evidence_row,
    )


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
