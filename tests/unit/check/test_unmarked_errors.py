"""Errors in results without isError: recognised by their text, and never a pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playhead.check.error_text import error_text
from playhead.check.expectations import Expectations, ExpectedCall
from playhead.check.options import CheckOptions
from tests.unit.check.check_kit import Json, failed, failures, text
from tests.unit.check.test_probe_tools import QUICKLY, echo, probed

ERRORS = (
    "Error: no such city",
    "<error>Page failed to be simplified from HTML</error>",
    "Error executing tool add: 1 validation error",
    "error -32602: bad",
    "\u274c **Error**: no API key",
    "## Error\nThe file is missing.",
    "Database error: no such table: notes",
    "Internal server error: the disk is full",
    "ValueError: invalid literal for int()",
    "sqlite3.OperationalError: no such table",
    "java.lang.NullPointerException: name",
    "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nKeyError: 'a'",
    "Cannot read properties of undefined\n    at run (/app/index.js:10:5)",
    "panic: runtime error",
    "Failed to fetch the page",
    "Request failed with status code 502",
    "404 Not Found",
    "HTTP 500 Internal Server Error",
    "HTTP/1.1 403 Forbidden",
    "<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head></html>",
    "<html><body><h1>Not Found</h1></body></html>",
    '{"error": "no such city"}',
    '{"error": {"code": 7}, "data": null}',
    '{"status": "error", "message": "no"}',
    '{"success": false}',
)
RESULTS = (
    "",
    "42",
    "Sunny, 21 degrees",
    "errors: none",
    "Errors found: 0",
    "No error was found.",
    "The song 'Error' by Owls",
    "404 owls were counted",
    "500 ml of milk",
    "<html><head><title>Owls</title></head><body>An error in its text.</body></html>",
    '{"error": null, "data": [1]}',
    '{"success": true}',
    '["error"]',
    "{not json",
)


@pytest.mark.parametrize("said", ERRORS)
def test_text_that_reads_like_an_error_is_recognised(said: str) -> None:
    assert error_text(text(said), {}) is not None
    assert error_text(text(said, isError=False), {"city": "Oslo"}) is not None
    assert error_text(text(said, isError=True), {}) is None


@pytest.mark.parametrize("said", RESULTS)
def test_other_text_is_not(said: str) -> None:
    assert error_text(text(said), {}) is None


def test_an_echo_of_the_arguments_is_not() -> None:
    assert error_text(text("Error: as you said"), {"message": "Error: as you said"}) is None


async def careless(arguments: Json) -> Json:
    """A tool that reports errors without isError: in arguments that its schema forbids, too."""
    result = await echo(arguments)
    return text("Error: expected a word") if result.get("isError") else result


async def broken(arguments: Json) -> Json:
    return text("Database error: no such table: words")


async def test_an_unmarked_error_fails_where_the_schema_forbids_the_arguments() -> None:
    tests = await probed(careless)
    assert failed(tests) == ["tools.invalid-refused"]
    refused = [test for test in tests if test.status == "failed"]
    assert {test.title.partition(":")[0] for test in refused} == {"arguments that violate the schema"}
    # A string that is too long is not a certain violation, but the server said itself that it is an error.
    assert any("longer than" in test.title or "10 characters" in test.title for test in refused), [
        test.title for test in refused
    ]
    assert all("Error: expected a word" in (test.error or "") for test in refused)


async def test_an_unmarked_error_is_undecided_where_the_schema_allows_the_arguments() -> None:
    tests = await probed(broken, inputSchema={"type": "object"})
    valid = [test for test in tests if test.title.startswith("valid")]
    assert valid
    assert {test.status for test in valid} == {"error"}
    assert all("Database error: no such table" in (test.error or "") for test in valid)


async def test_a_tool_that_only_reports_unmarked_errors_is_not_green() -> None:
    found = failures(await probed(broken, inputSchema={"type": "object"}))
    (unmarked,) = [check for check in found if check.kind.name == "tools.errors-marked"]
    assert "Database error: no such table" in unmarked.message


async def test_a_tool_that_marks_its_errors_or_has_another_result_is_not_blamed_for_all() -> None:
    async def sometimes(arguments: Json) -> Json:
        return text("Error: a long word") if arguments == {"word": "example"} else await echo(arguments)

    async def marked(arguments: Json) -> Json:
        return text("Error: no table", isError=True)

    for tool in (sometimes, marked):
        assert "tools.errors-marked" not in failed(await probed(tool))


async def test_a_call_that_somebody_vouches_for_is_undecided_too_unless_its_text_is_expected() -> None:
    def options(*patterns: str) -> CheckOptions:
        call = ExpectedCall(tool="it", arguments={"word": "a"}, patterns=patterns)
        return replace(QUICKLY, expectations=Expectations(calls=(call,)))

    assert (await probed(broken, options()))[0].status == "error"
    assert (await probed(broken, options("no such table")))[0].status == "success"
