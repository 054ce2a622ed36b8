"""Servers that are down, hang, die or refuse to leave: what a hub says of them, and that no other waits."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import trio

from playhead.client.hub import Hub, open_hub
from playhead.client.hub.server import ServerState, ServerStateChanged, ServerStatus
from playhead.config.servers import Restart, ServerConfig
from playhead.config.tools import ToolConfigs
from playhead.errors import ConnectError, ConnectionLostError, TransportError
from playhead.limits import Limits
from playhead.testing.peers import (
    AwaitEnd,
    Exit,
    Expect,
    Handshake,
    Hang,
    IgnoreTerm,
    SendResult,
    Step,
    command,
)
from tests.servers.launch import http_process, pages_command

MORTAL = Path(__file__).parents[1] / "servers" / "mortal.py"
HANGING = ServerConfig(command=tuple(command([Hang()])))


def mortal(name: str, *, restart: Restart = "once") -> ServerConfig:
    return ServerConfig(command=(sys.executable, str(MORTAL), name), restart=restart)


def scripted(*steps: Step) -> ServerConfig:
    """A server that lists the tool `t` and then does `steps`."""
    tools = [{"name": "t", "inputSchema": {"type": "object"}}]
    listing: list[Step] = [Expect(method="tools/list"), SendResult(result={"tools": tools})]
    return ServerConfig(command=tuple(command([Handshake(), *listing, *steps])), mode="legacy")


@asynccontextmanager
async def hub_of(servers: dict[str, ServerConfig], limits: Limits | None = None) -> AsyncIterator[Hub]:
    with trio.fail_after(60):
        async with open_hub(servers, tool_configs=ToolConfigs(), limits=limits or Limits()) as hub:
            yield hub


@asynccontextmanager
async def ready(servers: dict[str, ServerConfig]) -> AsyncIterator[Hub]:
    async with hub_of(servers) as hub:
        for state in await hub.connect_all():
            assert state.status is ServerStatus.CONNECTED, state
        assert not (await hub.discover_and_register_all_tools()).failed
        yield hub


async def pid_of(hub: Hub, server: str) -> int:
    return int((await hub.call_tool((server, "pid"))).result.text)


def processes() -> set[int]:
    """The live children of this process, and theirs."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


@asynccontextmanager
async def watching(hub: Hub) -> AsyncIterator[trio.MemoryReceiveChannel[ServerState]]:
    """The states of the hub's servers, from here on."""
    send, receive = trio.open_memory_channel[ServerState](100)
    async with trio.open_nursery() as nursery:
        events = hub.events()

        async def pass_on() -> None:
            async for event in events:
                if isinstance(event, ServerStateChanged):
                    await send.send(event.state)

        nursery.start_soon(pass_on)
        yield receive
        nursery.cancel_scope.cancel()


# --- coming ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("HUB-01")
async def test_a_server_that_hangs_in_its_handshake_holds_no_other() -> None:
    before = processes()
    async with hub_of({"hanging": HANGING, "live": mortal("live")}) as hub:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hub.connect_all)
            assert (await hub.connect_to_server("live")).status is ServerStatus.CONNECTED
            assert (await hub.call_tool("live__greet")).result.text == "I am live"
            assert hub.states["hanging"].status.value == "connecting"
            with pytest.raises(ConnectError, match=r"'hanging' is not connected \(connecting\)"):
                await hub.call_tool("hanging__t")
            # Given up by hand, and everybody who waits for it hears of it.
            await hub.disconnect_from_server("hanging")
        assert hub.states["hanging"].status.value == "disconnected"
    assert processes() <= before


async def test_a_handshake_has_its_time_and_its_end_is_the_reason() -> None:
    async with hub_of({"hanging": HANGING}, limits=Limits(handshake_seconds=0.2)) as hub:
        (state,) = await hub.connect_all()
        assert state.status is ServerStatus.FAILED
        assert "did not finish the handshake in 0.2 s" in state.reason


async def test_a_caller_who_no_longer_waits_leaves_the_attempt_to_the_hub() -> None:
    async with hub_of({"live": mortal("live")}) as hub:
        with trio.CancelScope() as scope:
            scope.cancel()
            await hub.connect_to_server("live")
        assert scope.cancelled_caught
        assert (await hub.connect_to_server("live")).status is ServerStatus.CONNECTED


async def test_thirty_servers_at_once() -> None:
    before = processes()
    names = [f"s{number}" for number in range(30)]
    async with ready({name: scripted(AwaitEnd()) for name in names}) as hub:
        assert [tool.tool_id for tool in hub.tools] == [f"{name}__t" for name in names]
        assert len(processes() - before) >= 30
    assert processes() <= before


# --- dying -----------------------------------------------------------------------------------------------


async def test_a_server_that_dies_is_lost_at_once_and_the_next_call_brings_it_back() -> None:
    async with ready({"a": mortal("a"), "b": mortal("b")}) as hub, watching(hub) as states:
        os.kill(await pid_of(hub, "a"), signal.SIGKILL)
        lost = await states.receive()
        assert (lost.name, lost.status, lost.tools) == ("a", ServerStatus.LOST, 4)
        assert "SIGKILL" in lost.reason
        assert hub.states["a"].reason == lost.reason
        assert (await hub.call_tool("b__greet")).result.text == "I am b"
        assert (await hub.call_tool("a__greet")).result.text == "I am a"
        assert (await states.receive()).status is ServerStatus.CONNECTED
        assert hub.states["a"].reason == ""


async def test_a_server_that_dies_while_it_is_called_fails_that_call_and_says_why() -> None:
    async with ready({"a": mortal("a"), "b": mortal("b")}) as hub, watching(hub) as states:
        async with trio.open_nursery() as nursery:

            async def fails() -> None:
                with pytest.raises(ConnectionLostError, match="exit status 3"):
                    await hub.call_tool("a__die")

            nursery.start_soon(fails)
            assert (await hub.call_tool("b__greet")).result.text == "I am b"
        lost = await states.receive()
        assert (lost.name, lost.status) == ("a", ServerStatus.LOST)
        assert "exit status 3" in lost.reason
        assert "the end" in lost.reason


async def test_a_server_that_may_not_be_restarted_stays_lost_until_it_is_connected_to() -> None:
    async with ready({"a": mortal("a", restart="never")}) as hub, watching(hub) as states:
        os.kill(await pid_of(hub, "a"), signal.SIGKILL)
        assert (await states.receive()).status is ServerStatus.LOST
        for _ in range(2):
            with pytest.raises(ConnectionLostError, match="is not restarted"):
                await hub.call_tool("a__greet")
        assert hub.states["a"].status is ServerStatus.LOST
        assert (await hub.connect_to_server("a")).status is ServerStatus.CONNECTED
        assert (await hub.call_tool("a__greet")).result.text == "I am a"


async def test_a_server_that_answers_and_dies_is_lost_although_it_answered() -> None:
    link: dict[str, object] = {"type": "resource_link", "uri": "x:what", "name": "what"}
    last: list[Step] = [Expect(method="tools/call"), SendResult(result={"content": [link]}), Exit()]
    async with ready({"a": replace(scripted(*last), restart="never")}) as hub:
        assert (await hub.call_tool("a__t")).result.links  # looked at in vain: it is gone
        assert hub.states["a"].status is ServerStatus.LOST


async def test_a_server_that_does_not_list_its_tools_holds_up_no_call_to_another() -> None:
    mute = ServerConfig(command=tuple(command([Handshake(), Hang()])), mode="legacy")
    async with hub_of({"mute": mute, "live": mortal("live")}) as hub:
        await hub.connect_all()
        with trio.fail_after(10):
            assert (await hub.call_tool("live__greet")).result.text == "I am live"
            assert (await hub.call_tool(("live", "greet"))).result.text == "I am live"
        assert hub.states["mute"].tools is None


async def test_a_server_over_http_that_is_gone_is_lost_to_the_call_that_misses_it() -> None:
    async with (
        http_process(pages_command("http")) as url,
        hub_of({"web": ServerConfig(url=url), "a": mortal("a")}) as hub,
    ):
        for state in await hub.connect_all():
            assert state.status is ServerStatus.CONNECTED, state
        await hub.discover_and_register_all_tools()
        tool = next(tool for tool in hub.tools if tool.server == "web")
        os.kill(_listener(url), signal.SIGKILL)
        with pytest.raises(TransportError):
            await hub.call_tool(tool)
        state = hub.states["web"]
        assert (state.status, state.tools) == (ServerStatus.LOST, 2)
        assert state.reason
        assert (await hub.call_tool("a__greet")).result.text == "I am a"


def _listener(url: str) -> int:
    port = int(url.rsplit(":", 1)[1].split("/")[0])
    for child in psutil.Process().children(recursive=True):
        if any(at.laddr.port == port for at in child.net_connections("tcp") if at.status == "LISTEN"):
            return int(child.pid)
    raise AssertionError(f"nobody listens at {url}")


# --- leaving ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations("abc")), ids="".join)
async def test_servers_may_be_left_in_any_order(order: tuple[str, ...]) -> None:
    before = processes()
    async with ready({name: scripted(AwaitEnd()) for name in "abc"}) as hub:
        for number, name in enumerate(order, start=1):
            await hub.disconnect_from_server(name)
            assert {tool.server for tool in hub.tools} == set(order[number:])
        assert processes() <= before


async def test_servers_that_do_not_want_to_leave_are_waited_for_together() -> None:
    before = processes()
    with trio.move_on_after(15) as together:  # one after the other they would take 32 s
        async with ready({f"s{number}": scripted(IgnoreTerm(), Hang()) for number in range(8)}):
            pass
    assert not together.cancelled_caught
    assert processes() <= before


async def test_cancelling_in_the_middle_leaves_no_process() -> None:
    before = processes()
    servers = {"a": mortal("a"), "stubborn": scripted(IgnoreTerm(), Hang()), "hanging": HANGING}
    with trio.CancelScope() as scope:
        async with hub_of(servers) as hub, trio.open_nursery() as nursery:
            nursery.start_soon(hub.connect_to_server, "hanging")
            for name in ("a", "stubborn"):
                assert (await hub.connect_to_server(name)).status is ServerStatus.CONNECTED
            await hub.discover_and_register_all_tools()
            nursery.start_soon(hub.call_tool, "a__hang")
            assert (await hub.call_tool("a__greet")).result.text == "I am a"
            scope.cancel()
    assert scope.cancelled_caught
    assert processes() <= before


async def test_leaving_a_server_fails_its_calls_in_flight() -> None:
    async with ready({"a": mortal("a")}) as hub, trio.open_nursery() as nursery:

        async def fails() -> None:
            with pytest.raises(ConnectionLostError):
                await hub.call_tool("a__hang")

        nursery.start_soon(fails)
        assert (await hub.call_tool("a__greet")).result.text == "I am a"
        await hub.disconnect_from_server("a")
