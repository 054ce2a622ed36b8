"""Sessions opened and closed many times leave nothing behind: no descriptor, no task, no thread."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from playhead.client import Target, connect
from playhead.client.session.connection import HANDSHAKES_AT_ONCE
from playhead.testing import peers
from tests.servers.raw_http import Exchange, raw_http

ROUNDS = 100
STDIO = peers.command([peers.Handshake(), peers.Expect(method="resources/read"), peers.AwaitEnd()])


async def open_and_close(target: Target) -> None:
    """Once in peace, with a read that is cut off by leaving."""
    async with connect(target) as session, trio.open_nursery() as nursery:
        nursery.start_soon(session.read_resource, "x:")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def holdings() -> tuple[int, int, int]:
    gc.collect()
    await trio.testing.wait_all_tasks_blocked(0.1)
    return (
        descriptors(),
        trio.lowlevel.current_statistics().tasks_living,
        len([thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread")]),
    )


pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors in /proc")


async def test_http_sessions_leave_nothing_behind() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.result({"contents": []})

    async with raw_http(handle) as server:
        await open_and_close(server.url)
        before = await holdings()
        for _ in range(ROUNDS):
            await open_and_close(server.url)
        assert await holdings() == before


async def test_more_connects_at_once_than_a_process_can_serve_take_turns() -> None:
    """Each in its own time, which begins when it has a place."""
    probes = 0
    first_places_taken, answering = trio.Event(), trio.Event()

    async def greet(exchange: Exchange) -> bool:
        nonlocal probes
        if exchange.method == "server/discover":
            probes += 1
            if probes == HANDSHAKES_AT_ONCE:
                first_places_taken.set()
            await answering.wait()
        return await server.handshake(exchange)

    async def handle(exchange: Exchange) -> None:
        await exchange.result({})

    async with raw_http(handle) as server, trio.open_nursery() as nursery:
        server.greet = greet
        opened = 0

        async def open_one() -> None:
            nonlocal opened
            async with connect(server.url):
                opened += 1

        for _ in range(3 * HANDSHAKES_AT_ONCE):
            nursery.start_soon(open_one)
        await first_places_taken.wait()
        await trio.testing.wait_all_tasks_blocked(0.1)
        assert probes == HANDSHAKES_AT_ONCE
        answering.set()
    assert probes == opened == 3 * HANDSHAKES_AT_ONCE


async def test_stdio_sessions_leave_nothing_behind() -> None:
    await open_and_close(STDIO)
    before = await holdings()
    for _ in range(ROUNDS):
        await open_and_close(STDIO)
    assert await holdings() == before


@pytest.mark.parametrize("checkpoints", [1, 2, 3, 5, 8, 13, 21, 34, 55])
async def test_a_connect_that_is_cancelled_at_any_point_leaves_nothing_behind(checkpoints: int) -> None:
    await open_and_close(STDIO)
    before = await holdings()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_and_close, STDIO)
        for _ in range(checkpoints):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert await holdings() == before
