"""The state graph of a check, and its two runners.

Nodes are coroutines from the state to an update of it. The graph has two stages, because the tools of a
server are known only after discovery:

    discovery:  check_mcp_status ─→ discover_tools ─→ END        (END if the server is unavailable)
    testing:    test_<tool> ─→ … ─→ test_resources ─→ test_prompts ─→ generate_report ─→ END
                (quick: generate_report ─→ END)

Both runners produce the same report: `run_graph` needs no dependency, and `run_under_langgraph` runs the same
nodes under LangGraph. LangGraph's asynchronous interface needs asyncio, so its synchronous `invoke` runs in a
worker thread, and the trio thread runs each node that it calls, in a nursery of the caller. So nodes are
cancelled with the caller. The worker thread then ends, because its next node raises an error.
"""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, TypedDict, cast

import trio

from playhead.check.results import Report
from playhead.concurrency import unwrap_exception_group
from playhead.extras import require_extra

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

McpStatus = Literal["unknown", "available", "unavailable"]


class State(TypedDict):
    """The state passed between nodes. `messages` grows; every other key is replaced."""

    messages: Annotated[list[str], operator.add]
    mcp_status: McpStatus
    available_tools: list[str]
    current_task: str
    result: Report | None
    error: str | None


class Update(TypedDict, total=False):
    """The changes made by a node."""

    messages: list[str]
    mcp_status: McpStatus
    available_tools: list[str]
    current_task: str
    result: Report | None
    error: str | None


Node = Callable[[State], Awaitable[Update]]


Graph = Mapping[str, Node]
"""The nodes by name, in order. After each node, the graph ends if the server is unavailable."""


class Runner(Protocol):
    """Run the nodes of a graph in order and return the last state."""

    async def __call__(self, graph: Graph, state: State) -> State: ...


class Steps(Protocol):
    """The implementation of the nodes (`check.run`)."""

    async def check_mcp_status(self, state: State) -> Update: ...
    async def discover_tools(self, state: State) -> Update: ...
    def test_tool(self, name: str) -> Node: ...
    async def test_resources(self, state: State) -> Update: ...
    async def test_prompts(self, state: State) -> Update: ...
    async def generate_report(self, state: State) -> Update: ...


def first_state() -> State:
    """Return the initial state."""
    return State(
        messages=[],
        mcp_status="unknown",
        available_tools=[],
        current_task="",
        result=None,
        error=None,
    )


def discovery_graph(steps: Steps) -> Graph:
    """Return the first stage: connect, and list the tools."""
    return {"check_mcp_status": steps.check_mcp_status, "discover_tools": steps.discover_tools}


def reporting_graph(steps: Steps) -> Graph:
    """Return the second stage of a quick check, which calls nothing."""
    return {"generate_report": steps.generate_report}


def testing_graph(steps: Steps, tools: Sequence[str]) -> Graph:
    """Return the second stage of a full check: one node per tool, in the server's order, then the rest.

    `tools` are distinct names.
    """
    fixed: dict[str, Node] = {
        "test_resources": steps.test_resources,
        "test_prompts": steps.test_prompts,
        "generate_report": steps.generate_report,
    }
    nodes: dict[str, Node] = {}
    for tool in tools:
        name = f"test_{tool}"
        while name in fixed or name in nodes:  # for example, a tool called "resources"
            name += "_"
        nodes[name] = steps.test_tool(tool)
    return nodes | fixed


def merge(state: State, update: Update) -> State:
    """Return `state` with `update` applied."""
    after = State(**(state | update))
    after["messages"] = [*state["messages"], *update.get("messages", [])]
    return after


async def run_graph(graph: Graph, state: State) -> State:
    """Run the nodes one after the other, without LangGraph. Cancelling cancels the running node."""
    for node in graph.values():
        await trio.lowlevel.checkpoint()
        state = merge(state, await node(state))
        if state["mcp_status"] == "unavailable":
            break
    return state


# --- under LangGraph ----------------------------------------------------------------------------------------

_RESERVED: Final = str.maketrans({":": "%3A", "|": "%7C", "%": "%25"})
"""Escapes the characters that LangGraph reserves, since a tool's name may have them."""


class _StoppedError(Exception):
    """A node did not complete, because the check was cancelled."""


async def run_under_langgraph(graph: Graph, state: State) -> State:
    """Run `graph` under LangGraph. Raises `UsageError` if it isn't installed.

    Cancelling cancels the running node, and returns when LangGraph's thread has ended.
    """
    require_extra("langgraph", "checks with --graph langgraph")
    final: dict[str, Any] | None = None
    with unwrap_exception_group():
        async with trio.open_nursery() as nursery:
            compiled = _compiled(graph, _Bridge(nursery))
            config: Any = {"recursion_limit": len(graph) + 1}

            def invoke() -> dict[str, Any] | None:
                try:
                    return compiled.invoke(state, config)
                except _StoppedError:
                    return None  # the node's own error, or the cancellation, is raised by the nursery

            final = await trio.to_thread.run_sync(invoke)
    assert final is not None, "a stopped node ends the nursery with its own error"
    return cast("State", final)  # LangGraph returns the keys of its schema


class _Step(Protocol):
    """A node as LangGraph calls it, synchronously and in a thread."""

    def __call__(self, state: State) -> Update: ...


class _Bridge:
    """Runs nodes in a nursery on behalf of LangGraph's threads."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._token = trio.lowlevel.current_trio_token()

    def step(self, node: Node) -> _Step:
        def call(state: State) -> Update:
            return trio.from_thread.run(self._run, node, state, trio_token=self._token)

        return call

    async def _run(self, node: Node, state: State) -> Update:
        # This runs in a system task, which only the end of the program cancels.
        update: Update | None = None
        over = trio.Event()

        async def work() -> None:
            nonlocal update
            try:
                update = await node(state)
            finally:
                over.set()

        self._nursery.start_soon(work)
        await over.wait()
        if update is None:
            raise _StoppedError
        return update


def _compiled(graph: Graph, bridge: _Bridge) -> CompiledStateGraph[State, None, State, State]:
    from langgraph.graph import END, START, StateGraph

    def edge_to(following: str) -> Callable[[State], str]:
        return lambda state: END if state["mcp_status"] == "unavailable" else following

    builder = StateGraph(State)
    names = [name.translate(_RESERVED) for name in graph]
    for name, node in zip(names, graph.values(), strict=True):
        builder.add_node(name, bridge.step(node))
    builder.add_edge(START, names[0])
    for name, following in pairwise([*names, END]):
        builder.add_conditional_edges(name, edge_to(following), [following, END])
    return builder.compile()
