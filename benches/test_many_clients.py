"""200 WebSocket clients of one server at once, each with 50 checked calls, with and without a slow client.

The two turns alternate in one run, and the 99th percentiles of a call of the 200 clients are compared. The
slow client has asked for 40 pages of 256 KiB and reads 100 KiB/s of them: its connection is always full, and
answers wait for it.
"""

from __future__ import annotations

import statistics
import time
from contextlib import AsyncExitStack

import pytest
import trio

from benches.board import Board, Comparison
from benches.peers import serving
from tests.servers.pages import URI
from tests.servers.payload import Payload
from tests.servers.raw_websocket import RawWebSocket, raw_websocket

ROUNDS = 5
CLIENTS, CALLS = 200, 50
PAGE_BYTES = 1024
SLOW_PAGE_BYTES, SLOW_PAGES = 256 * 1024, 40
SLOW_BYTES, SLOW_SECONDS = 1024, 0.01
RESOURCE_BYTES = 64 << 20


def read_of(start: int, end: int, number: int) -> dict[str, object]:
    """A ranged read."""
    params = {"uri": URI, "arguments": {"start": start, "end": end}}
    return {"jsonrpc": "2.0", "id": number, "method": "resources/read", "params": params}


async def one_client(client: RawWebSocket, calls: int, expected: str, took: list[float]) -> None:
    """`calls` reads in a row, each one's bytes and id checked."""
    for number in range(calls):
        started = time.perf_counter()
        await client.send(read_of(0, PAGE_BYTES, number))
        answer = await client.receive()
        took.append(time.perf_counter() - started)
        assert answer["id"] == number
        assert answer["result"]["contents"][0]["blob"] == expected


async def read_slowly(port: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """The slow client; started once its connection is full."""
    async with raw_websocket(port) as slow:
        await slow.initialize()
        for number in range(SLOW_PAGES):
            await slow.send(read_of(0, SLOW_PAGE_BYTES, number))
        await trio.sleep(0.3)
        task_status.started()
        while data := await slow.stream.receive_some(SLOW_BYTES):
            assert data
            await trio.sleep(SLOW_SECONDS)


async def one_turn(clients: list[RawWebSocket], calls: int, expected: str) -> tuple[float, float]:
    """The 99th percentile of a call and the calls a second."""
    took: list[float] = []
    started = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(one_client, client, calls, expected, took)
    assert len(took) == len(clients) * calls
    return statistics.quantiles(took, n=100)[98], len(took) / (time.perf_counter() - started)


@pytest.mark.parametrize("transport", ["ws"])
async def test_many_clients(transport: str, board: Board, smoke: bool) -> None:
    count, calls = (40, 5) if smoke else (CLIENTS, CALLS)
    expected = Payload(size_bytes=RESOURCE_BYTES).base64(0, PAGE_BYTES)
    alone: list[tuple[float, float]] = []
    beside: list[tuple[float, float]] = []
    with trio.fail_after(600):
        async with serving(transport, "--size", RESOURCE_BYTES) as url, AsyncExitStack() as stack:
            assert isinstance(url, str)
            port = int(url.rsplit(":", 1)[1].partition("/")[0])
            clients = [await stack.enter_async_context(raw_websocket(port)) for _ in range(count)]
            for client in clients:
                await client.initialize()
            await one_turn(clients, 5, expected)
            for _ in range(board.rounds(ROUNDS)):
                alone.append(await one_turn(clients, calls, expected))
                async with trio.open_nursery() as nursery:
                    await nursery.start(read_slowly, port)
                    beside.append(await one_turn(clients, calls, expected))
                    nursery.cancel_scope.cancel()
    board.add(
        Comparison(
            name=f"p99 of a call, {count} clients and a slow one",
            unit="s",
            baseline_name="without the slow one",
            ours=[p99 for p99, _ in beside],
            baseline=[p99 for p99, _ in alone],
            at_most=1.5,
            notes={"calls_a_second": [rate for _, rate in alone], "calls": calls},
        )
    )
    board.add(
        Comparison(
            name=f"calls a second, {count} clients",
            unit="1/s",
            baseline_name="1",
            ours=[rate for _, rate in alone],
            baseline=[1.0] * len(alone),
        )
    )
