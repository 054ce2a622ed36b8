"""Read and play a resource that grows: requests, the delay of each byte, and when the end is noticed.

    python -m benches.growth [--seconds 10] [--json]

A server (the SDK's `MCPServer` or FastMCP, over stdio or HTTP, with and without notifications) writes PCM in
pieces of 50 ms, at 0.5, 1 and 4 times real time. Each piece begins with the time at which it was written, on
the clock that all processes of the machine share. `read` measures until a program has the piece, `heard`
until the sink takes it in real time. FastMCP takes part if `make extra NAME=gateways` has installed it. The
exit status is 1 if a byte differs, if there is more than one request per second beyond one per page of
growth, or if an announced end is noticed after more than 1.2 s.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from playhead.client import Session, connect
from playhead.limits import Limits
from playhead.playback import Player
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.stream.options import StreamOptions
from tests.conformance.gateways import BUILD, PYTHON

RATE_HZ = 16_000
BYTES_PER_SECOND = 2 * RATE_HZ
PIECE_SECONDS = 0.05
PIECE_BYTES = int(BYTES_PER_SECOND * PIECE_SECONDS)
MARK = b"\x5a\xa5GROW\xa5\x5a"
STAMP = struct.Struct("<8sd")
MOST_LATE_SECONDS = 1.2
PATIENT = Limits(handshake_seconds=60.0, connect_seconds=60.0)
HEADER = struct.pack(
    "<4sI8sIHHIIHH4sI",
    *(b"RIFF", 0xFFFFFFFF, b"WAVEfmt ", 16, 1, 1, RATE_HZ, BYTES_PER_SECOND, 2, 16, b"data", 0xFFFFFFFF),
)
"""A WAV header without a length, as programs write it that do not know the length yet."""

SERVER = f"""
import sys, time
import anyio
import mcp_types as types
from playhead.servers.ranged_resource import ranged_resource
kind, transport, notifies, times, seconds, port = sys.argv[1:7]
if kind == "sdk":
    from mcp.server import MCPServer as Server
else:
    from fastmcp import FastMCP as Server
server = Server("growth")
async def speech():
    import struct
    yield bytes.fromhex("{HEADER.hex()}")
    began = time.monotonic()
    for number in range(round(float(seconds) * float(times) / {PIECE_SECONDS})):
        await anyio.sleep(max(0.0, began + (number + 1) * {PIECE_SECONDS} / float(times) - time.monotonic()))
        piece = struct.pack("<8sd", {MARK!r}, time.monotonic())
        yield piece + bytes({PIECE_BYTES} - len(piece))
kept = dict(mime_type="audio/wav")
added = ranged_resource(server, "speech://1", growing=speech, **kept) if notifies == "yes" else None
@server.tool()
async def speak() -> types.ResourceLink:
    resource = added or ranged_resource(server, "speech://1", growing=speech(), **kept)
    return await resource.link()
if transport == "stdio":
    server.run("stdio")
elif kind == "sdk":
    server.run("streamable-http", port=int(port))
else:
    server.run("http", port=int(port), show_banner=False)
"""


@asynccontextmanager
async def served(
    kind: str, transport: str, notifies: bool, times: float, seconds: float
) -> AsyncIterator[Session]:
    python = str(PYTHON) if kind == "fastmcp" else sys.executable
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1] / "python"),
        "FASTMCP_SHOW_SERVER_BANNER": "false",
    }
    program = [
        python,
        "-c",
        SERVER,
        kind,
        transport,
        "yes" if notifies else "no",
        str(times),
        str(seconds),
        str(port),
    ]
    mode = "auto" if notifies else "legacy"  # a resource that is added after the handshake notifies nobody
    if transport == "stdio":
        command = ["env", f"PYTHONPATH={environment['PYTHONPATH']}", *program]
        async with connect(command, mode=mode, limits=PATIENT) as session:
            yield session
        return
    process = await trio.lowlevel.open_process(
        program, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with trio.fail_after(60):
            while True:
                try:
                    await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
                    break
                except OSError:
                    await trio.sleep(0.1)
        async with connect(f"http://127.0.0.1:{port}/mcp", mode=mode, limits=PATIENT) as session:
            yield session
    finally:
        process.kill()
        await process.wait()


class Delays:
    """The delays of the pieces, by the stamps in the bytes."""

    def __init__(self, *, header_bytes: int = 0) -> None:
        self._skip = header_bytes
        self.seconds: list[float] = []
        self.n_bytes = 0
        self.written_at = 0.0
        self.is_exact = True
        self._rest = b""

    def take(self, chunk: bytes | bytearray) -> None:
        now = time.monotonic()
        skipped = min(self._skip, len(chunk))
        self._skip, chunk = self._skip - skipped, chunk[skipped:]
        data = self._rest + chunk
        whole = len(data) - len(data) % PIECE_BYTES
        for at in range(0, whole, PIECE_BYTES):
            mark, self.written_at = STAMP.unpack_from(data, at)
            rest = data[at + STAMP.size : at + PIECE_BYTES]
            self.is_exact &= mark == MARK and not any(rest)
            self.seconds.append(now - self.written_at)
        self.n_bytes += len(chunk)
        self._rest = data[whole:]


class HeardSink:
    """Takes audio in real time, in blocks of 10 ms, as a device does."""

    name = "heard"

    def __init__(self, delays: Delays) -> None:
        self._delays = delays

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        async for buffer in buffers:
            await buffer.wait_ready()
            due = trio.current_time()
            block = memoryview(bytearray(buffer.format.rate_hz // 100 * buffer.format.frame_bytes))
            while not (buffer.ended or buffer.closed):
                n_bytes = buffer.fill(block)
                self._delays.take(bytes(block[:n_bytes]))
                due = max(due, trio.current_time() - 0.1) + 0.01
                await trio.sleep_until(due)


async def measure(kind: str, transport: str, notifies: bool, times: float, seconds: float) -> dict[str, Any]:
    read, heard = Delays(header_bytes=len(HEADER)), Delays()
    async with served(kind, transport, notifies, times, seconds) as session:
        (link,) = (await session.call_tool("speak")).links
        began = time.monotonic()
        async with session.open(link, options=StreamOptions(profile="save")) as stream:
            async for chunk in stream:
                read.take(chunk)
        ended = time.monotonic()
        counts = stream.statistics()
    underruns, first_audio = 0, None
    if times >= 1.0:
        async with (
            served(kind, transport, notifies, times, seconds) as session,
            Player(HeardSink(heard)) as player,
        ):
            media = (await session.call_tool("speak")).media
            await player.play(media)
            await player.wait_finished()
            state = player.snapshot()
            underruns, first_audio = state.underruns, state.first_audio_seconds
    wanted = round(seconds * times / PIECE_SECONDS) * PIECE_BYTES
    late = ended - read.written_at
    in_vain = counts.requests - counts.pages
    faults = []
    if read.n_bytes != wanted or not read.is_exact:
        faults.append(f"{read.n_bytes} of {wanted} bytes")
    if times >= 1.0 and (heard.n_bytes != wanted or not heard.is_exact):
        faults.append(f"{heard.n_bytes} of {wanted} bytes heard")
    if in_vain > 1 + ended - began:
        faults.append(f"{in_vain} requests without growth")
    if late > MOST_LATE_SECONDS:
        faults.append(f"the end after {late:.2f} s")
    return {
        "server": kind,
        "transport": transport,
        "notified": notifies,
        "times": times,
        "bytes": read.n_bytes,
        "requests": counts.requests,
        "without_growth": in_vain,
        "notifications": counts.notifications,
        "read_ms": spread(read.seconds),
        "heard_ms": spread(heard.seconds) if times == 1.0 else None,
        "first_audio_ms": None if first_audio is None else round(1000 * first_audio),
        "underruns": underruns,
        "end_after_ms": round(1000 * late),
        "faults": faults,
    }


def spread(seconds: list[float]) -> tuple[int, int] | None:
    """The median and the 95th percentile, in milliseconds."""
    if len(seconds) < 2:
        return None
    parts = statistics.quantiles(seconds, n=20)
    return round(1000 * parts[9]), round(1000 * parts[18])


async def main(seconds: float, *, as_json: bool) -> int:
    kinds = ["sdk", "fastmcp"] if (BUILD / "installed.txt").is_file() else ["sdk"]
    rows = []
    for kind in kinds:
        for transport in ("stdio", "http"):
            for notifies in (True, False):
                for times in (0.5, 1.0, 4.0):
                    row = await measure(kind, transport, notifies, times, seconds)
                    rows.append(row)
                    print(json.dumps(row) if as_json else shown(row), flush=True)
    return int(any(row["faults"] for row in rows))


def shown(row: dict[str, Any]) -> str:
    def pair(value: tuple[int, int] | None) -> str:
        return "-" if value is None else f"{value[0]}/{value[1]}"

    how = "notified" if row["notified"] else "polled"
    return (
        f"{row['server']:8} {row['transport']:6} {how:9} {row['times']:4} x {row['requests']:4} requests"
        f" ({row['without_growth']} without growth)  read {pair(row['read_ms']):>9} ms  heard"
        f" {pair(row['heard_ms']):>9} ms  first audio {row['first_audio_ms']} ms,"
        f" {row['underruns']} underruns, end after {row['end_after_ms']} ms  {'; '.join(row['faults'])}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sys.exit(trio.run(lambda: main(given.seconds, as_json=given.json)))
