"""Time to have all of a resource, beside the reference's sequential loop over the same server.

The server waits 0, 20 or 100 ms before each answer, as one does that asks an origin. playhead reads with
its defaults and with 1 MiB pages; all three take turns in each round, and each hashes what it got.
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

from benches.baselines import link_of, pages, sdk_client
from benches.board import Board, Comparison
from benches.peers import TRANSPORTS, serving
from playhead.client import Session, connect
from playhead.limits import MIB
from playhead.stream.options import StreamOptions
from tests.servers.payload import Payload

ROUNDS = 5
BOUNDS_AT_100_MS = {"defaults": 1 / 6, "1 MiB pages": 1 / 15}


async def timed(read: Callable[[], Awaitable[str]], expected: str) -> tuple[float, float]:
    """Seconds on the clock and of this process's CPU."""
    cpu, started = time.process_time(), time.perf_counter()
    got = await read()
    spent = time.perf_counter() - started, time.process_time() - cpu
    assert got == expected, "the bytes differ: a time for the wrong bytes is no time"
    return spent


async def read_sequentially(client: Client, link: types.ResourceLink) -> str:
    digest = hashlib.sha256()
    async for data in pages(client, link):
        digest.update(data)
    return digest.hexdigest()


async def read_ours(session: Session, options: StreamOptions) -> str:
    digest = hashlib.sha256()
    (link,) = (await session.call_tool("link")).links
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
    settings = {"defaults": StreamOptions(), "1 MiB pages": StreamOptions(page_bytes=MIB)}
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ("sequential", *settings)}
    with trio.fail_after(900):
        async with (
            serving(transport, "--size", size, "--delay", delay_ms / 1000) as target,
            sdk_client(target) as client,
        ):
            theirs = await link_of(client)
            async with connect(target) as session:
                for _ in range(rounds):
                    spent["sequential"].append(
                        await timed(partial(read_sequentially, client, theirs), expected)
                    )
                    for name, options in settings.items():
                        spent[name].append(await timed(partial(read_ours, session, options), expected))
    for name in settings:
        board.add(
            Comparison(
                name=f"whole file, {transport}, {delay_ms} ms, {name}",
                unit="s",
                baseline_name="sequential 100 KiB loop",
                ours=[clock for clock, _ in spent[name]],
                baseline=[clock for clock, _ in spent["sequential"]],
                at_most=BOUNDS_AT_100_MS[name] if delay_ms == 100 else None,
                notes={"size_bytes": size},
            )
        )
    if delay_ms == 0:
        board.add(
            Comparison(
                name=f"client CPU of a whole file, {transport}",
                unit="s",
                baseline_name="sequential 100 KiB loop",
                ours=[cpu for _, cpu in spent["defaults"]],
                baseline=[cpu for _, cpu in spent["sequential"]],
                notes={"size_bytes": size},
            )
        )
