"""Servers and links for the benchmarks, in processes of their own, so that their CPU is not counted."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

import trio

from playhead.testing.links import Link, slow_command
from tests.servers.launch import http_process, pages_command

TRANSPORTS = ("stdio", "http", "ws")
TEN_MBIT = 1_250_000.0
"""Bytes a second."""

Target = str | list[str]


@asynccontextmanager
async def serving(
    transport: str, *options: object, rate_bytes_per_second: float = inf
) -> AsyncIterator[Target]:
    """A pages server, behind a bottleneck of `rate_bytes_per_second` where one is given."""
    link = Link(rate_bytes_per_second=rate_bytes_per_second)
    command = pages_command(transport, *options)
    if transport == "stdio":
        yield command if rate_bytes_per_second == inf else slow_command(link, command)
        return
    async with http_process(command) as url:
        if rate_bytes_per_second == inf:
            yield url
            return
        address = re.search(r"//([^/]+)/", url)
        assert address is not None
        proxy = [sys.executable, "-m", "playhead.testing.links", "--rate", str(rate_bytes_per_second)]
        async with http_process([*proxy, "--tcp", address.group(1)]) as near:
            yield f"{transport}://{near}/mcp"


async def in_child(*arguments: str | float | Target) -> dict[str, float]:
    """Run `benches.children` and give what it measured; a list among the arguments is a command line."""
    words: list[str] = []
    for argument in arguments:
        words.extend(argument if isinstance(argument, list) else [str(argument)])
    process = await trio.run_process([sys.executable, "-m", "benches.children", *words], capture_stdout=True)
    measurement: dict[str, float] = json.loads(process.stdout)
    return measurement
