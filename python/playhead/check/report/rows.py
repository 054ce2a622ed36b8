"""The rows of a report, failed ones first, and the words for verdicts: shared by all formats."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from playhead.check.results import Check, Report, Status, TestResult, Verdict

Outcome = Literal["failed", "undecided", "skipped", "passed"]
"""Of one row. The status `error` of a test is shown as undecided: `error` would read like a defect."""

OUTCOMES: Final[tuple[Outcome, ...]] = ("failed", "undecided", "skipped", "passed")
"""In the order of interest."""
STATUS_OUTCOME: Final[dict[Status, Outcome]] = {
    "failed": "failed",
    "error": "undecided",
    "skipped": "skipped",
    "success": "passed",
}
_STATUS_VERDICT: Final[dict[Status, Verdict | None]] = {
    "failed": "failed",
    "error": None,  # stated by the test, not by a check
    "skipped": "skipped",
    "success": "passed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a report: a check of a test, or the test's own status if no check shows it."""

    outcome: Outcome
    test: TestResult
    check: Check | None

    @property
    def message(self) -> str:
        return (self.test.error or "") if self.check is None else self.check.message


def by_outcome(tests: Iterable[TestResult]) -> list[TestResult]:
    """Sort tests: failed, undecided, skipped, passed; otherwise in the order of execution."""
    return sorted(tests, key=lambda test: OUTCOMES.index(STATUS_OUTCOME[test.status]))


def rows(tests: Iterable[TestResult]) -> list[Row]:
    """Return one row per check, failed first, and one per test whose status no check shows."""
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
    """Summarize the report in one sentence."""
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
    """Format the start time for people."""
    return re.sub(r"(?:Z|\+00:00)$", " UTC", report.started_at).replace("T", " ", 1)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
