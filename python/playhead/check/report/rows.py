"""The tests of a report, failed ones first, and the words for verdicts: shared by all formats."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

from playhead.check.results import Acceptance, LoadFigures, Report, Status, TestResult

Outcome = Literal["failed", "accepted", "undecided", "skipped", "passed"]
"""Of a test or a check. The status `error` is shown as undecided: `error` would read like a defect."""

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


def by_outcome(tests: Iterable[TestResult]) -> list[TestResult]:
    """Sort tests: failed, undecided, skipped, passed; otherwise in the order of execution."""
    return sorted(tests, key=lambda test: OUTCOMES.index(STATUS_OUTCOME[test.status]))


def verdict_of(tests: Iterable[TestResult]) -> Outcome:
    """Return the verdict on everything that `tests` tested: skipped only if nothing else was done."""
    found = {STATUS_OUTCOME[test.status] for test in tests}
    order: tuple[Outcome, ...] = ("failed", "accepted", "undecided", "passed")
    return next((outcome for outcome in order if outcome in found), "skipped")


def acceptance(test: TestResult) -> str:
    """Say why the failures of an accepted test don't count."""
    reasons = (check.accepted for check in test.checks if check.accepted is not None)
    return ", ".join(dict.fromkeys(ACCEPTED_BECAUSE[reason] for reason in reasons))


def counts(tests: Iterable[TestResult]) -> dict[Outcome, int]:
    """Count tests by outcome. Accepted ones are left out if there are none: few people accept any."""
    found: dict[Outcome, int] = dict.fromkeys(OUTCOMES, 0)
    for test in tests:
        found[STATUS_OUTCOME[test.status]] += 1
    if not found["accepted"]:
        del found["accepted"]
    return found


def verdict_sentence(report: Report) -> str:
    """Summarize the report in one sentence."""
    tests = len(report.tests)
    if report.mcp_service_status != "available":
        return "The server could not be used."
    accepted, undecided = report.count("accepted"), report.count("error")
    if failed := report.count("failed"):
        also = f"; {accepted:,} more {'is' if accepted == 1 else 'are'} accepted" if accepted else ""
        return f"{failed:,} of {counted(tests, 'test')} failed{also}."
    if tests == 0:
        return "Nothing was tested."
    also = f"; {undecided:,} could not be decided" if undecided else ""
    if accepted:
        verb = "is" if accepted == 1 else "are"
        return (
            f"No failure counts: {accepted:,} of {counted(tests, 'test')} failed and {verb} accepted{also}."
        )
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
