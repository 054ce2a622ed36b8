"""Runs probes against a server in this process, and says what they found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from playhead.check.options import CheckOptions
from playhead.check.results import TestResult
from playhead.check.target import Target, open_target

Found = Callable[[TestResult], None]
Probe = Callable[[Target, Found], Awaitable[None]]


async def probed(
    server: Server[Any] | MCPServer,
    probe: Probe,
    *,
    mode: str | None = None,
    timeout_seconds: float = 10.0,
) -> list[TestResult]:
    """The tests that `probe` makes of `server`."""
    tests: list[TestResult] = []
    options = CheckOptions(depth="full", timeout_seconds=timeout_seconds)
    async with open_target(server, options, mode=mode) as target:
        await probe(target, tests.append)
    return tests


def defects(tests: list[TestResult]) -> set[str]:
    """The names of the checks that failed."""
    return {check.kind.name for test in tests for check in test.checks if check.verdict == "failed"}


def undecided(tests: list[TestResult]) -> list[str]:
    """Why tests decided nothing."""
    return [test.error or "" for test in tests if test.status == "error"]
