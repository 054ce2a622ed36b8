"""The framework under a server, and who can fix a defect: the framework's maintainers or the server's author.

Answers reveal the framework: each has its own message for an unknown method or tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from playhead.check.probes.server import NO_TOOL
from playhead.check.results import TestResult

PYTHON_SDK_1: Final = "the Python SDK 1.x"
PYTHON_SDK_2: Final = "the Python SDK 2.x"
TYPESCRIPT_SDK: Final = "the TypeScript SDK"
GO_SDK: Final = "the Go SDK"
_REVEALED: Final[tuple[tuple[str, re.Pattern[str], str], ...]] = (
    ("definition", re.compile(r'"_?fastmcp": ?[{]'), "FastMCP"),
    ("an unknown method", re.compile(r'-32602, "message": "Invalid request parameters"'), PYTHON_SDK_1),
    ("a call without a name", re.compile(r'-32602, "message": "Invalid request param'), PYTHON_SDK_2),
    ("an unknown tool", re.compile(f"MCP error -32602: Tool {NO_TOOL} not found"), TYPESCRIPT_SDK),
    ("an unknown tool", re.compile(f'unknown tool \\\\"{NO_TOOL}'), GO_SDK),
    ("an unknown tool", re.compile(f"tool '{NO_TOOL}' not found: tool not found"), "mcp-go"),
    ("definition", re.compile(r'"title": "\w+Arguments"'), "the Python SDK"),
)
"""Each row has the title of a test, a pattern of its answer, and the framework that a match reveals. The
first match counts, because FastMCP is built on the Python SDK."""
_DEFECTS: Final[Mapping[tuple[str, str], str]] = {
    (PYTHON_SDK_1, "server.unknown-method"): "1.30.0; 2.x answers as specified",
    (PYTHON_SDK_1, "resources.error-code"): "1.30.0; 2.x answers as specified",
    (PYTHON_SDK_1, "wire.error-codes"): "1.30.0; 2.x answers as specified",
    (PYTHON_SDK_1, "prompts.error-code"): "1.30.0",
    (PYTHON_SDK_2, "prompts.error-code"): "2.3.0",
    (TYPESCRIPT_SDK, "logging.unknown-level"): "1.32.2",
    (GO_SDK, "server.garbage"): "1.8.0",
}
"""Lists the defects that a sound server on each framework has, with the version that was checked. They are
the framework's. Who can fix another defect is not said."""
_DEFECTIVE: Final = ("failed", "accepted")
"""Lists the verdicts and statuses that mean a defect."""


def framework_of(tests: Sequence[TestResult]) -> str | None:
    """Return the framework that the answers of a server reveal, if any."""
    for title, words, name in _REVEALED:
        for test in tests:
            if test.title == title and words.search(json.dumps(test.output, default=str)):
                return name
    return None


def attribute(tests: Sequence[TestResult]) -> tuple[TestResult, ...]:
    """Add to the message of each failed check who can fix it, if the framework under the server is known."""
    framework = framework_of(tests)
    if framework is None:
        return tuple(tests)
    return tuple(_attribute(test, framework) for test in tests)


def _attribute(test: TestResult, framework: str) -> TestResult:
    if test.status not in _DEFECTIVE:
        return test
    checks = tuple(
        replace(check, message=check.message + _responsibility(check.kind.name, framework))
        if check.verdict in _DEFECTIVE
        else check
        for check in test.checks
    )
    first = next((check.message for check in checks if check.verdict == test.status), test.error)
    return replace(test, checks=checks, error=first)


def _responsibility(check: str, framework: str) -> str:
    version = _DEFECTS.get((framework, check))
    if version is None:
        return ""
    return (
        f" [to fix in {framework}, on which the server is built: a sound server on it has this defect, as of"
        f" {version}]"
    )
