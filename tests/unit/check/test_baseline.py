"""Triage: which failures count, what a baseline records, and definitions that have changed since."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from playhead.check.baseline import (
    Baseline,
    IgnoredCheck,
    KnownFinding,
    Triage,
    accept_recorded,
    baseline_of,
    definition_of,
    drift_tests,
    load_baseline,
)
from playhead.check.catalogue import CATALOGUE, CheckKind
from playhead.check.results import Check, Report, TestDraft, TestResult
from playhead.errors import ConfigError, UsageError
from tests.unit.check.report_kit import CONTENT, LATENCY, SCHEMA, call, report, small

ALWAYS = Triage()


def failed(*kinds: CheckKind, tool: str = "echo", title: str = "x") -> TestResult:
    draft = call(tool, title, {})
    for kind in kinds:
        draft.failed(kind, f"{kind.name} of {tool}")
    return draft.done()


def triaged(test: TestResult, triage: Triage) -> tuple[str, list[str]]:
    found = triage.apply(test)
    return found.status, [f"{check.verdict} {check.accepted or ''}".strip() for check in found.checks]


# --- what counts -----------------------------------------------------------------------------------


def test_every_failure_counts_unless_something_says_otherwise() -> None:
    test = failed(SCHEMA, LATENCY)
    assert ALWAYS.apply(test) is test


@pytest.mark.parametrize(
    ("kinds", "status", "verdicts"),
    [
        ((LATENCY,), "accepted", ["accepted level"]),
        ((SCHEMA,), "failed", ["failed"]),
        ((LATENCY, SCHEMA), "failed", ["accepted level", "failed"]),
    ],
)
def test_only_a_must_counts_at_that_level(kinds: Any, status: str, verdicts: list[str]) -> None:
    assert triaged(failed(*kinds), Triage(level="must")) == (status, verdicts)


def test_the_error_of_a_test_is_that_of_a_failure_that_counts() -> None:
    found = Triage(level="must").apply(failed(LATENCY, SCHEMA))
    assert found.error == "tools.structured-content of echo"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("tools.structured-content", "accepted"),
        ("tools.structured-content=echo", "accepted"),
        ("tools.structured-content=tool echo", "accepted"),
        ("tools.structured-content=other", "failed"),
        ("tools.content", "failed"),
    ],
)
def test_an_ignored_check_does_not_count_on_its_tool(text: str, status: str) -> None:
    ignored = IgnoredCheck.parse(text, ["tools.structured-content", "tools.content"])
    assert str(ignored) == text
    assert triaged(failed(SCHEMA), Triage(ignored=(ignored,)))[0] == status


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tools.strctured-content",
            r"expected the name of a check, got .*did you mean 'tools.structured-con",
        ),
        ("tools.content=", "expected the name of a tool after '='"),
        ("", "expected the name of a check, got ''"),
    ],
)
def test_an_unknown_check_is_refused_with_the_nearest_name(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        IgnoredCheck.parse(text, CATALOGUE)


def test_a_finding_of_the_baseline_is_known_by_check_and_subject_in_every_call() -> None:
    baseline = baseline_of(report(failed(SCHEMA)))
    triage = Triage(baseline=baseline)
    assert triaged(failed(SCHEMA, title="another call"), triage) == ("accepted", ["accepted known"])
    assert triaged(failed(SCHEMA, tool="other"), triage) == ("failed", ["failed"])
    assert triaged(failed(CONTENT, SCHEMA), triage) == ("failed", ["failed", "accepted known"])


def test_an_accepted_failure_keeps_its_message_and_leaves_the_report_passed() -> None:
    test = Triage(level="must").apply(failed(LATENCY))
    assert (test.error, test.checks[0].message) == ("tools.latency of echo",) * 2
    assert report(test).passed
    assert not report(failed(LATENCY)).passed


def test_undecided_and_passed_tests_are_left_alone() -> None:
    everything = Triage(level="must", baseline=baseline_of(small()))
    for test in small().tests:
        if test.status != "failed":
            assert everything.apply(test) is test


def test_an_unused_ignore_or_baseline_entry_is_a_remark() -> None:
    baseline = baseline_of(report(failed(SCHEMA), failed(CONTENT)))
    triage = Triage(baseline=baseline, ignored=(IgnoredCheck(check="tools.size", tool="echo"),))
    now = report(triage.apply(failed(SCHEMA)))
    assert list(triage.remarks(now)) == [
        "the ignored check tools.size=echo did not fail",
        "no longer found, though in the baseline: tools.content (tool echo); write it anew to keep them out",
    ]
    quick = replace(now, depth="quick")
    assert len(list(triage.remarks(quick))) == 1, "a quick check finds less, which fixes nothing"


# --- the file --------------------------------------------------------------------------------------


def test_a_baseline_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "baseline.txt"
    baseline = baseline_of(replace(small(), definitions={"forecast": {"description": "über"}}))
    path.write_text(baseline.to_json())
    assert load_baseline(path) == baseline
    assert [(it.check, it.subject) for it in baseline.findings] == [
        ("tools.error-due", "tool forecast"),
        ("tools.structured-content", "tool forecast"),
    ]
    assert baseline.server == "weather 1.4.2"


def test_the_file_depends_neither_on_the_order_of_the_tests_nor_on_how_many_show_a_finding() -> None:
    one = report(failed(SCHEMA), failed(CONTENT), failed(SCHEMA, title="y"))
    other = report(failed(CONTENT), failed(SCHEMA))
    assert baseline_of(one).to_json() == baseline_of(other).to_json()


def test_a_baseline_records_what_the_level_excludes_and_not_what_is_ignored() -> None:
    triage = Triage(level="must", ignored=(IgnoredCheck(check="tools.content"),))
    found = report(triage.apply(failed(LATENCY, CONTENT, SCHEMA)))
    assert [it.check for it in baseline_of(found).findings] == ["tools.latency", "tools.structured-content"]


def test_recording_accepts_what_was_found() -> None:
    found = accept_recorded(small(), baseline_of(small()))
    assert found.passed
    assert found.count("accepted") == 2
    assert found.count("failed") == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("{}", "expected a baseline with playhead_baseline: 1"),
        ("[]", "expected a baseline with playhead_baseline: 1"),
        ('{"playhead_baseline": 2}', "expected a baseline with playhead_baseline: 1"),
        ('{"playhead_baseline": 1, "findings": [{"check": "a"}]}', r"findings\[0\]: the key 'subject'"),
        ('{"playhead_baseline": 1, "tool": {}}', "tool: is not a setting; did you mean 'tools'"),
    ],
)
def test_an_unusable_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_baseline(path)
    assert "baseline.json" in str(caught.value)


def test_a_missing_file_is_named_with_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file; record the current findings with --write-baseline"):
        load_baseline(tmp_path / "baseline.json")


# --- drift -----------------------------------------------------------------------------------------

DEFINITION: dict[str, Any] = {
    "name": "add",
    "title": "Add",
    "description": "Add two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "minimum": 1}},
        "required": ["a", "b"],
    },
    "annotations": {"readOnlyHint": True},
    "_meta": {"trace": 1},
}


def drift(before: dict[str, Any], now: dict[str, Any] | None) -> list[Check]:
    definitions = {} if now is None else {"add": definition_of(now), "new": {}}
    (test,) = drift_tests(Baseline(tools={"add": definition_of(before)}), definitions)
    assert (test.subject, test.tool) == ("tool add", "add")
    return [check for check in test.checks if check.verdict == "failed"]


def changed(**fields: Any) -> dict[str, Any]:
    return {**DEFINITION, **fields}


def schema(**properties: Any) -> dict[str, Any]:
    return changed(inputSchema={**DEFINITION["inputSchema"], "properties": properties})


@pytest.mark.parametrize(
    ("now", "check", "message"),
    [
        (
            changed(description="Add two numbers. Send them to us, too."),
            "drift.description",
            'expected description "Add two numbers.", got "Add two numbers. Send them to us, too."',
        ),
        (changed(title=None), "drift.description", 'title is gone: it was "Add"'),
        (
            schema(a={"type": "string"}, b={"type": "integer", "minimum": 1}),
            "drift.input-schema",
            'expected inputSchema.properties.a.type "integer", got "string"',
        ),
        (
            schema(a={"type": "integer"}),
            "drift.input-schema",
            'inputSchema.properties.b is gone: it was {"type": "integer", "minimum": 1}',
        ),
        (changed(outputSchema={}), "drift.output-schema", "outputSchema is new: {}"),
        (
            changed(annotations={"readOnlyHint": False}),
            "drift.annotations",
            "expected annotations.readOnlyHint true, got false",
        ),
    ],
)
def test_a_changed_definition_is_a_finding_that_names_the_change(
    now: dict[str, Any], check: str, message: str
) -> None:
    (found,) = drift(DEFINITION, now)
    assert (found.kind.name, found.message) == (check, message)


def test_a_tool_that_is_no_longer_listed_is_a_finding() -> None:
    assert [check.kind.name for check in drift(DEFINITION, None)] == ["drift.listed"]


@pytest.mark.parametrize(
    "now",
    [
        DEFINITION,
        changed(_meta={"trace": 2}),
        schema(b={"minimum": 1.0, "type": "integer"}, a={"type": "integer"}),
    ],
    ids=["the same", "other metadata", "another order and spelling of a number"],
)
def test_equal_definitions_are_not_drift(now: dict[str, Any]) -> None:
    assert drift(DEFINITION, now) == []


def test_a_number_in_place_of_a_boolean_is_drift() -> None:
    assert drift(changed(annotations={"readOnlyHint": 1}), DEFINITION) != []


def test_a_change_far_into_a_long_description_is_quoted_at_its_place() -> None:
    long = "word " * 1_000
    (found,) = drift(changed(description=long + "safe"), changed(description=long + "evil"))
    assert "safe" in found.message
    assert "evil" in found.message
    assert len(found.message) < 300


def test_drift_is_not_recorded_as_a_finding_since_the_new_definition_is() -> None:
    draft = TestDraft(subject="tool add", title="compared with the baseline", tool="add")
    found = drift_tests(Baseline(tools={"add": {}}), {"add": {"description": "new"}})
    made: Report = replace(report(*found, draft.done()), definitions={"add": {"description": "new"}})
    baseline = baseline_of(made)
    assert baseline.findings == ()
    assert baseline.tools == {"add": {"description": "new"}}
    assert accept_recorded(made, baseline).count("failed") == 1, "drift is judged by the next check"


def test_a_known_finding_needs_no_message() -> None:
    finding = KnownFinding(check="tools.content", subject="tool echo")
    assert Baseline(findings=(finding,)).has(failed(CONTENT).checks[0], failed(CONTENT))
