"""The reports of `playhead check` in every format: the files, their contents, and what they never contain."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from playhead.check.report import check_path, to_html, to_json, to_junit, to_markdown, write_report
from playhead.check.report.evidence import plain
from playhead.check.results import REPORT_KEYS, Report
from playhead.errors import SavingError, UsageError
from tests.unit.check.report_kit import (
    CONTENT,
    call,
    empty,
    hostile,
    long,
    report,
    small,
    triaged,
    unavailable,
)

GOLDEN = Path(__file__).parents[2] / "golden"
FORMATS: dict[str, Callable[[Report], str]] = {
    ".json": to_json,
    ".md": to_markdown,
    ".html": to_html,
    ".xml": to_junit,
}
REPORTS = [small, hostile, empty, unavailable, long, triaged]


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_formats_of_a_small_report_are_golden(suffix: str, request: pytest.FixtureRequest) -> None:
    text = re.sub(  # the page's style and script are files of their own
        r"<(style|script)>.*?</\1>|sha256-[\w+/=]+", r"<\1/>", FORMATS[suffix](small()), flags=re.S
    )
    golden = GOLDEN / f"report{suffix}"
    if request.config.getoption("--update-golden"):
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8"), (
        "if this is meant: pytest --update-golden tests/unit/check/test_reports.py"
    )


@pytest.mark.parametrize("make", REPORTS)
@pytest.mark.parametrize("suffix", FORMATS)
def test_a_report_is_written_in_the_format_of_the_suffix(
    suffix: str, make: Callable[[], Report], tmp_path: Path
) -> None:
    path = tmp_path / f"out{suffix}"
    write_report(make(), path)
    assert path.read_bytes().decode("utf-8") == FORMATS[suffix](make())
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("make", REPORTS)
@pytest.mark.parametrize("suffix", FORMATS)
def test_no_format_has_a_character_that_a_terminal_or_browser_acts_on(
    suffix: str, make: Callable[[], Report]
) -> None:
    text = FORMATS[suffix](make())
    assert not [char for char in text if char < " " and char != "\n"]
    assert not set(text) & set("\x7f\x9b\u202e\u2066\u2069\u2028\ufeff")
    text.encode("utf-8")  # no lone surrogate


@pytest.mark.parametrize("name", ["report", "report.txt", "report.json.gz", "report.htm", ".json"])
def test_another_suffix_is_refused_before_and_after_the_run(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.json, \.md, \.html or \.xml"):
        check_path(tmp_path / name)
    with pytest.raises(UsageError, match=r"\.json, \.md, \.html or \.xml"):
        write_report(small(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="create it first"):
        check_path(tmp_path / "none" / "report.html")


def test_a_folder_of_the_name_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(UsageError, match="got a directory"):
        check_path(tmp_path / "report.html")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is a folder in which even root can't write")
def test_a_folder_that_cannot_be_written_is_refused_before_the_run() -> None:
    with pytest.raises(UsageError, match="can't write to /proc"):
        check_path(Path("/proc/report.html"))


def test_a_look_at_the_path_leaves_nothing_behind_and_an_old_file_as_it_was(tmp_path: Path) -> None:
    old = tmp_path / "report.md"
    old.write_text("old")
    check_path(old)
    check_path(tmp_path / "new.xml")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("report.md", "old")]


def test_a_disk_that_does_not_take_it_leaves_the_old_file_and_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "report.json"
    old.write_text("old")

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(SavingError, match="No space left on device"):
        write_report(small(), old)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("report.json", "old")]


def test_the_json_has_the_keys_that_every_report_has() -> None:
    found = json.loads(to_json(small()))
    assert set(REPORT_KEYS) <= set(found)
    assert {key: found[key] for key in REPORT_KEYS[:-1]} == {
        "mcp_service_status": "available",
        "total_tools_discovered": 3,
        "tests_conducted": 5,
        "successful_tests": 1,
        "failed_tests": 2,
        "skipped_tests": 1,
    }
    assert found["undecided_tests"] == 1
    assert found["checks"] == {"passed": 5, "failed": 2, "accepted": 0, "skipped": 1}
    failed = found["detailed_results"][1]
    assert failed["type"] == "test_result"
    assert failed["status"] == "failed"
    assert failed["error"].startswith("expected structuredContent.celsius")
    assert failed["input"] == {"name": "forecast", "arguments": {"city": "Oslo", "days": 1}}
    assert failed["latency_ms"] == 312.5
    assert failed["checks"][0] == {
        "name": "tools.structured-content",
        "title": "`structuredContent` keeps to the tool's `outputSchema`",
        "level": "must",
        "verdict": "failed",
        "message": failed["error"],
        "source": "https://modelcontextprotocol.io/specification/2025-11-25/server/tools",
    }


def test_accepted_failures_are_counted_apart_in_every_format() -> None:
    made = triaged()
    found = json.loads(to_json(made))
    assert (found["passed"], found["failed_tests"], found["accepted_tests"]) == (True, 0, 1)
    assert found["detailed_results"][0]["checks"][0]["accepted"] == "level"
    assert found["load"][0]["p95_ms"] == 41.0
    assert '<skipped type="accepted" message="accepted, a SHOULD: expected an answer' in to_junit(made)
    assert "<failure" not in to_junit(made)
    text = to_markdown(made)
    assert "**No failure counts: 1 of 2 tests failed and is accepted.**" in text
    assert "- tool draw: `tools.latency`, a SHOULD\n" in text
    assert re.search(r"\| tool speak +\| 8 +\| 800 +\| 3 +\| 18.2 ms +\| 41.0 ms +\| 398.5 ", text)


def test_the_json_of_a_hostile_server_holds_its_words_unchanged() -> None:
    made = hostile()
    found = json.loads(to_json(made))
    assert [test["tool"] for test in found["detailed_results"]] == [test.tool for test in made.tests]
    assert [test["output"] for test in found["detailed_results"]] == [test.output for test in made.tests]


def test_non_finite_numbers_are_written_as_words() -> None:
    draft = call("t", "odd numbers", {"a": float("nan"), "b": [float("inf")], "c": 10**5000}, None)
    draft.failed(CONTENT, "odd")
    found = json.loads(to_json(report(draft.done())), parse_constant=pytest.fail)
    assert found["detailed_results"][0]["input"]["arguments"] == {
        "a": "(nan, not representable in JSON)",
        "b": ["(inf, not representable in JSON)"],
        "c": "(an integer of 16,610 bits)",
    }
    assert "command" not in found["detailed_results"][0], "what was cut can't be sent again"


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_flood_is_cut_with_a_note(suffix: str) -> None:
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    flood = {
        "text": "x" * 3_000_000,
        "items": [[] for _ in range(300_000)],
        "keys": {str(number): 0 for number in range(300_000)},
    }
    tests = []
    for output in (flood, {"deep": deep}):
        draft = call("t" * 100_000, "a flood " * 10_000, flood, output)  # type: ignore[arg-type]
        draft.failed(CONTENT, "too much " * 100_000)
        tests.append(draft.done())
    text = FORMATS[suffix](report(*tests, server="s" * 100_000, remarks=("r" * 100_000,)))
    assert len(text) < 600_000
    assert "more characters)" in text
    assert "nested deeper" in text
    assert "playhead call" not in text, "what was cut can't be sent again"


@pytest.mark.parametrize(("suffix", "most"), [(".json", 45), (".md", 1), (".html", 14), (".xml", 14)])
def test_many_long_answers_fill_a_report_only_so_far(suffix: str, most: int) -> None:
    draft = call("t", "a long answer", {"word": "w"}, {"text": "x" * 60_000})
    draft.failed(CONTENT, "too much")
    text = FORMATS[suffix](report(*(draft.done() for _ in range(1_500))))
    assert len(text) < most * 1024 * 1024
    assert "the report is full" in text or suffix == ".md"


@pytest.mark.parametrize("suffix", FORMATS)
def test_credentials_that_a_server_repeats_are_not_in_a_report(suffix: str) -> None:
    header = "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.sekrit-1.abc"
    address = "https://user:sekrit-2@example.org/mcp?api_key=sekrit-3&page=2"
    draft = call("t", f"asked with {header}", {"word": header}, {"text": [address, header]})
    draft.failed(CONTENT, f"came {header} from {address}")
    text = FORMATS[suffix](report(draft.done(), server=address, remarks=(header,)))
    assert "sekrit" not in text
    assert "page=2" in text


def test_words_about_credentials_are_not_taken_for_credentials() -> None:
    draft = call("t", "x", {}, None)
    draft.failed(CONTENT, "401 without a Bearer authentication-scheme; basic understanding is enough")
    assert "Bearer authentication-scheme; basic understanding" in to_markdown(report(draft.done()))


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_unusable_server_is_reported_with_the_reason(suffix: str) -> None:
    assert "the command ended with code 1 before it answered" in FORMATS[suffix](unavailable())


def test_a_credential_that_a_cut_goes_through_is_left_out_as_well() -> None:
    text = "https://me:a-long-password@example.org/ and more"
    for chars in range(len(text)):
        assert "a-l" not in plain(text, chars)
