"""The proxy's costs, in one run: `python -m benches.proxy`.

Calls and pages of one stdio server, directly, through `playhead serve proxy`, and through FastMCP's proxy if
`build/hosts/fastmcp` is installed; then the relay (alone: `python -m benches.proxy relay`): 50 processes of
`playhead play` play 10 songs each through one media port, and again with the proxy killed in the middle.
"""

from __future__ import annotations

import io
import os
import socket
import sys
import tempfile
import time
import wave
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median, quantiles
from subprocess import PIPE

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
HEADER_BYTES = 44
_SONGS: dict[str, bytes] = {}
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
    """Return a song, the same in each process: a WAV file."""
    if name not in _SONGS:
        with wave.open(file := io.BytesIO(), "wb") as writer:
            writer.setparams((2, 2, 44_100, 0, "NONE", "NONE"))
            writer.writeframes((name.encode() * SONG_BYTES)[: SONG_BYTES - HEADER_BYTES])
        _SONGS[name] = file.getvalue()
    return _SONGS[name]


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
async def relay(directory: Path, port: int) -> AsyncIterator[tuple[Session, psutil.Process]]:
    """Start a proxy with a media port, and connect a host."""
    far = " ".join([*FAR, str(directory / "served")])
    command = [sys.executable, "-m", "playhead", "serve", "proxy", far, "--sink", "none"]
    env = {"XDG_STATE_HOME": str(directory / "state")}
    config = ServerConfig(name="proxy", command=(*command, "--media-port", str(port)), env=env)
    async with connect(config) as host:
        (process,) = [each for each in psutil.Process().children() if "proxy" in each.cmdline()]
        yield host, process


class Devices:
    """Processes that each play all songs, from another one on, as fast as their output is read."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = addresses
        self.played_bytes = 0
        self.half = trio.Event()
        """Set once half of all bytes have been played."""
        self.over = trio.Event()
        self.digests: list[str] = []
        self.errors: list[str] = []

    async def play(self, number: int) -> None:
        at = number % SONGS
        order = [*self.addresses[at:], *self.addresses[:at]]
        command = [sys.executable, "-m", "playhead", "play", *order, "--sink", "pcm:-"]
        digest = sha256()
        device = await trio.lowlevel.open_process(command, stdout=PIPE, stderr=PIPE)
        assert device.stdout is not None
        assert device.stderr is not None
        async with device.stdout, device.stderr:
            async for data in device.stdout:
                digest.update(data)
                self.played_bytes += len(data)
                if self.played_bytes > DEVICES * SONGS * SONG_BYTES / 2:
                    self.half.set()
            if await device.wait() != 0:
                self.errors.append((await device.stderr.receive_some()).decode())
        self.digests.append(digest.hexdigest())
        if len(self.digests) == DEVICES:
            self.over.set()

    def expected(self) -> list[str]:
        """Return the digests of all devices whose output is exact, sorted."""
        songs = [song(f"song-{number}")[HEADER_BYTES:] for number in range(SONGS)]
        orders = [[*songs[number % SONGS :], *songs[: number % SONGS]] for number in range(DEVICES)]
        return sorted(sha256(b"".join(order)).hexdigest() for order in orders)


async def measure_relay(directory: Path, *, kill: bool) -> None:
    """Play with many devices, and print what the far server served. `kill` kills the proxy in the middle."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    usages = dict[int, tuple[float, int]]()

    def measure(process: psutil.Process) -> None:
        spent = process.cpu_times()
        usages[process.pid] = spent.user + spent.system, process.memory_info().rss

    async with relay(directory, port) as (host, process):
        results = [await host.call_tool("play", {"song": f"song-{number}"}) for number in range(SONGS)]
        devices = Devices([result.raw["_meta"]["playhead/audio"][0] for result in results])
        measure(process)
        (idle_seconds, idle_bytes), began = usages[process.pid], time.perf_counter()
        async with trio.open_nursery() as nursery:
            for number in range(DEVICES):
                nursery.start_soon(devices.play, number)
            await (devices.half if kill else devices.over).wait()
            measure(process)
            if kill:
                process.kill()
                async with relay(directory, port) as (_host, process):
                    await devices.over.wait()
                    measure(process)
    seconds = time.perf_counter() - began
    is_exact = sorted(devices.digests) == devices.expected() and not devices.errors
    served = sorted(int(path.read_text()) for path in directory.glob("served.*"))  # noqa: ASYNC240
    total = SONGS * SONG_BYTES
    cpu_seconds = sum(spent for spent, _ in usages.values()) - idle_seconds
    print(
        f"relay{', killed at half and started again' * kill}: {DEVICES} devices play {SONGS} songs in"
        f" {seconds:.1f} s, {'each byte exact' if is_exact else f'WRONG: {devices.errors}'};"
        f" far server {' + '.join(f'{each / total:.3f}' for each in served)} times the songs;"
        f" proxy {1000 * cpu_seconds / DEVICES:.1f} ms of CPU per device, and for all"
        f" {max(held for _, held in usages.values()) / 2**20:.0f} MiB ({idle_bytes / 2**20:.0f} before)"
    )


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
    await measure_relays()


async def measure_relays() -> None:
    for kill in (False, True):
        with tempfile.TemporaryDirectory() as directory:
            await measure_relay(Path(directory), kill=kill)


if __name__ == "__main__":
    if sys.argv[1:2] == ["far"]:
        far_server(*sys.argv[2:])
    else:
        trio.run(measure_relays if sys.argv[1:] == ["relay"] else main)
