"""The rows of a report, failed ones first, and the words for verdicts: shared by all formats."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from playhead.check.results import Acceptance, Check, LoadFigures, Report, Status, TestResult, Verdict

Outcome = Literal["failed", "accepted", "undecided", "skipped", "passed"]
"""Of one row. The status `error` of a test is shown as undecided: `error` would read like a defect."""

OUTCOMES: Final[tuple[Outcome, ...]] = ("failed", "accepted", "undecided", "skipped", "passed")
"""In the order of interest."""
STATUS_OUTCOME: Final[dict[Status, Outcome]] = {
    "failed": "failed",
    "accepted": "accepted",
    "error": "undecided",
    "skipped": "skipped",
    "success": "passed",
}
ACCEPTED_BECAUSE: Final[dict[Acceptance, str]] = {
    "ignored": "ignored",
    "known": "in the baseline",
    "level": "a SHOULD",
}
_STATUS_VERDICT: Final[dict[Status, Verdict | None]] = {
    "failed": "failed",
    "accepted": "accepted",
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


def acceptance(test: TestResult) -> str:
    """Say why the failures of an accepted test don't count."""
    reasons = (check.accepted for check in test.checks if check.accepted is not None)
    return ", ".join(dict.fromkeys(ACCEPTED_BECAUSE[reason] for reason in reasons))


def counts(report: Report) -> dict[Outcome, int]:
    """Count the tests by outcome. Accepted ones are left out if there are none: few people accept any."""
    found = dict.fromkeys(OUTCOMES, 0)
    for test in report.tests:
        found[STATUS_OUTCOME[test.status]] += 1
    if not found["accepted"]:
        del found["accepted"]
    return found


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
    accepted, undecided = report.count("accepted"), report.count("error")
    if failed := report.count("failed"):
        also = f"; {accepted:,} more failed and are accepted" if accepted else ""
        return f"{failed:,} of {counted(tests, 'test')} failed{also}."
    if tests == 0:
        return "Nothing was tested."
    also = f"; {undecided:,} could not be decided" if undecided else ""
    if accepted:
        return f"No failure counts: {accepted:,} of {counted(tests, 'test')} failed and are accepted{also}."
    return f"No test of {tests:,} failed{also}."


LOAD_COLUMNS: Final = ("p50", "p95", "Requests/s", "Bytes/s")


def load_words(figures: LoadFigures) -> tuple[str, str, str, str]:
    """Format the figures of a load, in the order of `LOAD_COLUMNS`."""
    latencies = ("-" if value is None else f"{value:,.1f} ms" for value in (figures.p50_ms, figures.p95_ms))
    p50, p95 = latencies
    return p50, p95, f"{figures.requests_per_second:,.1f}", f"{figures.bytes_per_second:,.0f}"


def started(report: Report) -> str:
    """Format the start time for people."""
    return re.sub(r"(?:Z|\+00:00)$", " UTC", report.started_at).replace("T", " ", 1)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
