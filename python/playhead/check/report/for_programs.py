"""The reports for programs: JSON, one object; and JUnit XML for continuous integration.

JUnit's format has no owner: this is the schema of Jenkins' xUnit plugin (junit-10.xsd), which other readers
accept, too. A subject is a test suite, a test is a test case. CI systems fail a build for an `error`, which
here means that the server could not be tested at all. Undecided tests prove nothing, and accepted failures
must not fail the build, so both are reported as skipped, with the reason. XML 1.0 can't represent some
control characters, not even as references (section 2.2); `plain` and `json_text` have already escaped them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final
from xml.etree import ElementTree as ET

from playhead.check.report.evidence import Allowance, bounded, cut, json_text, plain, server_words
from playhead.check.report.rows import ACCEPTED_BECAUSE, Row, by_subject, rows, verdict_sentence
from playhead.check.results import Check, Json, LoadFigures, Report, TestResult

_JSON_VALUE_CHARS: Final = 65_536
"""Limits one input or output. A page of audio is 100 KiB of base64, which nobody reads."""
_JSON_REPORT_CHARS: Final = 32 * 1024 * 1024
_JSON_MESSAGE_CHARS: Final = 4_000
_JUNIT_VALUE_CHARS: Final = 8_000
_JUNIT_REPORT_CHARS: Final = 8 * 1024 * 1024
_SKIPPED_STATUSES: Final = frozenset({"accepted", "error", "skipped"})
"""Lists the statuses that JUnit counts as skipped; `_case` writes `<skipped>` for each of them."""
_LINE_CHARS: Final = 500
"""Limits an attribute, because CI systems show attributes in a list."""


def to_json(report: Report) -> str:
    """Format the report as a JSON object with the keys of `REPORT_KEYS`, and more.

    Long values are truncated and marked. Terminal controls are escaped, so that the output can be printed.
    """
    allowance = Allowance(left=_JSON_REPORT_CHARS)
    content: dict[str, Json] = {
        "mcp_service_status": report.mcp_service_status,
        "passed": report.passed,
        "interrupted": report.interrupted,
        "timed_out": report.timed_out,
        "coverage": report.coverage,
        "total_tools_discovered": len(report.tools),
        "tools_answered": len(report.proven),
        "tests_conducted": len(report.tests),
        "successful_tests": report.count("success"),
        "failed_tests": report.count("failed"),
        "accepted_tests": report.count("accepted"),
        "undecided_tests": report.count("error"),
        "skipped_tests": report.count("skipped"),
        "checks": _counts(report),
        "server": server_words(report),
        "server_name": _optional(report.server_name),
        "server_version": _optional(report.server_version),
        "protocol_version": _optional(report.protocol_version),
        "depth": report.depth,
        "seed": report.seed,
        "started_at": report.started_at,
        "seconds": round(report.seconds, 3),
        "tools": bounded(report.tools, allowance, chars=_JSON_REPORT_CHARS // 4).value,
        "load": [_load(figures) for figures in report.load],
        "remarks": [_text(remark) for remark in report.remarks],
        "detailed_results": [_test(row) for row in rows(report, allowance, value_chars=_JSON_VALUE_CHARS)],
    }
    return json_text(content) + "\n"


def _test(row: Row) -> Json:
    test, evidence = row.test, row.evidence()
    fields: dict[str, Json] = {
        "type": "test_result",
        "subject": _text(test.subject),
        "title": _text(test.title),
        "tool": _optional(test.tool),
        "method": _optional(test.method),
        "input": evidence.sent,
        "output": evidence.got,
        "status": test.status,
    }
    if test.shortest is not None:
        fields["shortest_input"] = bounded(test.shortest, row.allowance, chars=row.value_chars).value
    if test.error is not None:
        fields["error"] = _text(test.error)
    if row.outcome in ("failed", "accepted", "undecided") and evidence.command is not None:
        fields["command"] = evidence.command
    fields["latency_ms"] = _rounded(test.latency_ms)
    if test.samples:
        fields["samples"] = [
            {"mime_type": sample.mime_type, "size_bytes": sample.size_bytes} for sample in test.samples
        ]
    fields["checks"] = [_check(check) for check in test.checks]
    return fields


def _load(figures: LoadFigures) -> Json:
    return asdict(figures) | {
        "subject": _text(figures.subject),
        "first_failure": _optional(figures.first_failure),
        "seconds": round(figures.seconds, 3),
        "p50_ms": _rounded(figures.p50_ms),
        "p95_ms": _rounded(figures.p95_ms),
        "requests_per_second": round(figures.requests_per_second, 1),
        "bytes_per_second": round(figures.bytes_per_second),
    }


def _counts(report: Report) -> Json:
    verdicts = [check.verdict for test in report.tests for check in test.checks]
    return {verdict: verdicts.count(verdict) for verdict in ("passed", "failed", "accepted", "skipped")}


def _check(check: Check) -> Json:
    fields: dict[str, Json] = {
        "name": check.kind.name,
        "title": check.kind.title,
        "level": check.kind.level,
        "verdict": check.verdict,
    }
    if check.accepted is not None:
        fields["accepted"] = check.accepted
    if check.message:
        fields["message"] = _text(check.message)
    return fields | {"source": check.kind.source}


def _text(text: str) -> str:
    return cut(text, _JSON_MESSAGE_CHARS)


def _optional(text: str | None) -> str | None:
    return None if text is None else _text(text)


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)


def to_junit(report: Report) -> str:
    """Format the report as JUnit XML."""
    all_rows = rows(report, Allowance(left=_JUNIT_REPORT_CHARS), value_chars=_JUNIT_VALUE_CHARS)
    root = ET.Element(
        "testsuites", name=_line(f"playhead check {server_words(report)}"), time=_seconds(report.seconds)
    )
    is_available = report.mcp_service_status == "available"
    is_unproven = report.is_unproven and not report.allow_unproven
    is_untestable = report.count("failed") == 0 and (is_unproven or not is_available)
    root.set("tests", str(len(report.tests) + is_untestable))
    root.set("failures", str(report.count("failed")))
    root.set("errors", str(int(is_untestable)))
    if is_untestable or not report.tests:
        suite = _suite(root, report, "server", (), errors=int(is_untestable))
        if is_untestable:
            case = ET.SubElement(
                suite, "testcase", name="the server can be tested", classname="server", time="0"
            )
            reason = report.coverage if is_available else " ".join(report.remarks) or verdict_sentence(report)
            kind = "unproven" if is_available else report.mcp_service_status
            ET.SubElement(case, "error", type=kind, message=_line(reason))
    for subject, subject_rows in by_subject(all_rows).items():
        suite = _suite(root, report, subject, [row.test for row in subject_rows])
        for row in subject_rows:
            _case(suite, row)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(
    root: ET.Element, report: Report, subject: str, tests: Sequence[TestResult], *, errors: int = 0
) -> ET.Element:
    suite = ET.SubElement(root, "testsuite", name=_line(subject), tests=str(len(tests) + errors))
    suite.set("failures", str(sum(test.status == "failed" for test in tests)))
    suite.set("errors", str(errors))
    suite.set("skipped", str(sum(test.status in _SKIPPED_STATUSES for test in tests)))
    suite.set("time", _seconds(sum(test.latency_ms or 0 for test in tests) / 1000))
    suite.set("timestamp", re.sub(r"(?:\.\d+)?(?:Z|\+00:00)$", "", report.started_at))
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("server", server_words(report)),
        ("coverage", report.coverage),
        ("server_name", report.server_name),
        ("server_version", report.server_version),
        ("protocol_version", report.protocol_version),
        ("depth", report.depth),
        ("seed", str(report.seed)),
    ):
        if value is not None:
            ET.SubElement(properties, "property", name=name, value=_line(value))
    return suite


def _case(suite: ET.Element, row: Row) -> None:
    test = row.test
    case = ET.SubElement(suite, "testcase", name=_line(test.title), classname=_line(test.subject))
    case.set("time", _seconds((test.latency_ms or 0) / 1000))
    reason = test.error or ""
    match row.outcome:
        case "failed":
            kind = row.findings[0].kind.name if row.findings else "failed"
            more = f" (and {len(row.findings) - 1} more)" if len(row.findings) > 1 else ""
            failure = ET.SubElement(case, "failure", type=kind, message=_line(reason + more))
            failure.text = _explanation(row)
        case "accepted":
            accepted = (check.accepted for check in test.checks if check.accepted is not None)
            why = ", ".join(dict.fromkeys(ACCEPTED_BECAUSE[it] for it in accepted))
            ET.SubElement(case, "skipped", type="accepted", message=_line(f"accepted, {why}: {reason}"))
        case "undecided":
            ET.SubElement(case, "skipped", type="undecided", message=_line(f"undecided: {reason}"))
        case "skipped":
            ET.SubElement(case, "skipped", type="skipped", message=_line(reason))


def _explanation(row: Row) -> str:
    evidence = row.evidence()
    parts = [
        f"{check.kind.name} ({check.kind.level})\nexpected: {check.kind.title}\n"
        f"found: {plain(check.message)}\nsource: {check.kind.source}"
        for check in row.findings
    ]
    if evidence.request is not None:
        parts.append(f"sent: {json_text(evidence.request, indent=None)}")
    if row.test.output is not None:
        parts.append(f"received: {json_text(evidence.got, indent=None)}")
    if evidence.command is not None:
        parts.append(f"repeat: {evidence.command}")
    return "\n\n".join(parts)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _line(text: str) -> str:
    """Format a string for an attribute, as one truncated line."""
    return " ".join(plain(text, _LINE_CHARS).split())
