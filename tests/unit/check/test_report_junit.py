"""The JUnit report, as a reader of such files finds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from junitparser import Error as JUnitError
from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

from playhead.check.report import to_junit, write_report
from playhead.check.results import Report, TestResult
from tests.unit.check.report_kit import empty, hostile, long, report, small, triaged, unavailable

CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "properties": {"property"},
    "testcase": {"failure", "error", "skipped"},
}
ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"type", "message"},
}
"""The used part of junit-10.xsd, the schema of Jenkins' xUnit plugin."""


def suites(made: Report, tmp_path: Path) -> list[TestSuite]:
    path = tmp_path / "report.xml"
    write_report(made, path)
    return list(JUnitXml.fromfile(str(path)))


def cases(made: Report, tmp_path: Path) -> list[TestCase]:
    return [case for suite in suites(made, tmp_path) for case in suite]


def test_each_subject_is_a_suite_and_each_test_a_case(tmp_path: Path) -> None:
    found = suites(small(), tmp_path)
    assert [(suite.name, suite.tests, suite.failures, suite.errors, suite.skipped) for suite in found] == [
        ("connection", 1, 0, 0, 0),
        ("tool forecast", 2, 2, 0, 0),
        ("tool lookup", 1, 0, 0, 1),
        ("tool forget", 1, 0, 0, 1),
    ]
    properties = found[0].properties()  # type: ignore[no-untyped-call]  # the reader has no types for it
    assert {prop.name: prop.value for prop in properties} == {
        "server": "http://127.0.0.1:8000/mcp",
        "coverage": "1 of 3 tools answered at least once",
        "server_name": "weather",
        "server_version": "1.4.2",
        "protocol_version": "2025-11-25",
        "depth": "full",
        "seed": "7",
    }
    assert found[0].timestamp == "2026-11-22T04:40:00"


def test_a_failed_test_shows_expected_and_actual_values_and_how_to_repeat_it(tmp_path: Path) -> None:
    failed = cases(small(), tmp_path)[1]
    assert (failed.classname, failed.name, failed.time) == (
        "tool forecast",
        "valid arguments: the least",
        0.312,
    )
    (failure,) = failed.result
    assert isinstance(failure, Failure)
    assert failure.type == "tools.structured-content"
    assert failure.message is not None
    assert failure.message.startswith("expected structuredContent.celsius to be a number")
    assert failure.text is not None
    assert '"arguments": {"city": "Oslo", "days": 1}' in failure.text
    assert "repeat: playhead call http://127.0.0.1:8000/mcp forecast --args" in failure.text


def test_an_undecided_test_is_skipped_with_its_reason_since_an_error_would_fail_the_build(
    tmp_path: Path,
) -> None:
    undecided, skipped = cases(small(), tmp_path)[3:]
    for case, kind, reason in (
        (undecided, "undecided", "undecided: the tool answered with an error"),
        (skipped, "skipped", "it says destructiveHint"),
    ):
        (result,) = case.result
        assert isinstance(result, Skipped)
        assert result.type == kind
        assert result.message is not None
        assert result.message.startswith(reason)


def test_an_accepted_failure_is_counted_as_skipped_in_its_suite(tmp_path: Path) -> None:
    (suite,) = [suite for suite in suites(triaged(), tmp_path) if suite.name == "tool draw"]
    assert (suite.tests, suite.failures, suite.skipped) == (1, 0, 1)


def test_a_server_that_could_not_be_used_fails_the_build(tmp_path: Path) -> None:
    (case,) = cases(unavailable(), tmp_path)
    (result,) = case.result
    assert isinstance(result, JUnitError)
    assert result.message == "the command ended with code 1 before it answered"
    assert JUnitXml.fromstring(to_junit(unavailable())).errors == 1


def test_a_server_whose_connection_is_a_failed_test_is_counted_once(tmp_path: Path) -> None:
    failed = TestResult(subject="connection", title="initialize", status="failed", error="no answer in 10 s")
    found = suites(report(failed, mcp_service_status="unavailable"), tmp_path)
    assert [(suite.tests, suite.failures, suite.errors) for suite in found] == [(1, 1, 0)]


@pytest.mark.parametrize("make", [small, triaged, hostile, empty, unavailable, long])
def test_nothing_is_written_that_the_common_schema_has_not(make: Callable[[], Report]) -> None:
    root = ET.fromstring(to_junit(make()))
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) <= ATTRIBUTES.get(element.tag, set()), element.tag
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set()), element.tag
    numbers = [sum(int(suite.get(key, "0")) for suite in root) for key in ("tests", "failures", "errors")]
    assert numbers == [int(root.get(key, "0")) for key in ("tests", "failures", "errors")]
    assert int(root.get("tests", "0")) == len(root.findall(".//testcase"))
    assert int(root.get("failures", "0")) == len(root.findall(".//failure"))
    assert sum(int(suite.get("skipped", "0")) for suite in root) == len(root.findall(".//skipped"))


def test_text_of_a_hostile_server_is_escaped_and_characters_that_xml_forbids_are_shown(
    tmp_path: Path,
) -> None:
    found = cases(hostile(), tmp_path)
    assert len(found) == len(hostile().tests)
    assert found[0].name == "valid arguments: <script>window.pwned = 1</script>"
    assert found[7].classname is not None
    assert "nul \\x00 esc \\x1b[31m" in found[7].classname
    assert "lone \\u{D800} end \\u{FFFF}" in found[7].classname
