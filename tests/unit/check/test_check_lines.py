"""The summary of a check on the terminal: each defect once, however many calls show it."""

from __future__ import annotations

from playhead.check.catalogue import CheckKind
from playhead.check.commands.check_view import WIDTH, report_lines
from playhead.check.results import Check, TestResult
from tests.unit.check.report_kit import CONTENT, SCHEMA, report


def failed(subject: str, title: str, *, kind: CheckKind = SCHEMA) -> TestResult:
    check = Check(kind=kind, verdict="failed", message="m")
    return TestResult(subject=subject, title=title, status="failed", error="m", checks=(check,))


def undecided(subject: str, title: str) -> TestResult:
    return TestResult(subject=subject, title=title, status="error", error="it refused them")


def lines(*tests: TestResult) -> str:
    shown = list(report_lines(report(*tests)))
    assert all(len(line) <= WIDTH for line in shown)
    return "\n".join(shown)


def test_tests_of_one_subject_that_fail_the_same_are_told_together() -> None:
    shown = lines(failed("tool a", "first"), failed("tool a", "second"), failed("tool a", "third"))
    assert shown.count("FAILED") == 1
    assert "tool a · first" in shown
    assert "and 2 more like it: second, third" in shown
    assert "3 failed" in shown


def test_another_subject_and_another_check_are_told_apart() -> None:
    shown = lines(failed("tool a", "x"), failed("tool b", "x"), failed("tool a", "x", kind=CONTENT))
    assert shown.count("FAILED") == 3
    assert "more like it" not in shown


def test_undecided_tests_of_one_tool_are_told_by_their_first() -> None:
    shown = lines(undecided("tool a", "one"), undecided("tool a", "two"), undecided("tool b", "three"))
    assert shown.count("undecided  ") == 2
    assert "and 1 test more of tool a" in shown
    assert "two" not in shown


def test_many_long_titles_are_cut_and_no_line_is_too_long() -> None:
    shown = lines(*(failed("tool a", f"{number} " + "word " * 30) for number in range(20)))
    assert "and 19 more like it" in shown
    assert " …" in shown
    assert len(shown.splitlines()) < 17
