"""The cost of the tool loop per call: 1,000 parallel calls of a tool that answers at once.

The baseline is the shortest loop over the same runner: it reads the pieces of the reply, starts each call in
a nursery behind the same limit, and puts the results in order. It reports nothing, has no budgets, asks for
no approval, and ends at a failing call. The loop is also measured over a hub and an SDK server in this
process, where a call is a round trip, as in a turn with real tools. All of it runs in this process and never
waits, so CPU time is compared.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from mcp.server.mcpserver import MCPServer

from benches.board import Board, Comparison
from playhead.agent.agent import run_turn
from playhead.agent.conversation import (
    CallReady,
    ModelRequest,
    ReplyEnd,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from playhead.agent.events import Event
from playhead.agent.scripted_model import ScriptedModel, call, reply
from playhead.agent.tool_runner import CallOutcome, HubRunner, ToolRunner
from playhead.client.hub import open_hub
from playhead.config.tools import ToolConfigs

CALLS = 1000
PARALLEL = 32
GO = UserMessage(parts=(Text(text="go"),))


class Fast:
    """A tool that answers at its first checkpoint."""

    def specs(self) -> tuple[ToolSpec, ...]:
        return (ToolSpec(name="fast__add", description="", parameters={"type": "object"}),)

    async def call(self, tool_call: ToolCall, *, on_progress: Any, on_media: Any) -> CallOutcome:
        await trio.lowlevel.checkpoint()
        return CallOutcome(result=ToolResult(call_id=tool_call.id, name=tool_call.name, text="ok"))


def model(calls: int) -> ScriptedModel:
    return ScriptedModel([reply(*(call("fast__add", {"a": n}) for n in range(calls))), reply("done")])


async def looped(runner: ToolRunner, calls: int) -> None:
    events: list[Event] = []
    result = await run_turn(model(calls), runner, [GO], on_event=events.append)
    assert result.text == "done"
    assert len(result.outcomes) == calls
    assert len(events) == 3 * calls + 9


async def bare(runner: ToolRunner, calls: int) -> None:
    scripted = model(calls)
    slots = trio.Semaphore(PARALLEL)
    results: dict[str, ToolResult] = {}

    async def ignored(*_: object) -> None:
        pass

    async def run(tool_call: ToolCall) -> None:
        async with slots:
            outcome = await runner.call(tool_call, on_progress=ignored, on_media=ignored)
            results[tool_call.id] = outcome.result

    request = ModelRequest(messages=(GO,), tools=runner.specs())
    async with trio.open_nursery() as nursery, scripted.stream(request) as pieces:
        async for piece in pieces:
            if isinstance(piece, CallReady):
                nursery.start_soon(run, piece.call)
            elif isinstance(piece, ReplyEnd):
                message = piece.message
    results_message = ToolMessage(results=tuple(results[tool_call.id] for tool_call in message.calls))
    request = ModelRequest(messages=(GO, message, results_message), tools=runner.specs())
    async with scripted.stream(request) as pieces:
        async for _ in pieces:
            pass
    assert len(results_message.results) == calls


@asynccontextmanager
async def over_a_hub() -> AsyncIterator[ToolRunner]:
    server: MCPServer = MCPServer("fast", log_level="CRITICAL")

    @server.tool()
    async def add(a: int) -> str:
        return str(a)

    @server.tool()
    async def other(a: int) -> str:
        return str(a)

    async with open_hub({"fast": server}, tool_configs=ToolConfigs()) as hub:
        await hub.connect_all()
        await hub.discover_and_register_all_tools()
        yield HubRunner(hub)


@asynccontextmanager
async def fast() -> AsyncIterator[ToolRunner]:
    yield Fast()


Way = Callable[[ToolRunner, int], Awaitable[None]]


async def microseconds_a_call(way: Way, runner: ToolRunner, calls: int) -> float:
    started = time.process_time_ns()
    await way(runner, calls)
    return (time.process_time_ns() - started) / 1000 / calls


async def measured(runner: ToolRunner, calls: int, rounds: int) -> tuple[list[float], list[float]]:
    ours, theirs = [], []
    await looped(runner, calls)
    for _ in range(rounds):
        ours.append(await microseconds_a_call(looped, runner, calls))
        theirs.append(await microseconds_a_call(bare, runner, calls))
    return ours, theirs


def test_a_thousand_parallel_calls_of_a_fast_tool(board: Board, smoke: bool) -> None:
    calls = 50 if smoke else CALLS

    async def main() -> None:
        async with fast() as runner:
            ours, theirs = await measured(runner, calls, board.rounds(9))
        board.add(
            Comparison(
                name="1,000 parallel calls through the tool loop, a call",
                unit="us",
                baseline_name="a bare loop over the same runner",
                ours=ours,
                baseline=theirs,
                at_most=4.0,
                notes={"added us a call": sum(ours) / len(ours) - sum(theirs) / len(theirs)},
            )
        )

    trio.run(main)


def test_a_thousand_parallel_calls_of_a_real_server(board: Board, smoke: bool) -> None:
    calls = 50 if smoke else CALLS

    async def main() -> None:
        async with over_a_hub() as runner:
            ours, theirs = await measured(runner, calls, board.rounds(5))
        board.add(
            Comparison(
                name="1,000 parallel calls of an SDK server, a call",
                unit="us",
                baseline_name="a bare loop over the same hub",
                ours=ours,
                baseline=theirs,
                at_most=1.5,
            )
        )

    trio.run(main)
