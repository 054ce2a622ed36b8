"""Time from `play(link)` on a connected session to the first PCM frame at the null sink.

The server delays each answer by the latency. Over 10 Mbit/s the baseline is the reference: a whole page of
100 KiB, then the decoder (the cost of its sink is not counted). On a link without a rate limit nothing can be
gained on the baseline, so the bound is on the time added to the latency.
"""

from __future__ import annotations

from math import inf

import pytest
import trio

from benches.baselines import first_audio_seconds, link_of, sdk_client
from benches.board import Board, Comparison
from benches.music import encoded_music
from benches.peers import TEN_MBIT, TRANSPORTS, Target, serving
from playhead.client import Session, connect
from playhead.playback.player import Player
from playhead.playback.sinks.null import NullSink
from playhead.playback.state import ItemError

ROUNDS = 7
BOUNDS = {20: 0.7, 100: 0.85}
ADDED_SECONDS = 0.015


async def play_to_first_frame(session: Session) -> float:
    (link,) = (await session.call_tool("link")).links
    async with Player(NullSink()) as player:
        events = player.events()
        await player.play(link)
        async for event in events:
            if isinstance(event, ItemError):
                raise event.error
            first = player.snapshot().first_audio_seconds
            if first is not None:
                return first
    raise AssertionError("the player ended without a frame")


async def measure(target: Target, rounds: int) -> tuple[list[float], list[float]]:
    ours, theirs = [], []
    with trio.fail_after(120):
        async with sdk_client(target) as client, connect(target) as session:
            link = await link_of(client)
            for _ in range(rounds + 1):
                theirs.append(await first_audio_seconds(client, link))
                ours.append(await play_to_first_frame(session))
    return ours[1:], theirs[1:]  # the first round pays for imports and buffers


@pytest.mark.parametrize("delay_ms", [20, pytest.param(100, marks=pytest.mark.full_run)])
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_first_audio(transport: str, delay_ms: int, board: Board) -> None:
    options = ("--file", encoded_music(), "--mime", "audio/mpeg", "--delay", delay_ms / 1000)
    rounds = board.rounds(ROUNDS)
    async with serving(transport, *options, rate_bytes_per_second=TEN_MBIT) as target:
        ours, theirs = await measure(target, rounds)
    board.add(
        Comparison(
            name=f"first audio, {transport}, {delay_ms} ms, 10 Mbit/s",
            unit="s",
            baseline_name="sequential 100 KiB loop",
            ours=ours,
            baseline=theirs,
            at_most=BOUNDS[delay_ms],
        )
    )
    async with serving(transport, *options, rate_bytes_per_second=inf) as target:
        ours, _ = await measure(target, rounds)
    allowed = delay_ms / 1000 + ADDED_SECONDS
    board.add(
        Comparison(
            name=f"first audio, {transport}, {delay_ms} ms, no limit",
            unit="s",
            baseline_name=f"latency + {ADDED_SECONDS * 1000:.0f} ms",
            ours=ours,
            baseline=[allowed] * len(ours),
            at_most=1.0,
        )
    )
