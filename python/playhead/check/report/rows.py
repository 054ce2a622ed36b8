"""The rows of a report: each test with its verdict and its evidence. Every format renders these rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from playhead.check.report.evidence import Allowance, bounded, command, message
from playhead.check.results import Acceptance, Check, Json, LoadFigures, Report, Status, TestResult
from playhead.escaping import counted

Outcome = Literal["failed", "accepted", "undecided", "skipped", "passed"]
"""The verdict on a test or check. A test with the status `error` is undecided: `error` would read like a
defect."""

OUTCOMES: Final[tuple[Outcome, ...]] = ("failed", "accepted", "undecided", "skipped", "passed")
"""Orders the outcomes, the most interesting first."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The request and the answer of a test, bounded, and the command that repeats it."""

    sent: Json
    """The parameters of the request."""
    is_whole: bool
    """True if the parameters are complete."""
    got: Json
    request: Json
    """The JSON-RPC message; None if the test sent none."""
    command: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One test, as every format shows it."""

    test: TestResult
    report: Report
    value_chars: int
    allowance: Allowance

    @property
    def outcome(self) -> Outcome:
        return STATUS_OUTCOME[self.test.status]

    @property
    def checks(self) -> list[Check]:
        """The checks in the order of interest."""
        return sorted(self.test.checks, key=lambda check: OUTCOMES.index(check.verdict))

    @property
    def findings(self) -> list[Check]:
        """The checks that decided the outcome: those that failed or, if none did, the accepted ones."""
        return [
            check
            for check in self.test.checks
            if check.verdict == self.outcome and check.verdict in ("failed", "accepted")
        ]

    @property
    def latency(self) -> str:
        return milliseconds(self.test.latency_ms)

    def evidence(self) -> Evidence:
        """Return the request and the answer. Their characters count against the report's allowance."""
        sent = bounded(self.test.input, self.allowance, chars=self.value_chars)
        got = bounded(self.test.output, self.allowance, chars=self.value_chars)
        return Evidence(
            sent=sent.value,
            is_whole=sent.is_whole,
            got=got.value,
            request=message(self.test, sent),
            command=command(self.report, self.test, sent),
        )


def rows(report: Report, allowance: Allowance, *, value_chars: int) -> list[Row]:
    """Return a row per test, in the order of execution.

    Their evidence has `value_chars` per request and answer, and `allowance` in total.
    """
    return [
        Row(test=test, report=report, value_chars=value_chars, allowance=allowance) for test in report.tests
    ]


def by_outcome(rows: Iterable[Row]) -> list[Row]:
    """Sort rows by outcome, in the order of `OUTCOMES`."""
    return sorted(rows, key=lambda row: OUTCOMES.index(row.outcome))


def by_subject(tests: Iterable[Row]) -> dict[str, list[Row]]:
    """Group rows by what they test, in their order."""
    groups: dict[str, list[Row]] = {}
    for row in tests:
        groups.setdefault(row.test.subject, []).append(row)
    return groups


def accepted_findings(tests: Iterable[TestResult]) -> Iterator[tuple[str, Sequence[Check]]]:
    """Yield each accepted finding in `tests` once: its subject, and its check in every test that shows it."""
    findings: dict[tuple[str, str], list[Check]] = {}
    for test in tests:
        for check in test.checks:
            if check.verdict == "accepted":
                findings.setdefault((test.subject, check.kind.name), []).append(check)
    yield from ((subject, checks) for (subject, _), checks in findings.items())


def counts(rows: Sequence[Row]) -> dict[Outcome, int]:
    """Count rows by outcome. A count of 0 accepted rows is omitted: few people accept findings."""
    outcomes = [row.outcome for row in rows]
    return {it: outcomes.count(it) for it in OUTCOMES if it in outcomes or it != "accepted"}


def verdict_of(rows: Iterable[Row]) -> Outcome:
    """Return the verdict on everything that `rows` tested: skipped only if all rows are."""
    outcomes = {row.outcome for row in rows} - {"skipped"}
    return min(outcomes, key=OUTCOMES.index, default="skipped")


def verdict_sentence(report: Report) -> str:
    """Summarize the report in one sentence."""
    tests = len(report.tests)
    if report.is_unproven and not report.allow_unproven and not report.count("failed"):
        return f"Nothing is proven: {report.coverage}."
    if report.mcp_service_status != "available":
        return "The server could not be used."
    accepted, undecided = report.count("accepted"), report.count("error")
    verb = "is" if accepted == 1 else "are"
    if failed := report.count("failed"):
        also = f"; {accepted:,} more {verb} accepted" if accepted else ""
        return f"{failed:,} of {counted(tests, 'test')} failed{also}."
    if tests == 0:
        return "Nothing was tested."
    also = f"; {undecided:,} could not be decided" if undecided else ""
    if accepted:
        return (
            f"No failure counts: {accepted:,} of {counted(tests, 'test')} failed and {verb} accepted{also}."
        )
    return f"No test of {tests:,} failed{also}."


LOAD_COLUMNS: Final = ("p50", "p95", "Requests/s", "Bytes/s")


def load_words(figures: LoadFigures) -> tuple[str, str, str, str]:
    """Format the figures of a load, in the order of `LOAD_COLUMNS`."""
    p50, p95 = (milliseconds(value) or "-" for value in (figures.p50_ms, figures.p95_ms))
    return p50, p95, f"{figures.requests_per_second:,.1f}", f"{figures.bytes_per_second:,.0f}"


def started(report: Report) -> str:
    """Format the start time for people."""
    return re.sub(r"(?:Z|\+00:00)$", " UTC", report.started_at).replace("T", " ", 1)


def milliseconds(latency_ms: float | None) -> str:
    return "" if latency_ms is None else f"{latency_ms:,.1f} ms"
