"""Time to read a whole resource, from the first read on, compared with two loops on the bare SDK.

One loop is the reference's: page after page. The other has eight pages in flight. The server waits 0, 20 or
100 ms before each answer, as one does that asks an origin. All take turns in each round, and each hashes the
bytes that it received.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from functools import partial

import mcp_types as types
import pytest
import trio
from mcp import Client

from benches.baselines import link_of, pages, pages_at_once, sdk_client
from benches.board import Board, Comparison
from benches.peers import TRANSPORTS, serving
from playhead.client import ResourceMedia, Session, connect
from playhead.limits import MIB
from playhead.stream.options import StreamOptions
from tests.servers.payload import Payload

ROUNDS = 5
IN_FLIGHT = 8
SEQUENTIAL = "sequential 100 KiB loop"
AT_ONCE = f"{IN_FLIGHT} in flight"
AT_100_MS = 0.09
SETTINGS = {"defaults": StreamOptions(), "saved": StreamOptions(profile="save")}


async def timed(read: Callable[[], Awaitable[str]], expected: str) -> tuple[float, float]:
    """Seconds on the clock and of this process's CPU."""
    cpu, started = time.process_time(), time.perf_counter()
    data = await read()
    spent = time.perf_counter() - started, time.process_time() - cpu
    assert data == expected, "the bytes differ, so the time is meaningless"
    return spent


async def read_sequentially(client: Client, link: types.ResourceLink) -> str:
    digest = hashlib.sha256()
    async for data in pages(client, link):
        digest.update(data)
    return digest.hexdigest()


async def read_at_once(client: Client, link: types.ResourceLink) -> str:
    digest = hashlib.sha256()
    await pages_at_once(client, link, IN_FLIGHT, digest.update)
    return digest.hexdigest()


async def read_ours(session: Session, link: ResourceMedia, options: StreamOptions) -> str:
    digest = hashlib.sha256()
    async with session.open(link, options=options) as stream:
        async for chunk in stream:
            digest.update(chunk)
    return digest.hexdigest()


@pytest.mark.parametrize("delay_ms", [0, 20, pytest.param(100, marks=pytest.mark.full_run)])
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_whole_file(transport: str, delay_ms: int, board: Board, smoke: bool) -> None:
    size = (1 if smoke else 32) * MIB + 4321
    rounds = board.rounds(ROUNDS)
    expected = Payload(size_bytes=size).sha256()
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in (SEQUENTIAL, AT_ONCE, *SETTINGS)}
    with trio.fail_after(900):
        async with (
            serving(transport, "--size", size, "--delay", delay_ms / 1000) as target,
            sdk_client(target) as client,
        ):
            theirs = await link_of(client)
            async with connect(target) as session:
                (link,) = (await session.call_tool("link")).links
                for _ in range(rounds):
                    spent[SEQUENTIAL].append(
                        await timed(partial(read_sequentially, client, theirs), expected)
                    )
                    spent[AT_ONCE].append(await timed(partial(read_at_once, client, theirs), expected))
                    for name, options in SETTINGS.items():
                        spent[name].append(await timed(partial(read_ours, session, link, options), expected))
    for name in SETTINGS:
        for baseline, at_most in ((SEQUENTIAL, AT_100_MS if delay_ms == 100 else None), (AT_ONCE, 1.0)):
            board.add(
                Comparison(
                    name=f"whole file, {transport}, {delay_ms} ms, {name}",
                    unit="s",
                    baseline_name=baseline,
                    ours=[clock for clock, _ in spent[name]],
                    baseline=[clock for clock, _ in spent[baseline]],
                    at_most=at_most,
                    notes={"size_bytes": size},
                )
            )
    if delay_ms == 0:
        board.add(
            Comparison(
                name=f"client CPU of a whole file, {transport}",
                unit="s",
                baseline_name=SEQUENTIAL,
                ours=[cpu for _, cpu in spent["defaults"]],
                baseline=[cpu for _, cpu in spent[SEQUENTIAL]],
                notes={"size_bytes": size},
            )
        )
