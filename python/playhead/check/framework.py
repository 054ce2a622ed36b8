"""The framework under a server, and who can fix a defect: the framework's maintainers or the server's author.

Answers reveal the framework: each has its own message for an unknown method or tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from playhead.check.probes.server import NO_TOOL
from playhead.check.results import TestResult

PYTHON_SDK_1: Final = "the Python SDK 1.x"
_REVEALED: Final[tuple[tuple[str, re.Pattern[str], str], ...]] = (
    ("definition", re.compile(r'"_?fastmcp": ?[{]'), "FastMCP"),
    ("an unknown method", re.compile(r'-32602, "message": "Invalid request parameters"'), PYTHON_SDK_1),
    ("a call without a name", re.compile(r'-32602, "message": "Invalid request param'), "the Python SDK 2.x"),
    ("an unknown tool", re.compile(f"MCP error -32602: Tool {NO_TOOL} not found"), "the TypeScript SDK"),
    ("an unknown tool", re.compile(f"tool '{NO_TOOL}' not found: tool not found"), "mcp-go"),
    ("definition", re.compile(r'"title": "\w+Arguments"'), "the Python SDK"),
)
"""The title of a test, a pattern of its answer, and the framework that a match reveals. The first match
counts, because FastMCP is built on the Python SDK."""
_OF_FRAMEWORK: Final = re.compile(
    r"handshake\.|wire\.(?!messages)|capabilities\.|server\.|connection\.(?:ping|second|stops)"
    r"|\w+\.(?:list|templates)-(?:answered|ends|unknown-cursor)"
    r"|(?:tools|resources|prompts)\.(?:error-code|unknown$)|prompts\.missing-argument"
    r"|tools\.without-arguments"
)
"""The checks whose outcome the framework decides."""
_OF_EITHER: Final = re.compile(
    r"tools\.(?:cancel|concurrent|deadline|survives)|connection\.(?:connect|health|stays)"
)
"""The checks that fail because of the framework or the server: a tool that blocks its framework is never
cancelled."""
_DEFECTIVE: Final = ("failed", "accepted")
"""The verdicts and statuses that mean a defect."""
_REMEDIES: Final = {
    (PYTHON_SDK_1, "server.unknown-method"): "2.x answers as specified",
    (PYTHON_SDK_1, "resources.error-code"): "2.x answers as specified",
}


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
    if _OF_EITHER.match(check):
        return ""
    if not _OF_FRAMEWORK.match(check):
        return f" [to fix in the server; not in {framework}, on which it is built]"
    remedy = _REMEDIES.get((framework, check))
    return f" [to fix in {framework}, on which the server is built{f'; {remedy}' if remedy else ''}]"
