"""What a check says on the terminal: a line while it runs, and in the end what failed, ready to do again."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from playhead.cli.terminal import Terminal, escape_line

if TYPE_CHECKING:
    from playhead.check.results import Report, Status, TestResult

WIDTH: Final = 80
_WORDS: Final[Mapping[Status, str]] = {
    "success": "passed",
    "failed": "failed",
    "error": "undecided",
    "skipped": "skipped",
}
_MOST_FAILED: Final = 50
_MOST_UNDECIDED: Final = 10
_INPUT_CHARS: Final = 4_000
"""Of what a terminal shows to be copied. The reports have it whole."""
_MESSAGE_CHARS: Final = 2_000
_MOST_TITLES: Final = 3
"""Lines of titles of the tests that fail alike."""
_SUBJECT_CHARS: Final = 50


class Progress:
    """How far a check has come, for the live line."""

    def __init__(self) -> None:
        self._count = 0
        self._failed = 0
        self._newest = "connecting"

    def tested(self, test: TestResult) -> None:
        """A test has ended."""
        self._count += 1
        self._failed += test.status == "failed"
        self._newest = f"{test.subject}: {test.title}"

    def line(self) -> str:
        """The line now."""
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{_tests(self._count)}{failed} · {self._newest}"


def show_report(terminal: Terminal, report: Report) -> None:
    """The report on stdout, for a person at 80 columns; nothing beside `--json`."""
    for line in report_lines(report):
        terminal.show(line)


def report_lines(report: Report) -> Iterator[str]:
    """The same as lines. Foreign text has its controls escaped."""
    failed = _alike(test for test in report.tests if test.status == "failed")
    for tests in failed[:_MOST_FAILED]:
        yield from _failed(tests[0])
        if len(tests) > 1:
            titles = ", ".join(escape_line(test.title) for test in tests[1:])
            more = f"and {len(tests) - 1} more like it: {titles}"
            yield from _wrapped(more, indent=2, most=_MOST_TITLES)
        yield ""
    if len(failed) > _MOST_FAILED:
        left = sum(len(tests) for tests in failed[_MOST_FAILED:])
        yield f"… and {left} more failed tests; --report FILE has them all"
        yield ""
    for word, status in (("undecided  ", "error"), ("skipped    ", "skipped")):
        groups = _alike(test for test in report.tests if test.status == status)
        for tests in groups[:_MOST_UNDECIDED]:
            yield from _short(word, tests[0])
            if len(tests) > 1:
                yield f"{' ' * len(word)}and {_tests(len(tests) - 1)} more of {_subject(tests[0])}"
        if len(groups) > _MOST_UNDECIDED:
            left = sum(len(tests) for tests in groups[_MOST_UNDECIDED:])
            yield f"… and {left} more {word.strip()} tests"
        if groups:
            yield ""
    for remark in report.remarks:
        yield from textwrap.wrap(escape_line(remark), WIDTH)
    yield from _summary(report)


def _alike(tests: Iterable[TestResult]) -> list[list[TestResult]]:
    """Tests of one subject that fail the same checks, together: one defect shows in many calls."""
    groups: dict[tuple[str, ...], list[TestResult]] = {}
    for test in tests:
        names = sorted({check.kind.name for check in test.checks if check.verdict == "failed"})
        groups.setdefault((test.subject, *names), []).append(test)
    return list(groups.values())


def _failed(test: TestResult) -> Iterator[str]:
    yield from textwrap.wrap(f"FAILED  {_name(test)}", WIDTH, subsequent_indent=" " * 8)
    for check in test.checks:
        if check.verdict == "failed":
            title = f"{check.kind.name} ({check.kind.level}): {check.kind.title}"
            yield from textwrap.wrap(title, WIDTH, initial_indent="  ", subsequent_indent="    ")
            message = escape_line(check.message[:_MESSAGE_CHARS])
            yield from textwrap.wrap(message, WIDTH, initial_indent="    ", subsequent_indent="    ")
    if test.method is not None:
        sent = {"method": test.method} | ({"params": test.input} if test.input is not None else {})
        text = json.dumps(sent, ensure_ascii=True, default=str)
        if len(text) > _INPUT_CHARS:
            text = f"({len(text)} characters: --report FILE.json has them)"
        yield f"  sent: {text}"


def _summary(report: Report) -> Iterator[str]:
    who = escape_line(report.server_name or report.server)
    version = f" {escape_line(report.server_version)}" if report.server_version else ""
    revision = f", MCP {escape_line(report.protocol_version)}" if report.protocol_version else ""
    yield from textwrap.wrap(f"{who}{version}{revision}: {report.depth} check, seed {report.seed}", WIDTH)
    if report.mcp_service_status == "unavailable":
        yield "the server can't be reached"
        return
    counts = ", ".join(
        f"{report.count(status)} {word}"
        for status, word in _WORDS.items()
        if report.count(status) or status in ("success", "failed")
    )
    tools = "1 tool" if len(report.tools) == 1 else f"{len(report.tools)} tools"
    yield f"{tools}, {_tests(len(report.tests))} in {report.seconds:.1f} s: {counts}"


def _name(test: TestResult) -> str:
    return escape_line(f"{test.subject} · {test.title}")


def _subject(test: TestResult) -> str:
    return textwrap.shorten(escape_line(test.subject), _SUBJECT_CHARS, placeholder=" …")


def _wrapped(text: str, *, indent: int, most: int) -> list[str]:
    space = " " * indent
    return textwrap.wrap(
        text, WIDTH, initial_indent=space, subsequent_indent=space, max_lines=most, placeholder=" …"
    )


def _tests(count: int) -> str:
    return "1 test" if count == 1 else f"{count} tests"


def _short(word: str, test: TestResult) -> list[str]:
    text = f"{word}{_name(test)}: {escape_line((test.error or '')[:_MESSAGE_CHARS])}"
    return textwrap.wrap(text, WIDTH, subsequent_indent=" " * len(word), max_lines=3, placeholder=" …")
