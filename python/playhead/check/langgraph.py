"""Run the graph of a check under LangGraph, with the same nodes and edges.

The asynchronous interface of LangGraph needs asyncio. Its synchronous `invoke` runs here in a worker thread,
and each node it calls is run by the trio thread, in a nursery of the caller. So nodes are cancelled with the
caller, and the thread then ends by itself, because every further node is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import trio

from playhead.check.graph import END, Choice, Graph, Node, State, Update
from playhead.concurrency import unwrap_exception_group
from playhead.extras import require_extra

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

_RESERVED: Final = str.maketrans({":": "%3A", "|": "%7C", "%": "%25"})
"""Reserved by LangGraph, but allowed in a tool's name."""


class _StoppedError(Exception):
    """A node did not complete, because the check is cancelled."""


async def run_under_langgraph(graph: Graph, state: State) -> State:
    """A `Runner`: run `graph` under LangGraph. Raises `UsageError` if it isn't installed.

    Cancelling cancels the running node, and returns when LangGraph's thread has ended.
    """
    require_extra("langgraph", "checks with --graph langgraph")
    final: dict[str, Any] | None = None
    with unwrap_exception_group():
        async with trio.open_nursery() as nursery:
            compiled = _compiled(graph, _Bridge(nursery))
            config: Any = {"recursion_limit": len(graph.nodes) + 1}

            def invoke() -> dict[str, Any] | None:
                try:
                    return compiled.invoke(state, config)
                except _StoppedError:
                    return None  # the node's own error, or the cancellation, is raised by the nursery

            final = await trio.to_thread.run_sync(invoke)
    assert final is not None, "a stopped node ends the nursery with its own error"
    return cast("State", final)  # LangGraph returns the keys of its schema


class _Step(Protocol):
    """A node as LangGraph calls it: synchronously, in a thread."""

    def __call__(self, state: State) -> Update: ...


class _Bridge:
    """Run nodes in a nursery for LangGraph's threads."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._token = trio.lowlevel.current_trio_token()

    def step(self, node: Node) -> _Step:
        def call(state: State) -> Update:
            return trio.from_thread.run(self._run, node, state, trio_token=self._token)

        return call

    async def _run(self, node: Node, state: State) -> Update:
        # This is a system task, which only the end of the program cancels.
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
    import langgraph.graph as langgraph

    def name_of(name: str) -> str:
        return langgraph.END if name == END else name.translate(_RESERVED)

    def chooser(choice: Choice) -> Callable[[State], str]:
        return lambda state: name_of(choice.choose(state))

    builder = langgraph.StateGraph(State)
    for name, node in graph.nodes.items():
        builder.add_node(name_of(name), bridge.step(node))
    builder.add_edge(langgraph.START, name_of(graph.first))
    for name, edge in graph.edges.items():
        if isinstance(edge, str):
            builder.add_edge(name_of(name), name_of(edge))
        else:
            builder.add_conditional_edges(name_of(name), chooser(edge), [name_of(to) for to in edge.targets])
    return builder.compile()
