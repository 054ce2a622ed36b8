"""Subscriptions to a resource that grows: renewed, shared, ended, and left out where they are not offered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import trio
import trio.testing
from mcp.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated

from playhead.client import Session, connect
from playhead.client.session.supervisor import Supervisor

URI = "speech://1"


class Listener:
    def __init__(self) -> None:
        self.notified = 0
        self.notifies: list[bool] = []

    def set_notifies(self, notifies: bool, /) -> None:
        self.notifies.append(notifies)

    def on_notified(self) -> None:
        self.notified += 1


async def no_resources(_context: Any, _params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[])


class Subscribable:
    """A server of 2025-11-25 that records subscriptions."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.session: Any = None
        self.server: Server[Any] = Server(
            "old",
            on_list_resources=no_resources,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
        )

    async def _subscribe(self, context: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
        self.calls.append(f"+ {params.uri}")
        self.session = context.session
        return types.EmptyResult()

    async def _unsubscribe(self, _context: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self.calls.append(f"- {params.uri}")
        return types.EmptyResult()


def supervisor_of(session: Session) -> Supervisor:
    return session._supervisor


@asynccontextmanager
async def following(session: Session, listener: Listener) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor_of(session).updates.follow, URI, listener)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


async def test_streams_of_one_resource_share_a_subscription_until_the_last_one_ends() -> None:
    old, first, second = Subscribable(), Listener(), Listener()
    async with connect(old.server, mode="legacy") as session:
        async with following(session, first):
            async with following(session, second):
                await old.session.send_resource_updated(URI)
                await old.session.send_resource_updated("speech://other")
                await old.session.send_resource_updated(URI + "?start=5")
                await trio.testing.wait_all_tasks_blocked()
            assert (first.notified, second.notified) == (2, 2)
            await trio.testing.wait_all_tasks_blocked()
            assert f"- {URI}" not in old.calls
        await trio.testing.wait_all_tasks_blocked()
    assert old.calls[-1] == f"- {URI}"
    assert old.calls.count(f"- {URI}") == 1
    assert first.notifies == [True, False]


async def test_a_server_that_does_not_offer_subscriptions_gets_none() -> None:
    server: Server[Any] = Server("plain", on_list_resources=no_resources)
    listener = Listener()
    async with connect(server, mode="legacy") as session:
        with trio.fail_after(5):
            await supervisor_of(session).updates.follow(URI, listener)
    assert True not in listener.notifies


async def test_a_subscription_that_the_server_ends_is_made_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bus, handlers = InMemorySubscriptionBus(), list[ListenHandler]()

    async def listen(context: Any, params: Any) -> Any:
        handlers.append(ListenHandler(bus))
        return await handlers[-1](context, params)

    server: Server[Any] = Server("new", on_list_resources=no_resources, on_subscriptions_listen=listen)
    listener = Listener()
    async with connect(server, mode="2026-07-28") as session, following(session, listener):
        handlers[0].close()
        await trio.sleep(2)
        await bus.publish(ResourceUpdated(uri=URI))
        await trio.sleep(0.1)
    assert len(handlers) == 2
    assert listener.notifies[:3] == [True, False, True]
    assert listener.notified == 1
