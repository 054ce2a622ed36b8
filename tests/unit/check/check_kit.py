"""Shared by the tests of the checker: a target over a server in this process, and the findings of probes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from playhead.check.options import CheckOptions
from playhead.check.results import Check, TestResult
from playhead.check.target import Target, open_target
from playhead.config.servers import ServerConfig

Json = dict[str, Any]
FULL = CheckOptions(depth="full", timeout_seconds=2.0)
"""For tests: a hang is noticed soon."""

WORD: Json = {
    "type": "object",
    "properties": {"word": {"type": "string", "maxLength": 9}},
    "required": ["word"],
}
SUM: Json = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}


def text(said: str, **more: Any) -> Json:
    return {"content": [{"type": "text", "text": said}], **more}


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


async def tests_of(target: Target, probe: Callable[[Target], Awaitable[object]]) -> list[TestResult]:
    """The tests that `probe` makes of `target`."""
    tests: list[TestResult] = []
    target.on_test = tests.append
    await probe(target)
    return tests


async def probed(
    server: Server[Any] | MCPServer,
    probe: Callable[[Target], Awaitable[object]],
    *,
    mode: str | None = None,
    timeout_seconds: float = 10.0,
) -> list[TestResult]:
    """The tests that `probe` makes of `server`, whose tools are not discovered."""
    options = CheckOptions(depth="full", timeout_seconds=timeout_seconds)
    async with open_target(server, options, mode=mode) as target:
        return await tests_of(target, probe)


def defects(tests: Iterable[TestResult]) -> set[str]:
    """The names of the failed checks."""
    return {check.kind.name for check in failures(tests)}


def failed(tests: Iterable[TestResult]) -> list[str]:
    """The names of the failed checks, each once, in alphabetical order."""
    return sorted(defects(tests))


def failures(tests: Iterable[TestResult]) -> list[Check]:
    """The failed checks."""
    return [check for test in tests for check in test.checks if check.verdict == "failed"]


def undecided(tests: Iterable[TestResult]) -> list[str]:
    """Why tests decided nothing."""
    return [test.error or "" for test in tests if test.status == "error"]
