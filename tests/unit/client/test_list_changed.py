"""Word of a changed list of tools, from real servers, over each transport and in both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from mcp.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, ListToolsResult

from playhead.client import Session, connect
from playhead.client.session.list_changed import RETRY_SECONDS
from playhead.errors import SessionLostError
from tests.servers.counted_http import counted_http
from tests.servers.raw_http import Exchange, Handler, raw_http
from tests.servers.sample import SAMPLE_COMMAND, sample_server

pytestmark = pytest.mark.filterwarnings(
    # The SDK leaves an event stream at the answer; the libraries' inner generators go to trio's collector.
    "ignore:Async generator 'httpcore2:ResourceWarning",
    "ignore:Async generator 'httpx2:ResourceWarning",
)

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


async def test_nothing_is_subscribed_without_a_listener() -> None:
    listening: list[str] = []

    async def handle(exchange: Exchange) -> None:
        listening.append(exchange.method)
        if exchange.method == "tools/list":
            await exchange.result(
                {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            )
        else:
            await exchange.error(-32601, "Method not found")

    async with raw_http(handle) as server, connect(server.url, mode="2026-07-28") as session:
        await session.list_tools()
        await session.list_tools()
        assert "subscriptions/listen" not in listening
        changes = session.tool_list_changes()
        with trio.fail_after(PATIENCE):
            while "subscriptions/listen" not in listening:
                await session.list_tools()
        # Refused: never asked again, and silent.
        await session.list_tools()
        assert listening.count("subscriptions/listen") == 1
        with pytest.raises(trio.WouldBlock):
            changes.receive_nowait()


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


async def test_a_server_that_drops_every_subscription_is_left_in_peace(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tries = 0

    async def listen(_context: Any, _params: Any) -> Any:
        nonlocal tries
        tries += 1
        raise MCPError(INTERNAL_ERROR, "not now")

    async def tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[])

    server: Server[Any] = Server("busy", on_list_tools=tools, on_subscriptions_listen=listen)
    async with connect(server, mode="2026-07-28") as session:
        changes = session.tool_list_changes()
        await trio.sleep(3600)
        assert tries == 1 + len(RETRY_SECONDS)
        with pytest.raises(trio.WouldBlock):
            changes.receive_nowait()


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
