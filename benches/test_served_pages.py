"""The CPU of `playhead serve audio` per page of 100 KiB over HTTP, at 1, 20 and 200 clients.

The baseline is a server on the SDK alone that reads the same file (`bare_sdk_server`). They take turns, and
the other one begins in each round. Only the CPU of the server's process counts.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import psutil
import pytest
import trio

from benches.board import Board, Comparison
from playhead.client import connect

ROUNDS, PAGES = 5, 1000
PAGE_BYTES, FILE_PAGES = 100 * 1024, 64
SONG = "song.mp3"
VERSION = "2026-07-28"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    url: str
    process: psutil.Process
    range_uri: Callable[[int, int], str]

    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


@asynccontextmanager
async def started(*arguments: object) -> AsyncIterator[tuple[str, psutil.Process]]:
    """A server, and its URL, with which the first line that it prints ends."""
    command = [sys.executable, "-m", *map(str, arguments)]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            line += await process.stdout.receive_some()
        yield line.decode().split()[-1], psutil.Process(process.pid)
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()


async def read(stream: trio.SocketStream, uri: str, *, port: int) -> int:
    """Read one page; return the length of the answer."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    }
    params = {"uri": uri, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params})
    fields = {
        "host": f"127.0.0.1:{port}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "content-length": len(body),
        "mcp-protocol-version": VERSION,
        "mcp-method": "resources/read",
        "mcp-name": uri,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    await stream.send_all(f"POST /mcp HTTP/1.1\r\n{head}\r\n{body}".encode())
    answer = bytearray()
    while (end := answer.find(b"\r\n\r\n")) < 0:
        answer += await received(stream)
    assert answer.startswith(b"HTTP/1.1 200"), bytes(answer[:500])
    (length,) = (
        int(line[15:]) for line in answer[:end].lower().split(b"\r\n") if line[:15] == b"content-length:"
    )
    n_bytes = len(answer) - end - 4
    while n_bytes < length:
        n_bytes += len(await received(stream))
    return length


async def received(stream: trio.SocketStream) -> bytes:
    data = await stream.receive_some(1 << 18)
    assert data, "the server closed the connection"
    return bytes(data)


async def turn(contender: Contender, clients: int, pages: int) -> float:
    """Milliseconds of the server's CPU per page."""
    rest = iter(range(pages))
    port = urlsplit(contender.url).port or 0

    async def one_client(stream: trio.SocketStream) -> None:
        for _ in rest:
            start = PAGE_BYTES * random.randrange(FILE_PAGES)
            uri = contender.range_uri(start, start + PAGE_BYTES)
            assert await read(stream, uri, port=port) > PAGE_BYTES * 4 / 3

    async with AsyncExitStack() as stack:
        streams = []
        for _ in range(clients):
            streams.append(await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port)))
        before = contender.cpu_seconds()
        async with trio.open_nursery() as nursery:
            for stream in streams:
                nursery.start_soon(one_client, stream)
        return (contender.cpu_seconds() - before) / pages * 1000


@asynccontextmanager
async def contenders(library: Path) -> AsyncIterator[tuple[Contender, Contender]]:
    """The audio server and the bare one, of the same file."""
    song = library / SONG
    options = ("--transport", "http", "--port", 0, "--mixer", "memory", "--library", library)
    async with (
        started("playhead", "serve", "audio", *options) as (url, process),
        started("benches.bare_sdk_server", song) as (bare_url, bare_process),
    ):
        async with connect(url) as session:
            (link,) = (await session.call_tool("musicPlayer", {"query": ""})).links
        base = f"{link.uri}?url={quote(link.description or '', safe='')}"
        yield (
            Contender(
                url=url, process=process, range_uri=lambda start, end: f"{base}&start={start}&end={end}"
            ),
            Contender(
                url=bare_url,
                process=bare_process,
                range_uri=lambda start, end: f"bare://song?start={start}&end={end}",
            ),
        )


@pytest.mark.timeout(900)
async def test_served_pages(board: Board, smoke: bool, tmp_path: Path) -> None:
    (tmp_path / SONG).write_bytes(random.Random(1).randbytes(PAGE_BYTES * FILE_PAGES))
    pages = 200 if smoke else PAGES
    with trio.fail_after(900):
        async with contenders(tmp_path) as both:
            for clients in (1, 20, 200):
                for contender in both:
                    await turn(contender, clients, pages // 10)
                rounds = [
                    {each: await turn(each, clients, pages) for each in (both if number % 2 else both[::-1])}
                    for number in range(board.rounds(ROUNDS))
                ]
                ours, bare = ([spent[each] for spent in rounds] for each in both)
                board.add(
                    Comparison(
                        name=f"server CPU per 100 KiB page, HTTP, {clients} clients",
                        unit="ms",
                        baseline_name="bare SDK server of the same file",
                        ours=ours,
                        baseline=bare,
                        at_most=1.3,
                    )
                )
