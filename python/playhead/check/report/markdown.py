"""The Markdown report: readable in a terminal, and on GitHub as a page, a comment or a job summary.

Untrusted text appears only in code spans and fences that it can't close: a fence is longer than the longest
run of backticks inside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len

from playhead.check.report.evidence import Allowance, json_text, plain, server_words
from playhead.check.report.rows import (
    ACCEPTED_BECAUSE,
    LOAD_COLUMNS,
    Outcome,
    Row,
    accepted_findings,
    by_outcome,
    counts,
    load_words,
    rows,
    started,
    verdict_sentence,
)
from playhead.check.results import Check, Report
from playhead.escaping import counted, escape_line

_VALUE_CHARS: Final = 4_000
_REPORT_CHARS: Final = 400_000
"""Limits the report. GitHub shows files up to 512 KiB and job summaries up to 1 MiB."""
_TABLE_ROWS: Final = 1_000
_FAILED_TESTS: Final = 200
_NAME_CHARS: Final = 120

_SIGNS: Final[dict[Outcome, str]] = {
    "failed": "❌",
    "accepted": "🟡",
    "undecided": "❔",
    "skipped": "➖",
    "passed": "✅",
}
_PLAIN: Final = re.compile(
    r"(?=[A-Za-z])(?:[A-Za-z0-9 ,;()'%…-]|:(?!/)|\.(?!\w)|\.(?=\d)|(?<=[A-Za-z0-9])_(?=[A-Za-z0-9]))+"
)
"""Matches text without meaning in Markdown at any position, and without addresses that GitHub would link."""


def render(report: Report) -> str:
    """Render the summary, the failed tests with all details, and the table of tests."""
    all_rows = by_outcome(rows(report, Allowance(left=_REPORT_CHARS), value_chars=_VALUE_CHARS))
    by_verdict = {outcome: [row for row in all_rows if row.outcome == outcome] for outcome in _SIGNS}
    parts = [
        f"# playhead check: {'passed' if report.passed else 'failed'}",
        f"**{verdict_sentence(report)}**",
        "\n".join(_facts(report, all_rows)),
        *(f"> {_inline(remark, 1_000)}" for remark in report.remarks),
    ]
    if failed := by_verdict["failed"]:
        parts += ["## Failed", *(_failed(row) for row in failed[:_FAILED_TESTS])]
        parts += _left_out(len(failed) - _FAILED_TESTS, "failed test")
    if accepted := by_verdict["accepted"]:
        parts.append("## Accepted")
        parts.append("These failed, and don't count: ignored, in the baseline, or only a SHOULD.")
        parts.append(_accepted(accepted))
    if undecided := by_verdict["undecided"]:
        parts.append("## Undecided")
        parts.append(
            "An error in answer to generated arguments proves nothing, even if the schema allows them."
        )
        parts.append(_reasons(undecided))
    if skipped := by_verdict["skipped"]:
        parts += ["## Skipped", _reasons(skipped)]
    if report.load:
        parts += ["## Load", _load(report)]
    if all_rows:
        parts += ["## Tests", _table(all_rows[:_TABLE_ROWS])]
        parts += _left_out(len(all_rows) - _TABLE_ROWS, "test")
    return "\n\n".join(parts) + "\n"


def _left_out(count: int, noun: str) -> list[str]:
    return [f"{counted(count, noun)} more; the JSON report has all."] if count > 0 else []


def _facts(report: Report, all_rows: Sequence[Row]) -> list[str]:
    name = " ".join(text for text in (report.server_name, report.server_version) if text)
    facts = [
        ("Coverage", report.coverage),
        ("Tests", ", ".join(f"{count:,} {outcome}" for outcome, count in counts(all_rows).items())),
        ("Server", _code(server_words(report), 2_000)),
        ("Calls itself", _code(name)),
        ("Status", report.mcp_service_status),
        ("Protocol", _code(report.protocol_version or "")),
        ("Tools", f"{len(report.tools):,}"),
        ("Run", f"{report.depth}, seed {report.seed}, {started(report)}, {report.seconds:.1f} s"),
    ]
    return [f"- {label}: {value}" for label, value in facts if value]


def _failed(row: Row) -> str:
    test, evidence = row.test, row.evidence()
    latency = f", {row.latency}" if row.latency else ""
    parts = [f"### {_inline(test.subject)}: {_inline(test.title)}{latency}", *map(_check, row.findings)]
    if not row.findings and test.error:
        parts.append(_fence(plain(test.error)))
    if evidence.request is not None:
        whole = "" if evidence.is_whole else " (truncated)"
        parts.append(f"Sent{whole}:\n\n{_fence(json_text(evidence.request), 'json')}")
    if test.output is not None:
        parts.append(f"Received:\n\n{_fence(json_text(evidence.got), 'json')}")
    if evidence.command is not None:
        least = "" if test.shortest is None else ", with the shortest arguments that fail"
        parts.append(f"Repeat{least}:\n\n{_fence(evidence.command, 'sh')}")
    return "\n\n".join(parts)


def _check(check: Check) -> str:
    kind = check.kind
    source = (
        f"<{kind.source}>" if re.fullmatch(r"https://[\w./#?=&%~+-]+", kind.source) else _inline(kind.source)
    )
    return (
        f"**`{kind.name}`** ({kind.level}): {kind.title}\n\n"
        f"{_fence(plain(check.message))}\n\nSource: {source}"
    )


def _reasons(shown_rows: Sequence[Row]) -> str:
    return _bullets(
        [
            f"- {_inline(row.test.subject)}: {_inline(row.test.title)}"
            + (f"\n  - {_inline(row.test.error, 300)}" if row.test.error else "")
            for row in shown_rows
        ]
    )


def _accepted(shown_rows: Sequence[Row]) -> str:
    """List each finding once, however many tests show it."""
    return _bullets(
        [
            f"- {_inline(subject)}: `{first.kind.name}`, {ACCEPTED_BECAUSE[first.accepted or 'known']}"
            f"{f', in {1 + len(more):,} tests' if more else ''}\n  - {_inline(first.message, 300)}"
            for subject, (first, *more) in accepted_findings(row.test for row in shown_rows)
        ]
    )


def _bullets(items: Sequence[str]) -> str:
    more = [f"- and {len(items) - _FAILED_TESTS:,} more"] if len(items) > _FAILED_TESTS else []
    return "\n".join([*items[:_FAILED_TESTS], *more])


def _load(report: Report) -> str:
    lines: list[tuple[str, ...]] = [("Subject", "Clients", "Requests", "Failed", *LOAD_COLUMNS)]
    for figures in report.load:
        numbers = (f"{number:,}" for number in (figures.clients, figures.requests, figures.failures))
        lines.append((_inline(figures.subject), *numbers, *load_words(figures)))
    return _padded(lines, numbers_from=1)


def _table(table_rows: Sequence[Row]) -> str:
    """Format a padded table, readable in a terminal."""
    lines = [("", "Result", "Subject", "Test", "Checks", "Latency")]
    for row in table_rows:
        subject, title = _inline(row.test.subject), _inline(row.test.title)
        lines.append((_SIGNS[row.outcome], row.outcome, subject, title, _checks(row), row.latency))
    return _padded(lines, numbers_from=5)


def _padded(lines: Sequence[Sequence[str]], *, numbers_from: int) -> str:
    """Format a padded table. Columns from `numbers_from` on are aligned to the right."""
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    columns = range(len(lines[0]))
    widths = [min(60, max(3, *(cell_len(line[column]) for line in cells))) for column in columns]
    ruler = ["-" * (width - 1) + (":" if at >= numbers_from else "-") for at, width in enumerate(widths)]
    return "\n".join(
        "| "
        + " | ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in [cells[0], ruler, *cells[1:]]
    )


def _checks(row: Row) -> str:
    count = len(row.test.checks)
    failed = sum(check.verdict == "failed" for check in row.test.checks)
    return f"{failed} of {count} failed" if failed else str(count or "")


def _inline(text: str, chars: int = _NAME_CHARS) -> str:
    """Format inline text: unchanged if it has no meaning in Markdown, else as code."""
    line = _one_line(text, chars)
    return line if _PLAIN.fullmatch(line) and not re.search(r"\bwww\b", line) else _code(text, chars)


def _code(text: str, chars: int = _NAME_CHARS) -> str:
    line = _one_line(text, chars)
    if not line:
        return ""
    ticks = "`" * (_longest_run(line) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def _one_line(text: str, chars: int) -> str:
    return escape_line(plain(" ".join(text.split()), chars))


def _fence(text: str, language: str = "text") -> str:
    ticks = "`" * max(3, _longest_run(text) + 1)
    return f"{ticks}{language}\n{text}\n{ticks}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
