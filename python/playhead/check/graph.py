"""The state graph of a check, and a runner for it.

Nodes are coroutines from the state to what they change in it; each has one edge, to a node or to a choice.
The graph comes in two stages, since a server's tools are known only once it was asked:

    discovery:  check_mcp_status ─→ discover_tools ─→ END        (END at once where nobody answers)
    testing:    test_<tool> ─→ … ─→ test_resources ─→ test_prompts ─→ generate_report ─→ END
                (quick: generate_report ─→ END)

Any runner that honours `Graph` gives the same report: `run_graph` here, `check.langgraph` under LangGraph.
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
    """What the nodes hand on. `messages` grows; every other key is replaced."""

    messages: Annotated[list[str], operator.add]
    mcp_status: McpStatus
    available_tools: list[str]
    current_task: str
    result: Report | None
    error: str | None


class Update(TypedDict, total=False):
    """What a node changes."""

    messages: list[str]
    mcp_status: McpStatus
    available_tools: list[str]
    current_task: str
    result: Report | None
    error: str | None


Node = Callable[[State], Awaitable[Update]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An edge that looks at the state."""

    choose: Callable[[State], str]
    targets: tuple[str, ...]
    """All that `choose` may answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes by name, the one to begin with, and where each leads."""

    nodes: Mapping[str, Node]
    first: str
    edges: Mapping[str, str | Choice]


class Runner(Protocol):
    """Runs a graph from `first` to `END` and gives the last state."""

    async def __call__(self, graph: Graph, state: State) -> State: ...


class Steps(Protocol):
    """The work behind the nodes (`check.run`)."""

    async def check_mcp_status(self, state: State) -> Update: ...
    async def discover_tools(self, state: State) -> Update: ...
    def test_tool(self, name: str) -> Node: ...
    async def test_resources(self, state: State) -> Update: ...
    async def test_prompts(self, state: State) -> Update: ...
    async def generate_report(self, state: State) -> Update: ...


def first_state() -> State:
    """The state before anything was done."""
    return State(
        messages=[],
        mcp_status="unknown",
        available_tools=[],
        current_task="",
        result=None,
        error=None,
    )


def discovery_graph(steps: Steps) -> Graph:
    """Is the server there, and what does it offer?"""

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
    """What follows in a quick check: nothing is called."""
    return Graph(
        nodes={"generate_report": steps.generate_report},
        first="generate_report",
        edges={"generate_report": END},
    )


def testing_graph(steps: Steps, tools: Sequence[str]) -> Graph:
    """One node a tool, in the server's order, then the rest. `tools` are distinct names."""
    fixed: dict[str, Node] = {
        "test_resources": steps.test_resources,
        "test_prompts": steps.test_prompts,
        "generate_report": steps.generate_report,
    }
    nodes: dict[str, Node] = {}
    for tool in tools:
        name = f"test_{tool}"
        while name in fixed or name in nodes:  # of a tool that is called "resources", say
            name += "_"
        nodes[name] = steps.test_tool(tool)
    nodes |= fixed
    names = list(nodes)
    return Graph(nodes=nodes, first=names[0], edges=dict(zip(names, [*names[1:], END], strict=True)))


def following(graph: Graph, name: str, state: State) -> str:
    """The node after `name`, or END."""
    edge = graph.edges[name]
    return edge if isinstance(edge, str) else edge.choose(state)


def merged(state: State, update: Update) -> State:
    """`state` after `update`."""
    after = State(**(state | update))
    after["messages"] = [*state["messages"], *update.get("messages", [])]
    return after


async def run_graph(graph: Graph, state: State) -> State:
    """The runner without LangGraph: one node after the other. Cancelling ends the node under way."""
    name = graph.first
    while name != END:
        await trio.lowlevel.checkpoint()
        state = merged(state, await graph.nodes[name](state))
        name = following(graph, name, state)
    return state
