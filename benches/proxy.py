"""The proxy's costs, in one run: `python -m benches.proxy`.

Calls and pages of one stdio server, directly, through `playhead serve proxy`, and through FastMCP's proxy if
`build/hosts/fastmcp` is installed; then the relay: 50 devices play 10 songs through one media port, and again
after the proxy was killed and started again.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import httpx2
import psutil
import trio

from playhead import connect
from playhead.client.session.session import Session
from playhead.config.servers import ServerConfig
from playhead.stream.strategies import ResourceRequest

CALLS = 300
PAGES = 100
PAGE_BYTES = 100 * 1024
SONGS, SONG_BYTES, DEVICES = 10, 1_000_000, 50
FAR = [sys.executable, "-m", "benches.proxy", "far"]
FASTMCP = Path("build/hosts/fastmcp/bin/python")
FASTMCP_PROXY = (
    "import sys; from fastmcp.server import create_proxy;"
    " from fastmcp.client.transports import StdioTransport;"
    " create_proxy(StdioTransport(sys.argv[1], sys.argv[2:])).run(show_banner=False)"
)


def far_server(where: str = "") -> None:
    """Serve songs over stdio, and count the bytes in a file per process whose name starts with `where`."""
    from typing import Any

    import mcp_types as types
    from mcp.server import Server

    from playhead.servers.ranged_resource import ResourceBytes, ranged_resource
    from playhead.servers.stdio import serve_stdio

    served = 0

    async def read(start: int, end: int, name: str) -> ResourceBytes:
        nonlocal served
        data = song(name)[start:end]
        served += len(data)
        if where:
            Path(f"{where}.{os.getpid()}").write_text(str(served))  # noqa: ASYNC240
        return ResourceBytes(data=data, total_bytes=SONG_BYTES, etag=name, mime_type="audio/wav")

    async def call_tool(_context: object, params: types.CallToolRequestParams) -> Any:
        name = str((params.arguments or {}).get("song"))
        if name == "None":
            return types.CallToolResult(content=[types.TextContent(type="text", text="pong")])
        return types.CallToolResult(content=[await family.link(name=name)])

    async def list_tools(_context: object, _params: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="play", input_schema={"type": "object"})])

    server: Server[Any] = Server("far", on_call_tool=call_tool, on_list_tools=list_tools)
    family = ranged_resource(server, "songs://{name}", read, mime_type="audio/wav")
    trio.run(serve_stdio, server)


def song(name: str) -> bytes:
    """Return a song, the same in each process."""
    return (name.encode() * (SONG_BYTES // len(name) + 1))[:SONG_BYTES]


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of one way to the server."""

    calls_per_second: float
    p50_ms: float
    p95_ms: float
    page_p50_ms: float
    cpu_seconds: float
    """Of this process and all others."""


async def measure(command: Sequence[str]) -> Costs:
    """Call and read through `command`."""
    async with connect(command) as session:
        await session.list_tools()
        calls, pages = [], []
        await session.call_tool("play")
        await _page(session, 0)
        before = _cpu_seconds()
        for _call in range(CALLS):
            began = time.perf_counter()
            await session.call_tool("play")
            calls.append((time.perf_counter() - began) * 1000)
        for page in range(PAGES):
            began = time.perf_counter()
            await _page(session, page)
            pages.append((time.perf_counter() - began) * 1000)
        cpu_seconds = _cpu_seconds() - before
    cuts = quantiles(calls, n=20)
    return Costs(1000 * len(calls) / sum(calls), median(calls), cuts[-1], median(pages), cpu_seconds)


def _cpu_seconds() -> float:
    tree = psutil.Process().children(recursive=True)
    return time.process_time() + sum(sum(each.cpu_times()[:2]) for each in tree)


async def _page(session: Session, page: int) -> None:
    start = (page * PAGE_BYTES) % (SONG_BYTES - PAGE_BYTES)
    request = ResourceRequest(uri=f"songs://page?start={start}&end={start + PAGE_BYTES}")
    assert (await session.read_range(request)).n_bytes == PAGE_BYTES


@asynccontextmanager
async def relay(directory: Path, port: int) -> AsyncIterator[tuple[Session, int]]:
    """Start a proxy with a media port, and connect a host; yields the pid too."""
    far = " ".join([*FAR, str(directory / "served")])
    command = [sys.executable, "-m", "playhead", "serve", "proxy", far, "--sink", "none"]
    env = {"XDG_STATE_HOME": str(directory / "state")}
    config = ServerConfig(name="proxy", command=(*command, "--media-port", str(port)), env=env)
    async with connect(config) as host:
        (pid,) = [
            each.pid
            for each in psutil.Process().children()
            if "proxy" in each.cmdline() and each.is_running()
        ]
        yield host, pid


async def measure_relay(directory: Path) -> None:
    """Play with many devices, kill the proxy in the middle, and print what the far server served."""
    port, addresses = 3971, list[str]()

    async def device(number: int) -> None:
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            for song_number in [(number + song) % SONGS for song in range(SONGS)]:
                answer = await http.get(addresses[song_number])
                assert answer.content == song(f"song-{song_number}")

    for half in range(2):
        async with relay(directory, port) as (host, pid):
            for number in range(SONGS if half == 0 else 0):
                raw = (await host.call_tool("play", {"song": f"song-{number}"})).raw
                addresses.append(raw["_meta"]["playhead/audio"][0])
            process = psutil.Process(pid)
            began = process.cpu_times()
            async with trio.open_nursery() as nursery:
                for number in range(DEVICES):
                    nursery.start_soon(device, number)
            ended, memory = process.cpu_times(), process.memory_info().rss
            seconds = ended.user + ended.system - began.user - began.system
            print(
                f"relay, part {half + 1}: proxy {1000 * seconds / DEVICES:.1f} ms of CPU per device,"
                f" {memory / 2**20:.0f} MiB in all"
            )
            served = sum(int(path.read_text()) for path in directory.glob("served.*"))  # noqa: ASYNC240
            total = SONGS * SONG_BYTES
            print(f"far server so far: {served:,} bytes for {total:,} of songs, {served / total:.3f} times")
            if half == 0:
                process.kill()  # the copies are lost, and the addresses are not


async def main() -> None:
    proxy = [sys.executable, "-m", "playhead", "serve", "proxy", " ".join(FAR), "--sink", "null"]
    ways = {"direct": FAR, "playhead": proxy}
    if FASTMCP.exists():  # noqa: ASYNC240
        ways["fastmcp"] = [str(FASTMCP), "-c", FASTMCP_PROXY, *FAR]
    direct = None
    for name, command in ways.items():
        costs = await measure(command)
        direct = direct or costs
        print(
            f"{name:<9}{costs.calls_per_second:7.0f} calls/s  p50 {costs.p50_ms:6.2f} ms"
            f" (+{costs.p50_ms - direct.p50_ms:.2f})  p95 {costs.p95_ms:6.2f} ms"
            f" (+{costs.p95_ms - direct.p95_ms:.2f})  page p50 {costs.page_p50_ms:6.2f} ms"
            f" ({costs.page_p50_ms / direct.page_p50_ms:.2f} times)  CPU {costs.cpu_seconds:.2f} s"
            f" ({costs.cpu_seconds / direct.cpu_seconds:.2f} times)"
        )
    with tempfile.TemporaryDirectory() as directory:
        await measure_relay(Path(directory))


if __name__ == "__main__":
    if sys.argv[1:2] == ["far"]:
        far_server(*sys.argv[2:])
    else:
        trio.run(main)
