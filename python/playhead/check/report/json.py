"""The JSON report: one object, for programs."""

from __future__ import annotations

from typing import Final

from playhead.check.report.evidence import Allowance, bounded, command, cut, json_text, server_words
from playhead.check.results import Check, Json, LoadFigures, Report, TestResult

_VALUE_CHARS: Final = 65_536
"""Of one input or output. A page of audio is 100 KiB of base64, which nobody reads."""
_REPORT_CHARS: Final = 32 * 1024 * 1024
_MESSAGE_CHARS: Final = 4_000


def to_json(report: Report) -> str:
    """Format the report as a JSON object with the keys of `REPORT_KEYS`, and more.

    Long values are truncated and marked. Terminal controls are escaped, so that the output can be printed.
    """
    allowance = Allowance(left=_REPORT_CHARS)
    found: dict[str, Json] = {
        "mcp_service_status": report.mcp_service_status,
        "passed": report.passed,
        "interrupted": report.interrupted,
        "timed_out": report.timed_out,
        "total_tools_discovered": len(report.tools),
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
        "tools": bounded(report.tools, allowance, chars=_REPORT_CHARS // 4).value,
        "load": [_load(figures) for figures in report.load],
        "remarks": [_text(remark) for remark in report.remarks],
        "detailed_results": [_test(report, test, allowance) for test in report.tests],
    }
    return json_text(found) + "\n"


def _test(report: Report, test: TestResult, allowance: Allowance) -> Json:
    sent = bounded(test.input, allowance, chars=_VALUE_CHARS)
    got = bounded(test.output, allowance, chars=_VALUE_CHARS)
    found: dict[str, Json] = {
        "type": "test_result",
        "subject": _text(test.subject),
        "title": _text(test.title),
        "tool": _optional(test.tool),
        "method": _optional(test.method),
        "input": sent.value,
        "output": got.value,
        "status": test.status,
    }
    if test.shortest is not None:
        found["shortest_input"] = bounded(test.shortest, allowance, chars=_VALUE_CHARS).value
    if test.error is not None:
        found["error"] = _text(test.error)
    if test.status in ("failed", "accepted", "error") and (line := command(report, test, sent)) is not None:
        found["command"] = line
    found["latency_ms"] = None if test.latency_ms is None else round(test.latency_ms, 3)
    if test.samples:
        found["samples"] = [
            {"mime_type": sample.mime_type, "size_bytes": sample.size_bytes} for sample in test.samples
        ]
    found["checks"] = [_check(check) for check in test.checks]
    return found


def _load(figures: LoadFigures) -> Json:
    return {
        "subject": _text(figures.subject),
        "method": figures.method,
        "clients": figures.clients,
        "requests": figures.requests,
        "failures": figures.failures,
        "first_failure": _optional(figures.first_failure),
        "seconds": round(figures.seconds, 3),
        "p50_ms": None if figures.p50_ms is None else round(figures.p50_ms, 3),
        "p95_ms": None if figures.p95_ms is None else round(figures.p95_ms, 3),
        "requests_per_second": round(figures.requests_per_second, 1),
        "bytes_per_second": round(figures.bytes_per_second),
    }


def _counts(report: Report) -> Json:
    verdicts = [check.verdict for test in report.tests for check in test.checks]
    return {verdict: verdicts.count(verdict) for verdict in ("passed", "failed", "accepted", "skipped")}


def _check(check: Check) -> Json:
    found: dict[str, Json] = {
        "name": check.kind.name,
        "title": check.kind.title,
        "level": check.kind.level,
        "verdict": check.verdict,
    }
    if check.accepted is not None:
        found["accepted"] = check.accepted
    if check.message:
        found["message"] = _text(check.message)
    return found | {"source": check.kind.source}


def _text(text: str) -> str:
    return cut(text, _MESSAGE_CHARS)


def _optional(text: str | None) -> str | None:
    return None if text is None else _text(text)
