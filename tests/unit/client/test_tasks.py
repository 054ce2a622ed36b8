"""Tools that run as a task: called, watched, fetched and cancelled, and the caller sees only the result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
import trio.testing

from playhead.client import Session, connect
from playhead.client.session.tool_calls import call_as_task
from playhead.errors import DeadlineError, ProtocolError, ServerError
from playhead.limits import Limits
from tests.servers.raw_http import Exchange, raw_http

TASKS: dict[str, object] = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
TOOLS = [
    {"name": "slow", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}},
    {"name": "quick", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}},
]
RESULT: dict[str, object] = {"content": [{"type": "text", "text": "owls"}]}


@dataclass(slots=True)
class Server:
    """Answers one task; `states` are what `tasks/get` says one after the other, the last for ever."""

    states: list[object]
    result: dict[str, object] | None = None
    interval: int = 1
    calls: list[dict[str, object]] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    asked: trio.Event = field(default_factory=trio.Event)

    async def handle(self, exchange: Exchange) -> None:
        self.methods.append(exchange.method)
        params = exchange.message.get("params") or {}
        match exchange.method:
            case "tools/list":
                await exchange.result({"tools": TOOLS})
            case "tools/call":
                self.calls.append(params)
                await exchange.result(RESULT if "task" not in params else {"task": self._state()})
            case "tasks/get":
                self.asked.set()
                await exchange.result(self._state())
            case "tasks/result" if self.result is not None:
                await exchange.result(self.result)
            case "tasks/cancel":
                await exchange.result(self._state())
            case _:
                await exchange.error(-32603, "the owls flew away")

    def _state(self) -> dict[str, object]:
        status = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return {"taskId": "t1", "status": status, "pollInterval": self.interval, "ttl": None}


@asynccontextmanager
async def talking_to(server: Server, *, limits: Limits | None = None) -> AsyncIterator[Session]:
    async with raw_http(server.handle) as raw:
        raw.capabilities = TASKS
        async with connect(raw.url, mode="legacy", limits=limits or Limits()) as session:
            yield session


async def test_a_tool_that_needs_a_task_gives_its_result_like_any_other() -> None:
    server = Server(["working", "working", "completed"], RESULT)
    async with talking_to(server) as session:
        assert (await session.call_tool("slow", {"topic": "owls"})).text == "owls"
    assert server.calls[0]["arguments"] == {"topic": "owls"}
    assert server.methods == ["tools/list", "tools/call", "tasks/get", "tasks/get", "tasks/result"]


async def test_a_tool_that_need_not_run_as_a_task_does_not() -> None:
    server = Server(["working"])
    async with talking_to(server) as session:
        assert (await session.call_tool("quick")).text == "owls"
        assert (await session.call_tool("quick")).text == "owls"
    assert all("task" not in call for call in server.calls)
    assert server.methods == ["tools/list", "tools/call", "tools/call"]


async def test_a_task_that_fails_gives_the_servers_own_error() -> None:
    async with talking_to(Server(["working", "failed"])) as session:
        with pytest.raises(ServerError, match="the owls flew away"):
            await session.call_tool("slow")


async def test_a_task_that_never_ends_is_cancelled_at_the_limit() -> None:
    server = Server(["working"])
    async with talking_to(server, limits=Limits(tool_total_seconds=0.2)) as session:
        with pytest.raises(DeadlineError, match=r"Limits\.tool_total_seconds"):
            await session.call_tool("slow", timeout=0.1)
    assert server.methods[-1] == "tasks/cancel"


async def test_cancelling_the_call_cancels_the_task() -> None:
    server = Server(["working"])
    async with talking_to(server) as session, trio.open_nursery() as nursery:
        nursery.start_soon(session.call_tool, "slow")
        await server.asked.wait()
        nursery.cancel_scope.cancel()
    assert server.methods[-1] == "tasks/cancel"


async def test_an_answer_without_a_task_is_a_protocol_error() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.result({"tools": TOOLS} if exchange.method == "tools/list" else {"task": {}})

    async with raw_http(handle) as raw:
        raw.capabilities = TASKS
        async with connect(raw.url, mode="legacy") as session:
            with pytest.raises(ProtocolError, match="taskId"):
                await session.call_tool("slow")


@pytest.mark.parametrize("interval", [-1, 0, 10**400])
async def test_an_interval_that_no_clock_knows_is_kept_within_bounds(
    interval: int, autojump_clock: trio.testing.MockClock
) -> None:
    server = Server(["working", "completed"], result=RESULT, interval=interval)
    async with talking_to(server) as session:
        began = trio.current_time()
        assert (await session.call_tool("slow")).text == "owls"
        assert trio.current_time() - began <= 11


@pytest.mark.parametrize(
    ("suggested", "seconds"),
    [({}, 1), ("2000", 1), (True, 1), (None, 1), (2500, 2.5), (62.5, 0.0625), (-1, 0.05), (10**400, 10)],
    ids=["absent", "a string", "a boolean", "null", "2.5 s", "a float", "negative", "too long"],
)
async def test_a_task_is_polled_at_the_servers_interval_within_bounds_or_each_second(
    suggested: object, seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    task = {"taskId": "t1", "status": "working"} | ({} if suggested == {} else {"pollInterval": suggested})
    polls: list[float] = []

    async def send(method: str, params: object) -> dict[str, object]:
        if method == "tools/call":
            return {"task": task}
        if method == "tasks/get":
            polls.append(trio.current_time() - began)
            return task if len(polls) < 3 else {**task, "status": "completed"}
        return RESULT

    began = trio.current_time()
    result = await call_as_task(send, name="slow", arguments=None, total_seconds=60, server="it")
    assert result == RESULT
    assert polls == pytest.approx([seconds, 2 * seconds, 3 * seconds])
