"""Two processes that start the same song at the same moment read each of its pages once."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import trio
from mcp.server.mcpserver import MCPServer

from playhead.cache import BLOCK_BYTES, CLAIM_SECONDS
from playhead.client.session.cached_reads import LOOK_SECONDS_MAX
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

    def kill(self) -> None:
        self._process.kill()

    async def play(self, uri: str) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send_all(uri.encode() + b"\n")


@pytest.fixture(params=["valkey", "directory"])
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """The place of a cache."""
    with tempfile.TemporaryDirectory() as directory:
        if request.param == "directory":
            yield f"{directory}/cache"
            return
        with valkey_server(Path(directory)) as store:
            yield store.url


@dataclass
class House:
    """A server, and two processes with a session each."""

    listeners: list[Listener] = field(default_factory=list)
    reads: list[tuple[str, int, int]] = field(default_factory=list)


@asynccontextmanager
async def house(
    where: str, killer: Callable[[House, str], Awaitable[None]] | None = None
) -> AsyncIterator[House]:
    """Run a house; `killer` is called before each answer of the server, with the name of the song."""
    server, found = MCPServer("songs"), House()

    async def read(start: int, end: int, song: str) -> ResourceBytes:
        found.reads.append((song, start, min(end, len(DATA))))
        if killer is not None:
            await killer(found, song)
        await trio.lowlevel.checkpoint()
        return ResourceBytes(data=DATA[start:end], total_bytes=len(DATA), etag=ETAG)

    ranged_resource(server, "music://{song}", read, ttl_seconds=3600.0, cache_scope="public")
    async with counted_http(server, json_response=True) as served, trio.open_nursery() as nursery:
        command = [sys.executable, "-m", "tests.unit.cache.listener", served.url, where]
        command += [ETAG, str(len(DATA))]
        for _ in range(2):
            run = partial(trio.run_process, command, check=False, cwd=REPOSITORY)
            process = await nursery.start(partial(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            found.listeners.append(Listener(process))
        with trio.fail_after(60):
            for listener in found.listeners:
                assert await listener.line() == "ready"
            yield found
        nursery.cancel_scope.cancel()


async def test_two_processes_that_start_within_10_ms_read_each_page_once(where: str) -> None:
    apart = []
    async with house(where) as running:
        for number in range(ROUNDS):
            async with trio.open_nursery() as starts:
                for listener in running.listeners:
                    starts.start_soon(listener.play, f"music://song-{number}")
            found = [json.loads(await listener.line()) for listener in running.listeners]
            assert {it["sha256"] for it in found} == {hashlib.sha256(DATA).hexdigest()}
            apart.append(abs(found[0]["began"] - found[1]["began"]))
    songs = [(song, start, end) for song, start, end in running.reads if song != "warm"]
    times = Counter(
        (song, block)
        for song, start, end in songs
        for block in range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES))
    )
    n_bytes = sum(max(0, end - start) for _, start, end in songs)
    assert len(times) == ROUNDS * 21
    assert n_bytes == ROUNDS * len(DATA), "a page was read twice, or not at all"
    assert min(apart) <= TOGETHER_SECONDS, "no two of them started together: this proved nothing"


@pytest.mark.slow("waits until a claim has expired")
async def test_a_process_that_is_killed_while_it_reads_delays_the_other_no_longer_than_its_claim(
    where: str,
) -> None:
    killed = trio.Event()

    async def kill(house: House, song: str) -> None:
        if song != "warm" and not killed.is_set():
            house.listeners[0].kill()
            killed.set()
            await trio.sleep_forever()

    async with house(where, kill) as running:
        await running.listeners[0].play("music://song")
        await killed.wait()
        await running.listeners[1].play("music://song")
        began = trio.current_time()
        found = json.loads(await running.listeners[1].line())
    assert trio.current_time() - began <= CLAIM_SECONDS + 2 * LOOK_SECONDS_MAX
    assert found["sha256"] == hashlib.sha256(DATA).hexdigest()
