"""The state graph of a check, and a runner for it.

Nodes are coroutines from the state to an update of it; each has one edge, to a node or to a choice. The graph
has two stages, because the tools of a server are known only after discovery:

    discovery:  check_mcp_status ─→ discover_tools ─→ END        (END if the server is unavailable)
    testing:    test_<tool> ─→ … ─→ test_resources ─→ test_prompts ─→ generate_report ─→ END
                (quick: generate_report ─→ END)

Every runner of a `Graph` produces the same report: `run_graph` here, `check.langgraph` under LangGraph.
"""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Protocol, TypedDict

import trio

from playhead.check.results import Report

END: Final = "END"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An edge that depends on the state."""

    choose: Callable[[State], str]
    targets: tuple[str, ...]
    """All possible results of `choose`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes by name, the first one, and the edge of each."""

    nodes: Mapping[str, Node]
    first: str
    edges: Mapping[str, str | Choice]


class Runner(Protocol):
    """Run a graph from `first` to `END` and return the last state."""

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

    def reached(state: State) -> str:
        return "discover_tools" if state["mcp_status"] == "available" else END

    return Graph(
        nodes={"check_mcp_status": steps.check_mcp_status, "discover_tools": steps.discover_tools},
        first="check_mcp_status",
        edges={
            "check_mcp_status": Choice(choose=reached, targets=("discover_tools", END)),
            "discover_tools": END,
        },
    )


def reporting_graph(steps: Steps) -> Graph:
    """Return the second stage of a quick check, which calls nothing."""
    return Graph(
        nodes={"generate_report": steps.generate_report},
        first="generate_report",
        edges={"generate_report": END},
    )


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
    nodes |= fixed
    names = list(nodes)
    return Graph(nodes=nodes, first=names[0], edges=dict(zip(names, [*names[1:], END], strict=True)))


def following(graph: Graph, name: str, state: State) -> str:
    """Return the node after `name`, or END."""
    edge = graph.edges[name]
    return edge if isinstance(edge, str) else edge.choose(state)


def merged(state: State, update: Update) -> State:
    """Return `state` with `update` applied."""
    after = State(**(state | update))
    after["messages"] = [*state["messages"], *update.get("messages", [])]
    return after


async def run_graph(graph: Graph, state: State) -> State:
    """Run the nodes one after the other, without LangGraph. Cancelling cancels the running node."""
    name = graph.first
    while name != END:
        await trio.lowlevel.checkpoint()
        state = merged(state, await graph.nodes[name](state))
        name = following(graph, name, state)
    return state
