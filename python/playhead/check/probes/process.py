"""The process of a stdio server under repeated calls: memory, descriptors, time, and files.

A separate process is started for this (on Linux only), so that nothing else runs in it. Each read-only tool
is called up to 50 times within 5 s, with arguments that succeeded before. Growing memory or time counts only
if a second round confirms it, because runtimes collect garbage late, and first calls fill caches.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import mcp_types as types
import trio
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from playhead.check.error_text import error_text
from playhead.check.footprint import Footprint, changed_paths, footprint
from playhead.check.probes.tools import is_read_only, skip_reason
from playhead.check.results import TestDraft
from playhead.check.target import Target, limits_of
from playhead.client.connector import connect
from playhead.client.session.session import Session
from playhead.client.transports.server_process import ServerProcess, StartedServer, open_server
from playhead.config.servers import ServerConfig
from playhead.errors import ConnectError, PlayheadError
from playhead.limits import MIB

MOST_CALLS: Final = 50
TOOL_SECONDS: Final = 5.0
"""Limits the calls of one tool."""
LEAST_CALLS: Final = 16
"""Fewer calls show no trend."""
LEAK_BYTES: Final = 1.0 * MIB
"""Memory that grows by this much per call leaks. Caches of a runtime stop growing long before 50 MiB."""
LEAK_DESCRIPTORS: Final = 0.8
"""Open file descriptors that grow by this much per call leak."""
SLOWER_SECONDS: Final = 0.002
"""A tool slows down if a call takes this much longer each time."""
STILL_SLOWER: Final = 1.4
"""A slowdown counts only if the second round takes at least this many times as long as the first."""
_NOISE: Final = re.compile(
    r"(?:^|/)(?:__pycache__|\.?cache|logs?|node_modules|\.git|tmp)(?:/|$)|\.(?:log|pyc|lock|tmp|db-wal|db-shm|db-journal"
    r"|sqlite-wal|sqlite-shm|sqlite-journal)$|(?:^|/)\.[^/]*$",
    re.IGNORECASE,
)
"""Matches files that any program may write."""


@dataclass(slots=True)
class ProcessUsage:
    """The measurements after each of several calls in a row."""

    seconds: list[float] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    has_jobs: bool = False
    """True if calls started processes that still ran after them."""


def leak_bytes(usage: ProcessUsage) -> float:
    """Return the steady growth of memory per call; 0 unless it grows in each quarter of the calls."""
    return _growth(usage.memory_bytes)


def slower_seconds(usage: ProcessUsage) -> float:
    """Return the steady growth of the time per call; 0 unless the last calls take twice as long as the
    first."""
    parts = _parts(usage.seconds)
    return _growth(usage.seconds) if parts and parts[-1] >= 2 * parts[0] else 0.0


def leaked_descriptors(usage: ProcessUsage) -> float:
    """Return the steady growth of open descriptors per call; 0 unless it grows in each quarter."""
    return _growth(usage.descriptors)


def _parts(values: Sequence[float]) -> list[float]:
    """Return the medians of the four quarters; none if there are too few values."""
    if len(values) < LEAST_CALLS:
        return []
    size = len(values) // 4
    return [median(values[at * size : (at + 1) * size]) for at in range(4)]


def _growth(values: Sequence[float]) -> float:
    """Return the growth per value from the second quarter on; 0 unless it is steady in all quarters."""
    parts = _parts(values)
    if not parts or not all(after > before for before, after in pairwise(parts)):
        return 0.0
    return (parts[3] - parts[1]) / (2 * (len(values) // 4))


async def probe_process(target: Target) -> None:
    """Watch the process of a stdio server while its read-only tools are called again and again."""
    server = target.server
    if sys.platform != "linux" or not isinstance(server, ServerConfig) or server.command is None:
        return
    tools = [
        tool
        for tool in target.tools
        if tool.name in target.succeeded and is_read_only(target, tool) and skip_reason(target, tool) is None
    ]
    if not tools:
        return
    try:
        async with open_server(server.command, env=server.env, cwd=server.cwd) as process:
            mode = "auto" if target.protocol_version in MODERN_PROTOCOL_VERSIONS else "legacy"
            limits = limits_of(target.options)
            async with connect(StartedServer(server, process), limits=limits, mode=mode) as session:
                for tool in tools:
                    watch = _Watch(target=target, process=process, session=session, server=server, tool=tool)
                    await watch.probe()
    except ConnectError as error:
        with target.test("process", "a process of its own") as draft:
            draft.skipped("process.memory", f"another process could not be started: {error}")


@dataclass(slots=True, kw_only=True)
class _Watch:
    """The repeated calls of one tool."""

    target: Target
    process: ServerProcess
    session: Session
    server: ServerConfig
    tool: types.Tool

    async def probe(self) -> None:
        name = self.tool.name
        params: Mapping[str, Any] = {"name": name, "arguments": self.target.succeeded[name]}
        before = await trio.to_thread.run_sync(footprint, self.server)
        with self.target.test(f"tool {name}", f"up to {MOST_CALLS} calls in a row", tool=name) as draft:
            first = await self._calls(params)
            if len(first.seconds) < LEAST_CALLS:
                draft.skipped(
                    "process.memory", f"only {len(first.seconds)} calls succeeded in {TOOL_SECONDS:g} s"
                )
                return
            suspicions = (leak_bytes(first) >= LEAK_BYTES, slower_seconds(first) >= SLOWER_SECONDS)
            second = await self._calls(params) if any(suspicions) else first
            _judge(draft, first, second)
            await self._judge_files(draft, params, before)

    async def _calls(self, params: Mapping[str, Any]) -> ProcessUsage:
        usage = ProcessUsage()
        own: set[int] = set()
        with trio.move_on_after(TOOL_SECONDS):
            for _ in range(MOST_CALLS):
                started = trio.current_time()
                try:
                    result = await self.session.request("tools/call", params)
                except PlayheadError:
                    break
                if result.get("isError") is True or error_text(result, params["arguments"]) is not None:
                    break
                usage.seconds.append(trio.current_time() - started)
                if usage.seconds[0] * LEAST_CALLS > TOOL_SECONDS:
                    break  # too slow to show a trend
                running = set(_pids(self.process.pid))
                own = own or running  # a process that a call starts is not the server
                usage.memory_bytes.append(sum(map(_resident_bytes, own)))
                usage.descriptors.append(sum(map(_descriptors, own)))
                usage.has_jobs |= running > own
        return usage

    async def _judge_files(self, draft: TestDraft, params: Mapping[str, Any], before: Footprint) -> None:
        """Report files that one more call changes, unless files change without a call as well."""
        idle = await trio.to_thread.run_sync(footprint, self.server)
        written = _written(before, idle)
        if written:
            await trio.sleep(0.2)
            rested = await trio.to_thread.run_sync(footprint, self.server)
            await self.session.request("tools/call", params)
            after = await trio.to_thread.run_sync(footprint, self.server)
            written = [] if _written(idle, rested) else _written(rested, after)
        why = f"expected a tool with readOnlyHint to write nothing, got {', '.join(written[:3])}"
        draft.require("process.files", not written, why)


def _judge(draft: TestDraft, first: ProcessUsage, second: ProcessUsage) -> None:
    leak = min(leak_bytes(first), leak_bytes(second))
    draft.require(
        "process.memory",
        leak < LEAK_BYTES,
        f"expected steady memory over {len(first.seconds)} calls, got {leak / MIB:.1f} MiB more with each"
        f" call",
    )
    # The trend is confirmed if the second round is slower still.
    is_slower_still = median(second.seconds or [0]) >= STILL_SLOWER * median(first.seconds)
    slower = slower_seconds(first) if is_slower_still else 0.0
    draft.require(
        "process.time",
        slower < SLOWER_SECONDS,
        f"expected the same call to take the same time, got {slower * 1000:.1f} ms more with each call"
        f" ({first.seconds[0] * 1000:.0f} ms at first, {first.seconds[-1] * 1000:.0f} ms after"
        f" {len(first.seconds)} calls)",
    )
    if first.has_jobs:
        draft.skipped("process.descriptors", "the calls started processes that still ran, with pipes to them")
        return
    descriptors = leaked_descriptors(first)
    draft.require(
        "process.descriptors",
        descriptors < LEAK_DESCRIPTORS,
        f"expected steady file descriptors, got {descriptors:.1f} more with each call",
    )


def _written(before: Footprint, after: Footprint) -> list[str]:
    return [path for path in changed_paths(before, after) if not _NOISE.search(path)]


def _pids(leader: int) -> Iterator[int]:
    """Yield the processes of the server's group."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.getpgid(int(entry.name)) == leader:
                    yield int(entry.name)
            except ProcessLookupError:
                continue


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _descriptors(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0
