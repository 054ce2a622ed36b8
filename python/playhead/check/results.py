"""The results of a check: single checks, the tests that they belong to, and the report.

A *check* is one judgement with a stable name (`tools.structured-content`). A *test* is one action (a call, a
read, a listing) with the checks made on its outcome. The report counts tests. Everything here is plain data:
`check.report` writes it as JSON, Markdown, HTML and JUnit XML.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from playhead.check.catalogue import CATALOGUE, CheckKind

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]

Verdict = Literal["passed", "failed", "accepted", "skipped"]
"""`accepted`: a failure that does not count, because of the level, an ignored check or the baseline."""
Status = Literal["success", "failed", "accepted", "error", "skipped"]
"""`failed`: a check found a defect. `accepted`: checks found only defects that do not count. `error`: the
test is undecided, for example because a tool refused arguments that its schema allows. `skipped`: the test
was not made, for a stated reason."""

Acceptance = Literal["ignored", "known", "level"]
"""The reason why a failure does not count: the check is ignored, the baseline has the finding, or it violates
a SHOULD and only MUSTs count."""

MOST_SAMPLE_BYTES: Final = 2 * 1024 * 1024
"""Limits one image or audio in a report: to two minutes of mp3, or twelve seconds of wav."""
_MOST_SAMPLES: Final = 3
_SAMPLE_TYPE: Final = re.compile(r"image/(?:png|jpeg|gif|webp|bmp)|audio/[a-z0-9.+-]{1,40}")
"""Matches the types that browsers show, except SVG, which may have scripts."""
_MESSAGE_CHARS: Final = 4_000
"""Limits one message, which may quote a server at any length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One judgement on one test."""

    kind: CheckKind
    verdict: Verdict
    message: str = ""
    """The expected and the actual value of a failed or accepted check, with the place and the remedy; the
    reason of a skipped one."""
    accepted: Acceptance | None = None
    """The reason why an accepted check does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An image or audio of an answer, for the thumbnail or player in the HTML report."""

    mime_type: str
    """The type, `image/…` or `audio/…`, without parameters."""
    size_bytes: int
    base64: str | None
    """The content; None if it is too large for a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """One action on the server, and the checks of its outcome."""

    __test__ = False  # pytest collects classes by this prefix

    subject: str
    """The tested part: `tool NAME`, `connection`, `listing tools`, `resource URI`, `prompt NAME`."""
    title: str
    """The action, in words: `valid arguments: the least`, `8 calls at once`."""
    tool: str | None = None
    """The name of the tested tool, if any."""
    method: str | None = None
    """The method of the request. Sending it with `input` repeats the test."""
    input: Json = None
    """The parameters of the request, as sent."""
    shortest: Json = None
    """The shortest parameters found that fail the same check, if shorter than `input`."""
    output: Json = None
    """The result or the error object. Long strings are truncated and marked."""
    status: Status
    error: str | None = None
    """The reason for `failed`, `accepted`, `error` or `skipped`, in one line."""
    latency_ms: float | None = None
    checks: tuple[Check, ...] = ()
    samples: tuple[Sample, ...] = ()


def status_of(checks: Sequence[Check], *, undecided: str | None = None) -> tuple[Status, str | None]:
    """Derive the status and error of a test from its checks.

    `undecided` is the reason why a test without a failed check is an `error` and not a success.
    """
    failed = [check for check in checks if check.verdict == "failed"]
    if failed:
        return "failed", failed[0].message
    accepted = [check for check in checks if check.verdict == "accepted"]
    if accepted:
        return "accepted", accepted[0].message
    if undecided is not None:
        return "error", undecided
    if checks and all(check.verdict == "skipped" for check in checks):
        return "skipped", checks[0].message
    return "success", None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """The figures of one request that several clients repeated."""

    subject: str
    """The tool or resource, as in `TestResult.subject`."""
    method: str
    clients: int
    requests: int
    """The number of finished requests, failures included."""
    failures: int
    first_failure: str | None = None
    seconds: float
    p50_ms: float | None
    """The median latency of the successful requests; None without any."""
    p95_ms: float | None
    requests_per_second: float
    """The rate of successful requests."""
    bytes_per_second: float
    """The size of the successful results as compact JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of `check_server`, and the source of every report format."""

    server: str
    """A description of the server, without secrets."""
    target: str | None = None
    """SERVER as typed on the command line, to show how to repeat a call; formats redact apparent secrets.
    None if a program named the server."""
    config: str | None = None
    """The servers file given on the command line, if any."""
    server_name: str | None = None
    server_version: str | None = None
    protocol_version: str | None = None
    depth: Literal["quick", "full"]
    seed: int
    started_at: str
    """The start of the check, in ISO 8601 and UTC."""
    seconds: float
    mcp_service_status: Literal["unknown", "available", "unavailable"]
    tools: tuple[str, ...] = ()
    """The names of the discovered tools."""
    proven: tuple[str, ...] = ()
    """The tools that answered at least once with a result that is not an error."""
    allow_unproven: bool = False
    """True if a full check may pass although no tool ever succeeded."""
    definitions: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    """The discovered tools by name: description, schemas and annotations as listed."""
    tests: tuple[TestResult, ...] = ()
    load: tuple[LoadFigures, ...] = ()
    """The figures of `CheckOptions.load`, one per repeated request."""
    remarks: tuple[str, ...] = ()
    """Notes for the reader that belong to no test, such as an omitted part and the reason."""
    interrupted: bool = False
    """True if the check was interrupted. The report has the findings up to then."""
    timed_out: bool = False
    """True if `CheckOptions.total_seconds` ended the check. The remaining tests are reported as skipped."""

    def count(self, status: Status) -> int:
        return sum(test.status == status for test in self.tests)

    @property
    def passed(self) -> bool:
        """True if the server was available, the check completed, no test failed, and some tool is proven."""
        is_available = self.mcp_service_status == "available"
        return (
            is_available
            and not self.interrupted
            and self.count("failed") == 0
            and (self.allow_unproven or not self.is_unproven)
        )

    @property
    def is_unproven(self) -> bool:
        """True if a full check listed tools, and none of them ever succeeded."""
        return self.depth == "full" and bool(self.tools) and not self.proven

    @property
    def coverage(self) -> str:
        """The tools that were proven to work, as a sentence."""
        if self.depth == "quick":
            return f"none of {len(self.tools)} tools was called: a quick check proves none"
        return f"{len(self.proven)} of {len(self.tools)} tools answered at least once"


def successful_requests(tests: Iterable[TestResult], method: str) -> Iterator[TestResult]:
    """Return the tests whose request was answered with a result that is not an error, in order.

    Their `input` is complete and can be sent again, and each input occurs once.
    """
    seen: set[str] = set()
    for test in tests:
        if test.method != method or test.status != "success":
            continue
        output, params = test.output, test.input
        if not isinstance(output, Mapping) or not isinstance(params, Mapping):
            continue
        # An error object has no contents.
        if output.get("isError") is True or not {"content", "contents"} & output.keys():
            continue
        key = json.dumps(params, sort_keys=True, default=str)
        if key not in seen:
            seen.add(key)
            yield test


@dataclass(slots=True)
class TestDraft:
    """A test while it runs, collecting its checks. `passed`, `failed` and `skipped` add one check each.

    A kind is a row of the catalogue, or its name.
    """

    __test__ = False

    subject: str
    title: str
    tool: str | None = None
    method: str | None = None
    input: Json = None
    output: Json = None
    latency_ms: float | None = None
    shortest: Json = None
    samples: list[Sample] = field(default_factory=list)
    undecided: str | None = None
    void: str | None = None
    """The reason why none of the checks counts, such as a server that was too busy."""
    checks: list[Check] = field(default_factory=list)

    def passed(self, kind: CheckKind | str) -> None:
        self._add(kind, "passed")

    def failed(self, kind: CheckKind | str, message: str) -> None:
        self._add(kind, "failed", message)

    def skipped(self, kind: CheckKind | str, message: str) -> None:
        self._add(kind, "skipped", message)

    def _add(self, kind: CheckKind | str, verdict: Verdict, message: str = "") -> None:
        row = CATALOGUE[kind] if isinstance(kind, str) else kind
        self.checks.append(Check(kind=row, verdict=verdict, message=message[:_MESSAGE_CHARS]))

    def sample(self, mime_type: str | None, data: bytes) -> None:
        """Add an image or audio of the answer to the report; other types are ignored."""
        kind = (mime_type or "").partition(";")[0].strip().lower()
        if _SAMPLE_TYPE.fullmatch(kind) and data and len(self.samples) < _MOST_SAMPLES:
            text = b64encode(data).decode() if len(data) <= MOST_SAMPLE_BYTES else None
            self.samples.append(Sample(mime_type=kind, size_bytes=len(data), base64=text))

    def note_failures(self, remark: str) -> None:
        """Append `remark` to the message of each failed check."""
        self.checks = [
            replace(check, message=f"{check.message} ({remark})") if check.verdict == "failed" else check
            for check in self.checks
        ]

    def require(self, kind: CheckKind | str, condition: bool, message: str) -> bool:
        """Add a passed check if `condition` is true, else a failed one with `message`. Return `condition`."""
        if condition:
            self.passed(kind)
        else:
            self.failed(kind, message)
        return condition

    def done(self) -> TestResult:
        if self.void is not None:
            self.undecided = self.void
            self.checks = [Check(kind=it.kind, verdict="skipped", message=self.void) for it in self.checks]
        status, error = status_of(self.checks, undecided=self.undecided)
        return TestResult(
            subject=self.subject,
            title=self.title,
            tool=self.tool,
            method=self.method,
            input=self.input,
            output=self.output,
            shortest=self.shortest,
            status=status,
            error=error,
            latency_ms=self.latency_ms,
            checks=tuple(self.checks),
            samples=tuple(self.samples),
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
"""Lists the keys of every JSON report."""
