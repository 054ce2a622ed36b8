"""The JUnit XML report, for continuous integration: one test suite per subject, one test case per test.

The format has no owner. This module follows the schema of Jenkins' xUnit plugin (junit-10.xsd), which other
readers accept, too. An undecided test is reported as skipped, with its reason: CI systems fail a build for an
`error`, and an undecided test proves nothing. An accepted failure must not fail the build either, and is
reported as skipped, too. An `error` means that the server could not be tested at all.
Characters that XML 1.0 can't represent, not even as a reference (section 2.2), are among the hidden
characters that `plain` and `json_text` escape.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from playhead.check.report.evidence import (
    Allowance,
    bounded,
    command,
    json_text,
    message,
    plain,
    server_words,
)
from playhead.check.report.rows import acceptance, verdict_sentence
from playhead.check.results import Check, Report, TestResult

_VALUE_CHARS: Final = 8_000
_REPORT_CHARS: Final = 8 * 1024 * 1024
_LINE_CHARS: Final = 500
"""Of an attribute, which CI systems show in a list."""


def to_junit(report: Report) -> str:
    """Format the report as JUnit XML."""
    allowance = Allowance(left=_REPORT_CHARS)
    root = ET.Element(
        "testsuites", name=_line(f"playhead check {server_words(report)}"), time=_seconds(report.seconds)
    )
    unusable = report.mcp_service_status != "available" and report.count("failed") == 0
    root.set("tests", str(len(report.tests) + unusable))
    root.set("failures", str(report.count("failed")))
    root.set("errors", str(int(unusable)))
    if unusable or not report.tests:
        suite = _suite(root, report, "server", (), errors=int(unusable))
        if unusable:
            case = ET.SubElement(
                suite, "testcase", name="the server can be tested", classname="server", time="0"
            )
            reason = " ".join(report.remarks) or verdict_sentence(report)
            ET.SubElement(case, "error", type=report.mcp_service_status, message=_line(reason))
    for subject, tests in _by_subject(report.tests).items():
        suite = _suite(root, report, subject, tests)
        for test in tests:
            _case(suite, report, test, allowance)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(
    root: ET.Element, report: Report, subject: str, tests: Sequence[TestResult], *, errors: int = 0
) -> ET.Element:
    suite = ET.SubElement(root, "testsuite", name=_line(subject), tests=str(len(tests) + errors))
    suite.set("failures", str(sum(test.status == "failed" for test in tests)))
    suite.set("errors", str(errors))
    suite.set("skipped", str(sum(test.status in ("skipped", "error") for test in tests)))
    suite.set("time", _seconds(sum(test.latency_ms or 0 for test in tests) / 1000))
    suite.set("timestamp", re.sub(r"(?:\.\d+)?(?:Z|\+00:00)$", "", report.started_at))
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("server", server_words(report)),
        ("server_name", report.server_name),
        ("server_version", report.server_version),
        ("protocol_version", report.protocol_version),
        ("depth", report.depth),
        ("seed", str(report.seed)),
    ):
        if value is not None:
            ET.SubElement(properties, "property", name=name, value=_line(value))
    return suite


def _case(suite: ET.Element, report: Report, test: TestResult, allowance: Allowance) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        name=_line(test.title),
        classname=_line(test.subject),
        time=_seconds((test.latency_ms or 0) / 1000),
    )
    reason = test.error or ""
    match test.status:
        case "success":
            return
        case "failed":
            failed = [check for check in test.checks if check.verdict == "failed"]
            kind = failed[0].kind.name if failed else "failed"
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            failure = ET.SubElement(case, "failure", type=kind, message=_line(reason + more))
            failure.text = _explanation(report, test, failed, allowance)
        case "accepted":
            why = acceptance(test)
            ET.SubElement(case, "skipped", type="accepted", message=_line(f"accepted, {why}: {reason}"))
        case "error":
            ET.SubElement(case, "skipped", type="undecided", message=_line(f"undecided: {reason}"))
        case "skipped":
            ET.SubElement(case, "skipped", type="skipped", message=_line(reason))


def _explanation(report: Report, test: TestResult, failed: Sequence[Check], allowance: Allowance) -> str:
    sent = bounded(test.input, allowance, chars=_VALUE_CHARS)
    got = bounded(test.output, allowance, chars=_VALUE_CHARS)
    parts = [
        f"{check.kind.name} ({check.kind.level})\nexpected: {check.kind.title}\n"
        f"found: {plain(check.message)}\nsource: {check.kind.source}"
        for check in failed
    ]
    request = message(test, sent)
    if request is not None:
        parts.append(f"sent: {json_text(request, indent=None)}")
    if test.output is not None:
        parts.append(f"received: {json_text(got.value, indent=None)}")
    line = command(report, test, sent)
    if line is not None:
        parts.append(f"repeat: {line}")
    return "\n\n".join(parts)


def _by_subject(tests: Sequence[TestResult]) -> dict[str, list[TestResult]]:
    found: dict[str, list[TestResult]] = {}
    for test in tests:
        found.setdefault(test.subject, []).append(test)
    return found


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _line(text: str) -> str:
    """Format a string for an attribute: one line, truncated."""
    return " ".join(plain(text, _LINE_CHARS).split())
