"""What a check of a server found: checks, the tests they belong to, and the report that holds them all.

A *check* is one judgement with a stable name (`tools.structured-content`), a *test* is something done to the
server once (a call, a read, a listing) with the checks made on it, and the report counts tests. Everything
here is plain data: `check.report` writes it as JSON, Markdown, HTML and JUnit XML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]

Verdict = Literal["passed", "failed", "skipped"]
Status = Literal["success", "failed", "error", "skipped"]
"""`failed`: a check found a defect. `error`: nothing is proven either way; a tool answered with an error to
arguments that only its schema vouches for. `skipped`: not done, and why."""

Level = Literal["must", "should"]

_MESSAGE_CHARS: Final = 4_000
"""Of one message: what a server said is quoted in it, however long that was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckKind:
    """A check as the catalogue has it: what is asked of every server."""

    name: str
    """Stable, `subject.what` in lower case: `tools.structured-content`."""
    title: str
    """What is expected, as a sentence."""
    level: Level
    """The word of the specification; a breach of either is a failed check."""
    source: str
    """Where that is written: the page of the MCP specification, or the page of this project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One judgement on one test."""

    kind: CheckKind
    verdict: Verdict
    message: str = ""
    """Of a failed one: what was expected, what came, where, what to do. Of a skipped one: why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """One thing done to the server, and what was judged of it."""

    __test__ = False  # pytest collects classes by this prefix

    subject: str
    """What was tested: `tool NAME`, `connection`, `listing tools`, `resource URI`, `prompt NAME`."""
    title: str
    """What was done, in words: `valid arguments: the least`, `8 calls at once`."""
    tool: str | None = None
    """The tool's name, where a tool was tested."""
    method: str | None = None
    """The request's method; with `input` it is what to send to see the same again."""
    input: Json = None
    """The request's parameters as they were sent."""
    output: Json = None
    """What came: the result, or the error object. Long texts are cut, with a word that says so."""
    status: Status
    error: str | None = None
    """Why the test is `failed`, `error` or `skipped`, in one line."""
    latency_ms: float | None = None
    checks: tuple[Check, ...] = ()


def judged(checks: Sequence[Check], *, undecided: str | None = None) -> tuple[Status, str | None]:
    """The status and error of a test from its checks; `undecided` says why a test with no failed check is
    `error` and no success."""
    failed = [check for check in checks if check.verdict == "failed"]
    if failed:
        return "failed", failed[0].message
    if undecided is not None:
        return "error", undecided
    if checks and all(check.verdict == "skipped" for check in checks):
        return "skipped", checks[0].message
    return "success", None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What `check_server` gives, and every format of the report is written from."""

    server: str
    """The server in words, without secrets."""
    target: str | None = None
    """SERVER as the command line was given it, to show how a call is made again; formats leave out of it what
    looks like a secret. None where a program named the server."""
    config: str | None = None
    """The servers file that the command line named beside `target`; None where it named none."""
    server_name: str | None = None
    server_version: str | None = None
    protocol_version: str | None = None
    depth: Literal["quick", "full"]
    seed: int
    started_at: str
    """ISO 8601, UTC."""
    seconds: float
    mcp_service_status: Literal["unknown", "available", "unavailable"]
    tools: tuple[str, ...] = ()
    """Names of the tools discovered."""
    tests: tuple[TestResult, ...] = ()
    remarks: tuple[str, ...] = ()
    """What a reader should know and no test says: a part that was not tried, and why."""
    interrupted: bool = False
    """Whether the check was broken off: this is what was found up to then."""

    def count(self, status: Status) -> int:
        return sum(test.status == status for test in self.tests)

    @property
    def passed(self) -> bool:
        """Whether the server was there, the check came to its end, and no test failed."""
        there = self.mcp_service_status == "available"
        return there and not self.interrupted and self.count("failed") == 0


@dataclass(slots=True)
class TestDraft:
    """Collects the checks of one test while it runs. `passed`, `failed` and `skipped` add one each."""

    __test__ = False

    subject: str
    title: str
    tool: str | None = None
    method: str | None = None
    input: Json = None
    output: Json = None
    latency_ms: float | None = None
    undecided: str | None = None
    void: str | None = None
    """Why nothing can be concluded from what came, whatever was judged of it: the server was too busy."""
    checks: list[Check] = field(default_factory=list)

    def passed(self, kind: CheckKind) -> None:
        self.checks.append(Check(kind=kind, verdict="passed"))

    def failed(self, kind: CheckKind, message: str) -> None:
        self.checks.append(Check(kind=kind, verdict="failed", message=message[:_MESSAGE_CHARS]))

    def skipped(self, kind: CheckKind, message: str) -> None:
        self.checks.append(Check(kind=kind, verdict="skipped", message=message[:_MESSAGE_CHARS]))

    def require(self, kind: CheckKind, condition: bool, message: str) -> bool:
        """Passed where `condition` holds, else failed with `message`; gives `condition` back."""
        if condition:
            self.passed(kind)
        else:
            self.failed(kind, message)
        return condition

    def done(self) -> TestResult:
        if self.void is not None:
            self.undecided = self.void
            self.checks = [Check(kind=it.kind, verdict="skipped", message=self.void) for it in self.checks]
        status, error = judged(self.checks, undecided=self.undecided)
        return TestResult(
            subject=self.subject,
            title=self.title,
            tool=self.tool,
            method=self.method,
            input=self.input,
            output=self.output,
            status=status,
            error=error,
            latency_ms=self.latency_ms,
            checks=tuple(self.checks),
        )


REPORT_KEYS: Final = (
    "mcp_service_status",
    "total_tools_discovered",
    "tests_conducted",
    "successful_tests",
    "failed_tests",
    "skipped_tests",
    "detailed_results",
)
"""The keys that every JSON report has."""
