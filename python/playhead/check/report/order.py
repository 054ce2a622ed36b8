"""What the formats have in common: words for verdicts, and an order with the failed first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from playhead.check.results import Check, Report, Status, TestResult, Verdict

Outcome = Literal["failed", "undecided", "skipped", "passed"]
"""Of one row. A test's status `error` is called undecided: `error` would be taken for a defect."""

OUTCOMES: Final[tuple[Outcome, ...]] = ("failed", "undecided", "skipped", "passed")
"""In the order in which a reader wants them."""
STATUS_OUTCOME: Final[dict[Status, Outcome]] = {
    "failed": "failed",
    "error": "undecided",
    "skipped": "skipped",
    "success": "passed",
}
_STATUS_VERDICT: Final[dict[Status, Verdict | None]] = {
    "failed": "failed",
    "error": None,  # no check says so, the test does
    "skipped": "skipped",
    "success": "passed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a report: a check on a test, or what the test itself says where no check says it."""

    outcome: Outcome
    test: TestResult
    check: Check | None

    @property
    def message(self) -> str:
        return (self.test.error or "") if self.check is None else self.check.message


def by_outcome(tests: Iterable[TestResult]) -> list[TestResult]:
    """The failed tests first, then the undecided and the skipped; else in the order they were made in."""
    return sorted(tests, key=lambda test: OUTCOMES.index(STATUS_OUTCOME[test.status]))


def rows(tests: Iterable[TestResult]) -> list[Row]:
    """One row a check, the failed first; and one for each test whose status no check of it shows."""
    found: list[Row] = []
    for test in tests:
        if all(check.verdict != _STATUS_VERDICT[test.status] for check in test.checks):
            found.append(Row(outcome=STATUS_OUTCOME[test.status], test=test, check=None))
        found.extend(Row(outcome=check.verdict, test=test, check=check) for check in test.checks)
    return sorted(found, key=lambda row: OUTCOMES.index(row.outcome))


def count_rows(found: Iterable[Row]) -> dict[Outcome, int]:
    counts: dict[Outcome, int] = dict.fromkeys(OUTCOMES, 0)
    for row in found:
        counts[row.outcome] += 1
    return counts


def verdict_sentence(report: Report) -> str:
    """The whole report in one sentence."""
    tests = len(report.tests)
    if report.mcp_service_status != "available":
        return "The server could not be used."
    if failed := report.count("failed"):
        return f"{failed:,} of {counted(tests, 'test')} failed."
    if tests == 0:
        return "Nothing was tested."
    if undecided := report.count("error"):
        return f"No test of {tests:,} failed; {undecided:,} could not be decided."
    return f"No test of {tests:,} failed."


def started(report: Report) -> str:
    """When, as a person reads it."""
    return re.sub(r"(?:Z|\+00:00)$", " UTC", report.started_at).replace("T", " ", 1)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
