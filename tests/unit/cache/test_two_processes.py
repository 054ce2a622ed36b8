"""Two processes that start the same song at the same moment read each of its pages once."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

import trio
from mcp.server.mcpserver import MCPServer

from playhead.cache import BLOCK_BYTES
from playhead.servers.byte_sources import ResourceBytes
from playhead.servers.ranged_resource import ranged_resource
from tests.servers.counted_http import counted_http
from tests.servers.valkey_server import valkey_server

REPOSITORY = Path(__file__).parents[3]
DATA = random.Random(3).randbytes(20 * BLOCK_BYTES + 1000)
ETAG = '"v1"'
ROUNDS = 20
TOGETHER_SECONDS = 0.01


class Listener:
    """A process of `tests.unit.cache.listener`."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._rest = b""

    async def line(self) -> str:
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            found = await self._process.stdout.receive_some()
            assert found, "the listener ended"
            self._rest += found
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    async def play(self, uri: str) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send_all(uri.encode() + b"\n")


async def test_two_processes_that_start_within_10_ms_read_each_page_once() -> None:
    reads: list[tuple[str, int, int]] = []
    server = MCPServer("songs")

    async def read(start: int, end: int, song: str) -> ResourceBytes:
        reads.append((song, start, min(end, len(DATA))))
        await trio.lowlevel.checkpoint()
        return ResourceBytes(data=DATA[start:end], total_bytes=len(DATA), etag=ETAG)

    ranged_resource(server, "music://{song}", read, ttl_seconds=3600.0, cache_scope="public")
    with tempfile.TemporaryDirectory() as directory, valkey_server(Path(directory)) as store:
        async with counted_http(server, json_response=True) as served, trio.open_nursery() as nursery:
            command = [sys.executable, "-m", "tests.unit.cache.listener", served.url, store.url]
            command += [ETAG, str(len(DATA))]
            listeners = []
            for _ in range(2):
                run = partial(trio.run_process, command, check=False, cwd=REPOSITORY)
                process = await nursery.start(partial(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
                listeners.append(Listener(process))
            with trio.fail_after(60):
                for listener in listeners:
                    assert await listener.line() == "ready"
                apart = []
                for number in range(ROUNDS):
                    async with trio.open_nursery() as starts:
                        for listener in listeners:
                            starts.start_soon(listener.play, f"music://song-{number}")
                    found = [json.loads(await listener.line()) for listener in listeners]
                    assert {it["sha256"] for it in found} == {hashlib.sha256(DATA).hexdigest()}
                    apart.append(abs(found[0]["began"] - found[1]["began"]))
            nursery.cancel_scope.cancel()
    times = Counter(
        (song, block)
        for song, start, end in reads
        for block in range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES))
        if song != "warm"
    )
    n_bytes = sum(max(0, end - start) for song, start, end in reads if song != "warm")
    assert len(times) == ROUNDS * 21
    assert n_bytes == ROUNDS * len(DATA), "a page was read twice, or not at all"
    assert min(apart) <= TOGETHER_SECONDS, "no two of them started together: this proved nothing"
