"""Shared by the tests of the checker: a target over a server in this process, and the findings of probes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from playhead.check.options import CheckOptions
from playhead.check.results import Check, TestResult
from playhead.check.target import Target, open_target
from playhead.config.servers import ServerConfig

FULL = CheckOptions(depth="full", timeout_seconds=2.0)
"""For tests: a hang is noticed soon."""


@asynccontextmanager
async def target_for(
    server: Server[Any] | MCPServer | ServerConfig,
    options: CheckOptions = FULL,
    *,
    mode: str | None = None,
    discover: bool = True,
) -> AsyncIterator[Target]:
    """A target with `server`, its tools discovered. `mode` is the protocol era, as for `playhead.connect`."""
    async with open_target(server, options, mode=mode) as target:
        capabilities = target.session.capabilities
        if discover and (capabilities.tools is not None or not capabilities.model_fields_set):
            target.tools = tuple(await target.session.list_tools())
        yield target


async def tests_of(probe: Callable[[Callable[[TestResult], None]], Awaitable[object]]) -> list[TestResult]:
    """Collect the findings of a probe: `await tests_of(lambda found: probe_tool(target, tool, found))`."""
    tests: list[TestResult] = []
    await probe(tests.append)
    return tests


def failed(tests: list[TestResult]) -> list[str]:
    """The names of the failed checks, each once, in alphabetical order."""
    return sorted({check.kind.name for check in failures(tests)})


def failures(tests: list[TestResult]) -> list[Check]:
    """The failed checks."""
    return [check for test in tests for check in test.checks if check.verdict == "failed"]
