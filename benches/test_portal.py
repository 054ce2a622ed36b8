"""The cost of a call through a portal, compared with anyio's bare blocking portal in the same run.

The bare portal loses cancellation (`asyncio.wrap_future` does not wait for the trio side) and context
managers; ours may cost 60 µs more per call for them. The calls wait for threads to wake, so time is measured,
in short alternating batches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import trio
from anyio.from_thread import start_blocking_portal

import playhead
from benches.board import Board, Comparison

CALLS = 100
EXTRA_US = 60.0


async def nothing() -> None:
    await trio.lowlevel.checkpoint()


def report(board: Board, name: str, ours: list[float], bare: list[float]) -> None:
    board.add(
        Comparison(
            name=name,
            unit="us",
            baseline_name=f"anyio's bare portal + {EXTRA_US:g} us",
            ours=ours,
            baseline=[each + EXTRA_US for each in bare],
            at_most=1.0,
            notes={"bare us a call": bare},
        )
    )


def test_a_call_from_asyncio(board: Board, smoke: bool) -> None:
    calls = 5 if smoke else CALLS

    async def microseconds(call: Callable[[], Awaitable[None]]) -> float:
        started = time.perf_counter_ns()
        for _ in range(calls):
            await call()
        return (time.perf_counter_ns() - started) / 1000 / calls

    async def main() -> None:
        ours, bare = [], []
        with start_blocking_portal("trio") as plain:
            async with playhead.asyncio_portal() as portal:
                for _ in range(board.rounds(41)):
                    ours.append(await microseconds(lambda: portal.call(nothing)))
                    bare.append(
                        await microseconds(lambda: asyncio.wrap_future(plain.start_task_soon(nothing)))
                    )
        report(board, "a call through the portal from asyncio", ours, bare)

    asyncio.run(main())


def test_a_call_from_a_thread(board: Board, smoke: bool) -> None:
    calls = 5 if smoke else CALLS

    def microseconds(call: Callable[[], None]) -> float:
        started = time.perf_counter_ns()
        for _ in range(calls):
            call()
        return (time.perf_counter_ns() - started) / 1000 / calls

    ours, bare = [], []
    with start_blocking_portal("trio") as plain, playhead.blocking_portal() as portal:
        for _ in range(board.rounds(41)):
            ours.append(microseconds(lambda: portal.call(nothing)))
            bare.append(microseconds(lambda: plain.call(nothing)))
    report(board, "a call through the portal from a thread", ours, bare)
