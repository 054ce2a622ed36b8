"""The Markdown report: readable in a terminal, and on GitHub as a page, a comment or a job summary.

Untrusted text appears only in code spans and fences that it can't close: a fence is longer than the longest
run of backticks inside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len

from playhead.check.report.evidence import (
    ACCEPTED_BECAUSE,
    LOAD_COLUMNS,
    STATUS_OUTCOME,
    Allowance,
    Outcome,
    bounded,
    by_outcome,
    command,
    counted,
    counts,
    json_text,
    load_words,
    message,
    plain,
    server_words,
    started,
    verdict_sentence,
)
from playhead.check.results import Check, Report, TestResult
from playhead.escaping import escape_line

_VALUE_CHARS: Final = 4_000
_REPORT_CHARS: Final = 400_000
"""GitHub shows files up to 512 KiB and job summaries up to 1 MiB."""
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
"""Text without meaning in Markdown at any position, and without addresses that GitHub turns into links."""


def render(report: Report) -> str:
    """Render the summary, the failed tests with all details, and the table of tests."""
    allowance = Allowance(left=_REPORT_CHARS)
    tests = by_outcome(report.tests)
    failed = [test for test in tests if test.status == "failed"]
    parts = [
        f"# playhead check: {'passed' if report.passed else 'failed'}",
        f"**{verdict_sentence(report)}**",
        "\n".join(_facts(report)),
    ]
    parts.extend(f"> {_inline(remark, 1_000)}" for remark in report.remarks)
    if failed:
        parts.append("## Failed")
        parts.extend(_failed(report, test, allowance) for test in failed[:_FAILED_TESTS])
        if len(failed) > _FAILED_TESTS:
            parts.append(
                f"{counted(len(failed) - _FAILED_TESTS, 'failed test')} more; the JSON report has all."
            )
    accepted = [test for test in tests if test.status == "accepted"]
    if accepted:
        parts.append("## Accepted")
        parts.append("These failed, and don't count: ignored, in the baseline, or only a SHOULD.")
        parts.append(_accepted(accepted))
    undecided = [test for test in tests if test.status == "error"]
    if undecided:
        parts.append("## Undecided")
        parts.append(
            "An error in answer to generated arguments proves nothing, even if the schema allows them."
        )
        parts.append(_reasons(undecided))
    skipped = [test for test in tests if test.status == "skipped"]
    if skipped:
        parts.append("## Skipped")
        parts.append(_reasons(skipped))
    if report.load:
        parts.append("## Load")
        parts.append(_load(report))
    if tests:
        parts.append("## Tests")
        parts.append(_table(tests[:_TABLE_ROWS]))
        if len(tests) > _TABLE_ROWS:
            parts.append(f"{counted(len(tests) - _TABLE_ROWS, 'test')} more; the JSON report has all.")
    return "\n\n".join(parts) + "\n"


def _facts(report: Report) -> list[str]:
    name = " ".join(text for text in (report.server_name, report.server_version) if text)
    facts = [
        ("Tests", ", ".join(f"{count:,} {outcome}" for outcome, count in counts(report.tests).items())),
        ("Server", _code(server_words(report), 2_000)),
        ("Calls itself", _code(name) if name else ""),
        ("Status", report.mcp_service_status),
        ("Protocol", _code(report.protocol_version) if report.protocol_version else ""),
        ("Tools", f"{len(report.tools):,}"),
        ("Run", f"{report.depth}, seed {report.seed}, {started(report)}, {report.seconds:.1f} s"),
    ]
    return [f"- {label}: {value}" for label, value in facts if value]


def _failed(report: Report, test: TestResult, allowance: Allowance) -> str:
    latency = "" if test.latency_ms is None else f", {_latency(test)}"
    parts = [f"### {_inline(test.subject)}: {_inline(test.title)}{latency}"]
    checks = [check for check in test.checks if check.verdict == "failed"]
    parts.extend(_check(check) for check in checks)
    if not checks and test.error:
        parts.append(_fence(plain(test.error)))
    sent = bounded(test.input, allowance, chars=_VALUE_CHARS)
    got = bounded(test.output, allowance, chars=_VALUE_CHARS)
    request = message(test, sent)
    if request is not None:
        whole = "" if sent.is_whole else " (truncated)"
        parts.append(f"Sent{whole}:\n\n{_fence(json_text(request), 'json')}")
    if test.output is not None:
        parts.append(f"Received:\n\n{_fence(json_text(got.value), 'json')}")
    line = command(report, test, sent)
    if line is not None:
        least = "" if test.shortest is None else ", with the shortest arguments that fail"
        parts.append(f"Repeat{least}:\n\n{_fence(line, 'sh')}")
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


def _reasons(tests: Sequence[TestResult]) -> str:
    lines = [
        f"- {_inline(test.subject)}: {_inline(test.title)}"
        + (f"\n  - {_inline(test.error, 300)}" if test.error else "")
        for test in tests[:_FAILED_TESTS]
    ]
    if len(tests) > _FAILED_TESTS:
        lines.append(f"- and {len(tests) - _FAILED_TESTS:,} more")
    return "\n".join(lines)


def _accepted(tests: Sequence[TestResult]) -> str:
    """List each finding once, however many tests show it."""
    found: dict[tuple[str, str], list[Check]] = {}
    for test in tests:
        for check in test.checks:
            if check.verdict == "accepted":
                found.setdefault((test.subject, check.kind.name), []).append(check)
    lines = [
        f"- {_inline(subject)}: `{name}`, {ACCEPTED_BECAUSE[checks[0].accepted or 'known']}"
        f"{f', in {len(checks):,} tests' if len(checks) > 1 else ''}\n  - {_inline(checks[0].message, 300)}"
        for (subject, name), checks in list(found.items())[:_FAILED_TESTS]
    ]
    if len(found) > _FAILED_TESTS:
        lines.append(f"- and {len(found) - _FAILED_TESTS:,} more")
    return "\n".join(lines)


def _load(report: Report) -> str:
    head = ("Subject", "Clients", "Requests", "Failed", *LOAD_COLUMNS)
    lines: list[tuple[str, ...]] = [head]
    for figures in report.load:
        counts = (f"{number:,}" for number in (figures.clients, figures.requests, figures.failures))
        lines.append((_inline(figures.subject), *counts, *load_words(figures)))
    return _padded(lines, numbers_from=1)


def _table(tests: Sequence[TestResult]) -> str:
    """Format a padded table, readable in a terminal."""
    head = ("", "Result", "Subject", "Test", "Checks", "Latency")
    lines = [head]
    for test in tests:
        outcome = STATUS_OUTCOME[test.status]
        lines.append(
            (
                _SIGNS[outcome],
                outcome,
                _inline(test.subject),
                _inline(test.title),
                _checks(test),
                _latency(test),
            )
        )
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


def _checks(test: TestResult) -> str:
    if not test.checks:
        return ""
    failed = sum(check.verdict == "failed" for check in test.checks)
    return f"{failed} of {len(test.checks)} failed" if failed else f"{len(test.checks)}"


def _latency(test: TestResult) -> str:
    return "" if test.latency_ms is None else f"{test.latency_ms:,.1f} ms"


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
