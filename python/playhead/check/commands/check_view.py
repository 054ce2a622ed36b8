"""The report of `playhead check` at the terminal, and the live line while the check runs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from playhead.cli.terminal import Terminal, escape_line
from playhead.escaping import counted

if TYPE_CHECKING:
    from playhead.check.results import Report, Status, TestResult

WIDTH: Final = 80
_COUNTED: Final[tuple[Status, ...]] = ("success", "failed", "accepted", "error", "skipped")
"""Orders the statuses in the summary."""
_MOST_FAILED: Final = 50
_MOST_ACCEPTED: Final = 20
_MOST_UNDECIDED: Final = 10
_INPUT_CHARS: Final = 4_000
"""Limits a request shown on the terminal. The reports have the whole request."""
_MESSAGE_CHARS: Final = 2_000
_MOST_TITLES: Final = 3
"""Limits the lines with the titles of tests that fail alike."""
_SUBJECT_CHARS: Final = 50


class Progress:
    """Progress of a check, for the live line."""

    def __init__(self) -> None:
        self._count = 0
        self._failed = 0
        self._newest = "connecting"

    def tested(self, test: TestResult) -> None:
        """Count a finished test."""
        self._count += 1
        self._failed += test.status == "failed"
        self._newest = f"{test.subject}: {test.title}"

    def line(self) -> str:
        """Return the current line."""
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{counted(self._count, 'test')}{failed} · {self._newest}"


def show_report(terminal: Terminal, report: Report) -> None:
    """Print the report on stdout, 80 columns wide except for lines to be copied. Silent with `--json`."""
    for line in report_lines(report):
        terminal.show(line)


def report_lines(report: Report) -> Iterator[str]:
    """Format the report, coverage first. Controls in untrusted text are escaped."""
    if report.mcp_service_status == "available":
        yield report.coverage
        yield ""
    failed = _group_alike(test for test in report.tests if test.status == "failed")
    for tests in failed[:_MOST_FAILED]:
        yield from _failed_lines(report, tests[0])
        if len(tests) > 1:
            titles = ", ".join(escape_line(test.title) for test in tests[1:])
            more = f"and {len(tests) - 1} more like it: {titles}"
            yield from textwrap.wrap(
                more,
                WIDTH,
                initial_indent="  ",
                subsequent_indent="  ",
                max_lines=_MOST_TITLES,
                placeholder=" …",
            )
        yield ""
    if len(failed) > _MOST_FAILED:
        left = sum(len(tests) for tests in failed[_MOST_FAILED:])
        yield f"… and {left} more failed tests; --report FILE lists all"
        yield ""
    yield from _accepted_lines(report)
    for word, status in (("undecided  ", "error"), ("skipped    ", "skipped")):
        groups = _group_alike(test for test in report.tests if test.status == status)
        for tests in groups[:_MOST_UNDECIDED]:
            yield from _short_lines(word, tests[0])
            if len(tests) > 1:
                more = counted(len(tests) - 1, "test")
                yield f"{' ' * len(word)}and {more} more of {_subject(tests[0].subject)}"
        if len(groups) > _MOST_UNDECIDED:
            left = sum(len(tests) for tests in groups[_MOST_UNDECIDED:])
            yield f"… and {left} more {word.strip()} tests"
        if groups:
            yield ""
    yield from _load_lines(report)
    for remark in report.remarks:
        yield from textwrap.wrap(escape_line(remark), WIDTH)
    yield from _summary_lines(report)


def _group_alike(tests: Iterable[TestResult]) -> list[list[TestResult]]:
    """Group tests of one subject that fail the same checks, because one defect shows in many calls."""
    groups: dict[tuple[str, ...], list[TestResult]] = {}
    for test in tests:
        names = sorted({check.kind.name for check in test.checks if check.verdict == "failed"})
        groups.setdefault((test.subject, *names), []).append(test)
    return list(groups.values())


def _failed_lines(report: Report, test: TestResult) -> Iterator[str]:
    yield from textwrap.wrap(f"FAILED  {_name(test)}", WIDTH, subsequent_indent=" " * 8)
    for check in test.checks:
        if check.verdict == "failed":
            title = f"{check.kind.name} ({check.kind.level}): {check.kind.title}"
            yield from textwrap.wrap(title, WIDTH, initial_indent="  ", subsequent_indent="    ")
            message = escape_line(check.message[:_MESSAGE_CHARS])
            yield from textwrap.wrap(message, WIDTH, initial_indent="    ", subsequent_indent="    ")
    if test.method is not None:
        yield f"  {_repeat(report, test)}"


def _repeat(report: Report, test: TestResult) -> str:
    """Return one line that repeats a call, or the request as JSON."""
    from playhead.check.report.evidence import Allowance, bounded, command

    sent = bounded(test.input, Allowance(left=_INPUT_CHARS), chars=_INPUT_CHARS)
    if test.method == "tools/call" and (line := command(report, test, sent)) is not None:
        return line
    message = {"method": test.method} | ({"params": test.input} if test.input is not None else {})
    text = json.dumps(message, ensure_ascii=True, default=str)
    if len(text) > _INPUT_CHARS:
        text = f"({len(text)} characters; see --report FILE.json)"
    return f"sent: {text}"


def _accepted_lines(report: Report) -> Iterator[str]:
    """Format each accepted finding once, however many tests show it."""
    from playhead.check.report.rows import ACCEPTED_BECAUSE, accepted_findings

    findings = list(accepted_findings(report.tests))
    for subject, (check, *_) in findings[:_MOST_ACCEPTED]:
        why = ACCEPTED_BECAUSE[check.accepted or "known"]
        line = f"accepted   {_subject(subject)} · {check.kind.name} ({why})"
        yield from textwrap.wrap(line, WIDTH, subsequent_indent=" " * 11)
    if len(findings) > _MOST_ACCEPTED:
        yield f"… and {len(findings) - _MOST_ACCEPTED} more accepted findings"
    if findings:
        yield ""


def _load_lines(report: Report) -> Iterator[str]:
    if not report.load:
        return
    from playhead.check.report.rows import LOAD_COLUMNS, load_words

    columns = (*LOAD_COLUMNS, "Failed")
    yield f"{f'Load, {report.load[0].clients} clients':<24}" + "".join(f"{it:>11}" for it in columns)
    for figures in report.load:
        words = (*load_words(figures), f"{figures.failures:,}")
        subject = textwrap.shorten(escape_line(figures.subject), 23, placeholder="…")
        yield f"{subject[:23]:<24}" + "".join(f"{word:>11}" for word in words)
    yield ""


def _summary_lines(report: Report) -> Iterator[str]:
    from playhead.check.report.rows import STATUS_OUTCOME

    who = escape_line(report.server_name or report.server)
    version = f" {escape_line(report.server_version)}" if report.server_version else ""
    revision = f", MCP {escape_line(report.protocol_version)}" if report.protocol_version else ""
    yield from textwrap.wrap(f"{who}{version}{revision}: {report.depth} check, seed {report.seed}", WIDTH)
    if report.mcp_service_status == "unavailable":
        yield "the server can't be reached"
        return
    counts = ", ".join(
        f"{report.count(status)} {STATUS_OUTCOME[status]}"
        for status in _COUNTED
        if report.count(status) or status in ("success", "failed")
    )
    n_tools, n_tests = counted(len(report.tools), "tool"), counted(len(report.tests), "test")
    yield f"{n_tools}, {n_tests} in {report.seconds:.1f} s: {counts}"
    if report.is_unproven:
        allowed = "allowed by --allow-unproven" if report.allow_unproven else "--allow-unproven accepts this"
        yield f"not one tool succeeded, so nothing is proven ({allowed})"


def _name(test: TestResult) -> str:
    return escape_line(f"{test.subject} · {test.title}")


def _subject(subject: str) -> str:
    return textwrap.shorten(escape_line(subject), _SUBJECT_CHARS, placeholder=" …")


def _short_lines(word: str, test: TestResult) -> list[str]:
    text = f"{word}{_name(test)}: {escape_line((test.error or '')[:_MESSAGE_CHARS])}"
    return textwrap.wrap(text, WIDTH, subsequent_indent=" " * len(word), max_lines=3, placeholder=" …")
