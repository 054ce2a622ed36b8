"""Notice of a changed list of tools, from real servers over each transport, and from a scripted one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
import trio.testing
from mcp.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp_types import ListToolsResult

from playhead.client import Session, connect
from playhead.client.session.list_changed import (
    ACKNOWLEDGED,
    CANCELLED,
    RETRY_SECONDS,
    TOOLS_CHANGED,
    ToolListChanges,
)
from playhead.errors import ConnectionLostError, PlayheadError, ServerError, SessionLostError
from playhead.limits import Limits
from playhead.protocol.revisions import SUBSCRIPTION_META
from tests.servers.counted_http import counted_http
from tests.servers.raw_http import Exchange, Handler, raw_http
from tests.servers.sample import SAMPLE_COMMAND, sample_server

MODES = ["auto", "legacy", "2026-07-28"]
PLACES = ["process", "http", "memory"]
PATIENCE = 20.0


@asynccontextmanager
async def sample(place: str, mode: str) -> AsyncIterator[Session]:
    if place == "http":
        async with (
            counted_http(sample_server(), json_response=False) as server,
            connect(server.url, mode=mode) as session,
        ):
            yield session
    elif place == "process":
        async with connect(SAMPLE_COMMAND, mode=mode) as session:
            yield session
    else:
        async with connect(sample_server(), mode=mode) as session:
            yield session


async def grown(session: Session, changes: trio.MemoryReceiveChannel[None]) -> None:
    """Add tools to the server until a change is reported: a subscription takes a moment to begin."""
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(grow_for_ever, session)
            await changes.receive()
            nursery.cancel_scope.cancel()


async def grow_for_ever(session: Session) -> None:
    while True:
        await session.call_tool("grow")


@pytest.mark.requirement("MCP-23")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", PLACES)
async def test_a_change_reaches_every_subscriber(place: str, mode: str) -> None:
    async with sample(place, mode) as session:
        first, second = session.tool_list_changes(), session.tool_list_changes()
        before = len(await session.list_tools())
        await grown(session, first)
        assert len(await session.list_tools()) > before
        with trio.fail_after(PATIENCE):
            await second.receive()


@pytest.mark.parametrize("mode", MODES)
async def test_changes_that_nobody_took_are_one_item(mode: str) -> None:
    async with sample("memory", mode) as session:
        changes, witness = session.tool_list_changes(), session.tool_list_changes()
        await grown(session, witness)
        await session.call_tool("grow", {"times": 50})
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert changes.statistics().current_buffer_used == 1


async def test_a_channel_that_was_closed_is_forgotten_and_the_others_end_with_the_session() -> None:
    async with sample("memory", "legacy") as session:
        left, kept = session.tool_list_changes(), session.tool_list_changes()
        await left.aclose()
        await grown(session, kept)
    assert [item async for item in kept] in ([], [None])
    with trio.fail_after(5):
        assert [item async for item in session.tool_list_changes()] == []


async def test_a_subscription_that_was_lost_is_made_again_and_that_is_an_item(
    autojump_clock: trio.testing.MockClock,
) -> None:
    handlers: list[ListenHandler] = []

    async def listen(context: Any, params: Any) -> Any:
        handlers.append(ListenHandler(InMemorySubscriptionBus()))
        return await handlers[-1](context, params)

    async def tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[])

    server: Server[Any] = Server("forgetful", on_list_tools=tools, on_subscriptions_listen=listen)
    async with connect(server, mode="2026-07-28") as session:
        changes = session.tool_list_changes()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.WouldBlock):
            changes.receive_nowait()
        handlers[0].close()
        await changes.receive()
        assert len(handlers) == 2


async def test_a_new_connection_is_an_item_since_nobody_knows_what_was_missed() -> None:
    async with (
        raw_http(forgets_once(), session="s") as server,
        connect(server.url, mode="legacy") as session,
    ):
        changes = session.tool_list_changes()
        with pytest.raises(SessionLostError):
            await session.call_tool("x")
        with trio.fail_after(PATIENCE):
            await changes.receive()


def forgets_once() -> Handler:
    forgotten = False

    async def handle(exchange: Exchange) -> None:
        nonlocal forgotten
        if exchange.method != "tools/call" or forgotten:
            await exchange.error(-32601, "Method not found")
        else:
            forgotten = True
            await exchange.error(-32600, "Session not found", status=404)

    return handle


# --- a scripted connection of revision 2026-07-28 ----------------------------------------------------


@dataclass(slots=True, eq=False)
class Scripted:
    """Answers each `subscriptions/listen` when the test says so."""

    changes: ToolListChanges
    protocol_version: str = "2026-07-28"
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    began: list[float] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    ends: trio.Event = field(default_factory=trio.Event)
    error: PlayheadError | None = None

    async def listen(self, request_id: str, params: Mapping[str, Any]) -> object:
        assert params == {"notifications": {"toolsListChanged": True}}
        self.ids.append(request_id)
        self.began.append(trio.current_time())
        try:
            await self.ends.wait()
        except trio.Cancelled:
            self.cancelled.append(request_id)
            raise
        if self.error is not None:
            raise self.error
        return {}

    def notify(self, method: str, name: object = None, **params: object) -> None:
        meta = {} if name is None else {"_meta": {SUBSCRIPTION_META: name}}
        self.changes.on_notification(method, {**meta, **params})

    def acknowledge(self, name: str, **accepted: object) -> None:
        self.notify(ACKNOWLEDGED, name, notifications=accepted or {"toolsListChanged": True})


@asynccontextmanager
async def scripted(
    *, renewed: bool = False, capabilities: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[Scripted, trio.MemoryReceiveChannel[None]]]:
    changes = ToolListChanges(Limits(tool_seconds=60))
    connection = Scripted(changes, capabilities=capabilities or {})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: changes.follow(connection, renewed=renewed))
        await trio.testing.wait_all_tasks_blocked()
        assert connection.ids == []  # nobody wants to know
        items = changes.subscribe()
        await trio.testing.wait_all_tasks_blocked()
        yield connection, items
        nursery.cancel_scope.cancel()


def taken(items: trio.MemoryReceiveChannel[None]) -> bool:
    try:
        items.receive_nowait()
    except trio.WouldBlock:
        return False
    return True


async def test_only_what_the_subscription_was_promised_is_a_change() -> None:
    async with scripted() as (server, items):
        (name,) = server.ids
        assert name.startswith("listen-")
        server.notify(TOOLS_CHANGED, name)
        assert not taken(items)  # before the acknowledgement
        server.notify(ACKNOWLEDGED, name, notifications=None)
        server.notify(TOOLS_CHANGED, name)
        assert not taken(items)  # that was no acknowledgement
        server.acknowledge(name)
        assert not taken(items)
        others: list[object] = ["listen-0", 1, [], {}]
        for other in others:
            server.notify(TOOLS_CHANGED, other)
        server.notify("notifications/prompts/list_changed", name)
        assert not taken(items)
        server.notify(TOOLS_CHANGED, name)
        server.notify(TOOLS_CHANGED, name)
        assert taken(items)
        assert not taken(items)


async def test_a_change_that_was_not_accepted_is_none() -> None:
    async with scripted() as (server, items):
        server.acknowledge(server.ids[0], promptsListChanged=True)
        server.acknowledge(server.ids[0])  # the first one counts
        server.notify(TOOLS_CHANGED, server.ids[0])
        assert not taken(items)


async def test_a_subscription_has_no_deadline_once_it_is_acknowledged(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as (server, items):
        server.acknowledge(server.ids[0])
        await trio.sleep(86_000)
        server.notify(TOOLS_CHANGED, server.ids[0])
        assert taken(items)
        assert len(server.ids) == 1


async def test_one_that_is_not_acknowledged_in_time_is_cancelled_and_sent_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as (server, items):
        await trio.sleep(60 + RETRY_SECONDS[0])
        await trio.testing.wait_all_tasks_blocked()
        first, second = server.ids
        assert server.cancelled == [first]
        server.acknowledge(first)
        assert not taken(items)
        server.acknowledge(second)
        assert taken(items)  # a change may have been missed


async def test_the_servers_cancellation_ends_it_and_it_is_sent_again_under_another_name(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as (server, items):
        server.acknowledge(server.ids[0])
        server.notify(CANCELLED, requestId="listen-0")
        server.notify(CANCELLED, requestId=server.ids[0])
        await trio.sleep(RETRY_SECONDS[0])
        await trio.testing.wait_all_tasks_blocked()
        assert len(set(server.ids)) == 2
        assert not taken(items)
        server.acknowledge(server.ids[1])
        assert taken(items)


@pytest.mark.parametrize(
    "error", [None, ConnectionLostError("gone"), ServerError("no", code=-32603)], ids=["end", "lost", "error"]
)
async def test_the_waits_grow_to_their_end(
    error: PlayheadError | None, autojump_clock: trio.testing.MockClock
) -> None:
    async with scripted() as (server, items):
        server.error = error
        server.ends.set()
        await trio.sleep(3600)
        waits = [after - before for before, after in zip(server.began, server.began[1:], strict=False)]
        assert waits == list(RETRY_SECONDS)
        assert not taken(items)


async def test_after_a_good_subscription_the_waits_begin_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as (server, _items):
        for count in range(1, 20):
            assert len(server.ids) == count
            server.acknowledge(server.ids[-1])
            await trio.sleep(100)
            server.notify(CANCELLED, requestId=server.ids[-1])
            await trio.sleep(RETRY_SECONDS[0])
            await trio.testing.wait_all_tasks_blocked()


async def test_a_server_that_knows_no_subscriptions_is_not_asked_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as (server, _items):
        server.error = ServerError("no", code=-32601)
        server.ends.set()
        await trio.sleep(3600)
        assert len(server.ids) == 1


async def test_a_server_that_promises_no_notifications_is_not_asked() -> None:
    async with scripted(capabilities={"tools": {"listChanged": False}}) as (server, _items):
        assert server.ids == []
    async with scripted(capabilities={"tools": {"listChanged": True}}) as (server, _items):
        assert len(server.ids) == 1


async def test_on_a_new_connection_the_acknowledgement_is_an_item() -> None:
    async with scripted(renewed=True) as (server, items):
        assert not taken(items)
        server.acknowledge(server.ids[0])
        assert taken(items)


async def test_while_a_connection_is_replaced_both_have_their_subscription() -> None:
    async with scripted() as (old, items), trio.open_nursery() as nursery:
        new = Scripted(old.changes)
        nursery.start_soon(lambda: old.changes.follow(new, renewed=True))
        await trio.testing.wait_all_tasks_blocked()
        old.acknowledge(old.ids[0])
        old.notify(TOOLS_CHANGED, old.ids[0])
        assert taken(items)
        old.ends.set()
        await trio.testing.wait_all_tasks_blocked()
        new.acknowledge(new.ids[0])
        assert taken(items)
        new.notify(TOOLS_CHANGED, new.ids[0])
        assert taken(items)
        nursery.cancel_scope.cancel()
