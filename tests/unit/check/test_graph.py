"""The state graph of a check, and that it gives the same under LangGraph."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from playhead.check.graph import (
    Graph,
    Node,
    Runner,
    State,
    Update,
    discovery_graph,
    first_state,
    merge,
    reporting_graph,
    run_graph,
    run_under_langgraph,
)
from playhead.check.graph import (
    testing_graph as graph_of,
)
from playhead.errors import UsageError

RUNNERS = pytest.mark.parametrize("runner", [run_graph, run_under_langgraph])


class Recorded:
    """Steps that say that they were made."""

    def __init__(self, *, available: bool = True, tools: Sequence[str] = ()) -> None:
        self.made: list[str] = []
        self._available = available
        self._tools = list(tools)

    async def check_mcp_status(self, state: State) -> Update:
        status = "available" if self._available else "unavailable"
        return self._step("check_mcp_status") | Update(
            mcp_status="available" if status == "available" else "unavailable",
            error=None if self._available else "nobody there",
        )

    async def discover_tools(self, state: State) -> Update:
        return self._step("discover_tools") | Update(available_tools=self._tools)

    def test_tool(self, name: str) -> Node:
        async def test(state: State) -> Update:
            return self._step(name)

        return test

    async def test_resources(self, state: State) -> Update:
        return self._step("resources!")

    async def test_prompts(self, state: State) -> Update:
        return self._step("prompts!")

    async def generate_report(self, state: State) -> Update:
        return self._step("report")

    def _step(self, name: str) -> Update:
        self.made.append(name)
        return Update(current_task=name, messages=[f"did {name}"])


@RUNNERS
async def test_an_available_server_is_asked_for_its_tools(runner: Runner) -> None:
    steps = Recorded(tools=["add", "echo"])
    state = await runner(discovery_graph(steps), first_state())
    assert steps.made == ["check_mcp_status", "discover_tools"]
    assert (state["mcp_status"], state["available_tools"]) == ("available", ["add", "echo"])
    assert state["messages"] == ["did check_mcp_status", "did discover_tools"]


@RUNNERS
async def test_a_server_that_is_not_there_ends_the_graph(runner: Runner) -> None:
    steps = Recorded(available=False)
    state = await runner(discovery_graph(steps), first_state())
    assert steps.made == ["check_mcp_status"]
    assert (state["mcp_status"], state["error"]) == ("unavailable", "nobody there")


@RUNNERS
async def test_every_tool_is_tested_in_the_servers_order_then_the_rest(runner: Runner) -> None:
    # Names that LangGraph keeps for itself, and ones that other nodes have.
    tools = ["b:c", "a|b", "100%", "resources", "prompts", "resources_", "__end__", ""]
    steps = Recorded()
    state = await runner(graph_of(steps, tools), first_state())
    assert steps.made == [*tools, "resources!", "prompts!", "report"]
    assert state["messages"] == [f"did {name}" for name in steps.made]
    assert state["current_task"] == "report"


@RUNNERS
async def test_a_quick_check_goes_straight_to_its_report(runner: Runner) -> None:
    steps = Recorded()
    await runner(reporting_graph(steps), first_state())
    assert steps.made == ["report"]


@given(tools=st.lists(st.text(max_size=12), unique=True, max_size=20))
def test_every_tool_has_a_node_of_its_own(tools: list[str]) -> None:
    graph = graph_of(Recorded(), tools)
    assert len(graph) == len(tools) + 3
    assert list(graph)[-3:] == ["test_resources", "test_prompts", "generate_report"]


def test_messages_grow_and_every_other_key_is_replaced() -> None:
    state = merge(first_state(), Update(messages=["one"], current_task="a"))
    state = merge(state, Update(messages=["two"], error="why"))
    assert (state["messages"], state["current_task"], state["error"]) == (["one", "two"], "a", "why")
    assert set(state) == {"messages", "mcp_status", "available_tools", "current_task", "result", "error"}


def graph_with(node: Node) -> Graph:
    return {"only": node}


@RUNNERS
async def test_an_exception_of_a_node_propagates_unchanged(runner: Runner) -> None:
    async def breaks(state: State) -> Update:
        await trio.lowlevel.checkpoint()
        raise UsageError("broken")

    with pytest.raises(UsageError, match="broken"):
        await runner(graph_with(breaks), first_state())


@RUNNERS
async def test_cancelling_ends_the_node_under_way_and_the_run(runner: Runner) -> None:
    begun, ended = trio.Event(), trio.Event()

    async def waits(state: State) -> Update:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
        return Update()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runner, graph_with(waits), first_state())
            await begun.wait()
            nursery.cancel_scope.cancel()
    assert ended.is_set()


async def test_without_langgraph_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langgraph", None)
    with pytest.raises(UsageError, match=r"pip install 'playhead\[langgraph\]'"):
        await run_under_langgraph(reporting_graph(Recorded()), first_state())
