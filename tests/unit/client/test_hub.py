"""A hub: many servers, each tool called on the one it belongs to, each state with its reason."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ListToolsResult, Tool

from playhead.client import Question, Reply
from playhead.client.hub import Hub, open_hub
from playhead.client.hub.server import HubEvent, ServerState, ServerStateChanged, ServerStatus, ToolsChanged
from playhead.config.servers import ServerConfig
from playhead.config.tools import ToolConfigs, ToolConfigSources, create_dynamic_config, create_tool_config
from playhead.errors import (
    ClosedError,
    ConfigError,
    ConnectError,
    UnknownToolError,
    UsageError,
)
from tests.servers.household import HOUSEHOLD_COMMAND
from tests.servers.raw_http import Exchange, raw_http

NO_SUCH = ServerConfig(command=("/nowhere/server",))


def greeter(word: str = "hello", *extra: str) -> MCPServer:
    """A server with the tool `greet`, and one for each name in `extra`, which answer with their names."""
    server: MCPServer = MCPServer(word, log_level="CRITICAL")

    @server.tool(description=f"Says {word}")
    async def greet(name: str = "you") -> str:
        return f"{word} {name}"

    for name in extra:

        async def other(called: str = name) -> str:
            return f"{word}: {called}"

        server.add_tool(other, name=name)
    return server


@asynccontextmanager
async def connected(
    servers: dict[str, Any], *, configs: ToolConfigs | None = None, **options: Any
) -> AsyncIterator[Hub]:
    async with open_hub(servers, tool_configs=configs or ToolConfigs(), **options) as hub:
        await hub.connect_all()
        await hub.discover_and_register_all_tools()
        yield hub


async def next_event(events: trio.MemoryReceiveChannel[HubEvent]) -> HubEvent:
    with trio.fail_after(20):
        return await events.receive()


# --- the flow --------------------------------------------------------------------------------------------


@pytest.mark.requirement("HUB-05")
@pytest.mark.requirement("CF-01")
async def test_tools_with_equal_names_are_both_offered_and_each_call_goes_to_its_server() -> None:
    async with connected({"de": greeter("hallo"), "fr": greeter("salut")}) as hub:
        assert [tool.model_name for tool in hub.tools] == ["de__greet", "fr__greet"]
        assert [tool.tool_id for tool in hub.tools] == ["de__greet", "fr__greet"]
        assert [tool.description for tool in hub.tools] == ["Says hallo", "Says salut"]
        assert hub.tools[0].input_schema["properties"]["name"]["type"] == "string"
        for what in ("fr__greet", ("fr", "greet"), hub.tools[1]):
            done = await hub.call_tool(what, {"name": "Eva"})
            assert done.text_for_model == "salut Eva"
            assert done.tool_id == "fr__greet"
        assert (await hub.call_tool("de__greet")).text_for_model == "hallo you"


async def test_nothing_is_connected_before_it_is_asked_for() -> None:
    async with open_hub({"a": greeter(), "b": greeter()}, tool_configs=ToolConfigs()) as hub:
        assert [state.status for state in hub.states.values()] == [ServerStatus.DISCONNECTED] * 2
        state = await hub.connect_to_server("b")
        assert (state.name, state.status, state.reason, state.tools) == ("b", "connected", "", None)
        assert hub.states["a"].status is ServerStatus.DISCONNECTED
        discovery = await hub.discover_and_register_all_tools()
        assert [tool.tool_id for tool in discovery.tools] == ["b__greet"]
        assert hub.states["b"].tools == 1


async def test_a_call_before_discovery_looks_for_the_tool_first() -> None:
    async with open_hub({"a": greeter()}, tool_configs=ToolConfigs()) as hub:
        await hub.connect_all()
        assert (await hub.call_tool("a__greet")).text_for_model == "hello you"


async def test_connecting_twice_is_connecting_once() -> None:
    async with open_hub({"a": greeter()}, tool_configs=ToolConfigs()) as hub:
        events = hub.events()
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(hub.connect_to_server, "a")
        await hub.connect_to_server("a")
        assert events.statistics().current_buffer_used == 2  # connecting, connected


@pytest.mark.requirement("HUB-01")
async def test_a_dead_server_is_a_state_with_its_reason_and_blocks_nobody() -> None:
    async with connected({"dead": NO_SUCH, "live": greeter()}) as hub:
        dead, live = hub.states.values()
        assert dead.status is ServerStatus.FAILED
        assert "cannot start the server '/nowhere/server'" in dead.reason
        assert live.status is ServerStatus.CONNECTED
        assert (await hub.call_tool("live__greet")).text_for_model == "hello you"
        for what in ("dead__play", ("dead", "play")):
            with pytest.raises(ConnectError, match=r"'dead' is not connected .*cannot start the server"):
                await hub.call_tool(what)


async def test_a_failed_server_is_tried_again_when_asked_for(tmp_path: Path) -> None:
    server = tmp_path / "late"
    async with open_hub({"late": ServerConfig(command=(str(server),))}, tool_configs=ToolConfigs()) as hub:
        assert (await hub.connect_to_server("late")).status is ServerStatus.FAILED
        server.write_text("#!/bin/sh\nexit 7\n")
        server.chmod(0o755)
        state = await hub.connect_to_server("late")
        assert state.status is ServerStatus.FAILED
        assert "exit status 7" in state.reason


# --- discovery -------------------------------------------------------------------------------------------


@pytest.mark.requirement("HUB-03")
@pytest.mark.requirement("CF-06")
@pytest.mark.requirement("CF-07")
async def test_discovery_counts_configured_tools_and_takes_their_descriptions() -> None:
    configs = ToolConfigs(
        [
            create_tool_config("a", "greet", description="Greets like a friend", system_prompt="Be kind."),
            create_dynamic_config("c"),
        ]
    )
    servers = {"a": greeter("x", "y"), "b": greeter(), "c": greeter()}
    async with open_hub(servers, tool_configs=configs) as hub:
        await hub.connect_all()
        found = await hub.discover_and_register_all_tools()
        assert (len(found.tools), found.configured, found.failed) == (4, 2, {})
        assert found.tools[0].description == "Greets like a friend"
        assert [tool.system_prompt for tool in found.tools] == ["Be kind.", None, None, None]
        assert [tool.resolution.layer for tool in found.tools] == ["exact", "none", "none", "dynamic"]


@pytest.mark.requirement("HUB-02")
async def test_discovery_follows_every_page() -> None:
    from mcp.server import Server

    async def list_tools(_context: object, params: Any) -> ListToolsResult:
        page = int((params and params.cursor) or 0)
        tool = Tool(name=f"t{page}", input_schema={"type": "object"})
        return ListToolsResult(tools=[tool], next_cursor=str(page + 1) if page < 4 else None)

    async with connected({"paged": Server("paged", on_list_tools=list_tools)}) as hub:
        assert [tool.tool_id for tool in hub.tools] == [f"paged__t{page}" for page in range(5)]


async def test_a_server_that_cant_list_its_tools_holds_up_nobody() -> None:
    from mcp.server import Server

    async with open_hub({"mute": Server("mute"), "live": greeter()}, tool_configs=ToolConfigs()) as hub:
        await hub.connect_all()
        found = await hub.discover_and_register_all_tools()
        assert [tool.tool_id for tool in found.tools] == ["live__greet"]
        assert list(found.failed) == ["mute"]
        assert "tools/list" in found.failed["mute"]


@pytest.mark.requirement("HUB-04")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_list_is_kept_up_to_date_when_the_server_says_that_it_changed(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = greeter()

    @server.tool()
    async def learn(context: Context) -> str:
        async def learnt() -> str:
            return "learnt"

        server.add_tool(learnt, name="learnt")
        if mode == "legacy":
            await context.session.send_tool_list_changed()
        else:
            await context.notify_tools_changed()
        return "ok"

    if mode == "legacy":
        _legacy(monkeypatch)
    async with connected({"a": server}) as hub:
        events = hub.events()
        await hub.call_tool("a__learn")
        assert await next_event(events) == ToolsChanged(server="a", tools=3)
        assert (await hub.call_tool("a__learnt")).text_for_model == "learnt"


def _legacy(monkeypatch: pytest.MonkeyPatch) -> None:
    from functools import partial

    from playhead.client.connector import connect
    from playhead.client.hub import hub

    monkeypatch.setattr(hub, "connect", partial(connect, mode="legacy"))


async def test_a_server_whose_tools_change_without_end_is_asked_once_a_second(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcp.server import Server, ServerRequestContext
    from mcp_types import PaginatedRequestParams

    listings = 0

    async def list_tools(
        context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        nonlocal listings
        listings += 1
        if listings < 100:
            await context.session.send_tool_list_changed()
        return ListToolsResult(tools=[])

    _legacy(monkeypatch)
    async with connected({"a": Server("a", on_list_tools=list_tools)}):
        await trio.sleep(10)
        assert 10 <= listings <= 12


@pytest.mark.requirement("CF-13")
async def test_configurations_are_read_again_on_demand_and_a_slip_keeps_the_old_ones(tmp_path: Path) -> None:
    file = tmp_path / "tools.toml"
    file.write_text('[tools."a__greet"]\ndescription = "one"\n')
    sources = ToolConfigSources(file=file, entry_points=False)
    async with open_hub({"a": greeter()}, tool_configs=sources) as hub:
        await hub.connect_all()
        await hub.discover_and_register_all_tools()
        assert hub.tools[0].description == "one"
        file.write_text('[tools."a__greet"]\ndescription = "two"\n')
        await hub.initialize()
        assert hub.tools[0].description == "one"
        await hub.initialize(reload=True)
        assert hub.tools[0].description == "two"
        file.write_text("[tools")
        with pytest.raises(ConfigError, match=r"tools\.toml"):
            await hub.initialize(reload=True)
        assert hub.tools[0].description == "two"


# --- names -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("CF-02")
async def test_an_id_that_two_tools_share_is_ambiguous() -> None:
    async with connected({"a__b": greeter("one", "c"), "a": greeter("two", "b__c")}) as hub:
        with pytest.raises(UsageError, match="belongs to several tools") as caught:
            await hub.call_tool("a__b__c")
        assert (await hub.call_tool(("a__b", "c"))).text_for_model == "one: c"
        assert (await hub.call_tool(("a", "b__c"))).text_for_model == "two: b__c"
        for tool in hub.tools:
            if tool.tool_id == "a__b__c":
                assert tool.model_name in str(caught.value)
                said = (await hub.call_tool(tool.model_name)).text_for_model
                assert said == ("one: c" if tool.server == "a__b" else "two: b__c")


async def test_an_unknown_tool_is_reported_with_similar_names() -> None:
    async with connected({"audio": greeter("x", "musicPlayer")}) as hub:
        with pytest.raises(UnknownToolError, match="did you mean audio__musicPlayer") as caught:
            hub.resolve("audio__musicplayer")
        assert (caught.value.name, caught.value.near) == ("audio__musicplayer", ("audio__musicPlayer",))
        with pytest.raises(UnknownToolError, match="did you mean audio__musicPlayer"):
            hub.resolve("musicPlayer")
        with pytest.raises(UnknownToolError, match="2 tools are known"):
            hub.resolve(("nowhere", "zzz"))


async def test_a_tool_whose_name_no_model_takes_is_offered_under_one_that_it_does() -> None:
    async with connected({"my server": greeter("x", "größe")}) as hub:
        names = {tool.tool_id: tool.model_name for tool in hub.tools}
        assert all(name.isascii() and " " not in name for name in names.values())
        name = names["my server__größe"]
        assert (await hub.call_tool(name)).text_for_model == "x: größe"


# --- events, leaving -------------------------------------------------------------------------------------


async def test_events_tell_each_state_and_each_list_and_end_with_the_hub() -> None:
    async with open_hub({"a": greeter(), "dead": NO_SUCH}, tool_configs=ToolConfigs()) as hub:
        events = hub.events()
        await hub.connect_to_server("a")
        await hub.connect_to_server("dead")
        await hub.discover_and_register_all_tools()
        await hub.disconnect_from_server("a")
    told = [
        (event.state.name, event.state.status.value)
        if isinstance(event, ServerStateChanged)
        else (event.server, event.tools)
        async for event in events
    ]
    assert told == [
        ("a", "connecting"),
        ("a", "connected"),
        ("dead", "connecting"),
        ("dead", "failed"),
        ("a", 1),
        ("a", "disconnected"),
        ("a", 0),
    ]


async def test_a_slow_reader_of_events_keeps_the_newest() -> None:
    async with open_hub({"a": greeter()}, tool_configs=ToolConfigs()) as hub:
        events = hub.events()
        await hub.connect_all()
        for _ in range(100):
            await hub.discover_and_register_all_tools()
        await hub.disconnect_from_server("a")
    told = [event async for event in events]
    assert len(told) == 64
    assert told[-1] == ToolsChanged(server="a", tools=0)


async def test_tools_of_a_server_that_was_left_go_away_and_come_back_with_it() -> None:
    async with connected({"a": greeter("a"), "b": greeter("b")}) as hub:
        await hub.disconnect_from_server("a")
        assert [tool.tool_id for tool in hub.tools] == ["b__greet"]
        with pytest.raises(ConnectError, match=r"'a' is not connected \(disconnected\): disconnected"):
            await hub.call_tool("a__greet")
        await hub.connect_to_server("a")
        assert (await hub.call_tool("a__greet")).text_for_model == "a you"


async def test_using_a_closed_hub_is_an_error_that_says_so() -> None:
    async with connected({"a": greeter()}) as hub:
        tool = hub.tools[0]
    with trio.fail_after(5):
        assert [event async for event in hub.events()] == []
    for use in (hub.connect_to_server("a"), hub.connect_all(), hub.call_tool(tool)):
        with pytest.raises(ClosedError):
            await use


async def test_a_hub_that_is_left_connects_to_nobody_any_more() -> None:
    states: list[ServerState] = []
    waiting = trio.Event()

    async def come_back(hub: Hub) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await hub.disconnect_from_server("a")
        waiting.set()
        states.append(await hub.connect_to_server("a"))

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery, connected({"a": greeter(), "b": greeter()}) as hub:
            nursery.start_soon(come_back, hub)
            await waiting.wait()
    assert [state.status for state in states] == [ServerStatus.DISCONNECTED]


async def test_an_error_inside_propagates_unchanged() -> None:
    with pytest.raises(KeyError):
        async with connected({"a": greeter()}):
            raise KeyError


# --- the servers file ------------------------------------------------------------------------------------


def write(folder: Path, servers: object) -> Path:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


async def test_one_bad_entry_is_the_whole_files_error_and_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": {"command": "true"}, "b": {"command": "true", "playhead": {"restrat": 1}}})
    with pytest.raises(ConfigError, match=r"mcp.json: mcpServers.b.playhead.restrat: .*'restart'"):
        async with open_hub(path):
            raise AssertionError("opened")


async def test_some_of_a_files_servers_can_be_taken(tmp_path: Path) -> None:
    path = write(tmp_path, {name: {"command": "true"} for name in ("a", "b", "c")})
    async with open_hub(path, names=["c", "a"]) as hub:
        assert list(hub.states) == ["c", "a"]
        with pytest.raises(UsageError, match="unknown server 'b' in this hub"):
            await hub.connect_to_server("b")
    with pytest.raises(ConfigError, match="unknown server 'audoi'; known servers: a, b, c"):
        async with open_hub(path, names=["audoi"]):
            raise AssertionError("opened")


@pytest.mark.requirement("HUB-07")
async def test_a_tool_that_is_not_allowed_is_neither_offered_nor_called(tmp_path: Path) -> None:
    from playhead.testing.peers import AwaitEnd, Expect, Handshake, SendResult, Step, command

    tools: list[object] = [{"name": name, "inputSchema": {"type": "object"}} for name in ("yes", "no", "yes")]
    steps: list[Step] = [
        Handshake(),
        Expect(method="tools/list"),
        SendResult(result={"tools": tools}),
        AwaitEnd(),
    ]
    program, *arguments = command(steps)
    path = write(
        tmp_path, {"s": {"command": program, "args": arguments, "playhead": {"allowed_tools": ["yes"]}}}
    )
    async with open_hub(path, tool_configs=ToolConfigs()) as hub:
        await hub.connect_all()
        await hub.discover_and_register_all_tools()
        assert [tool.tool_id for tool in hub.tools] == ["s__yes"]
        assert hub.states["s"].tools == 1
        with pytest.raises(UnknownToolError):
            await hub.call_tool("s__no")


async def test_servers_of_a_hub_ask_the_user_through_it() -> None:
    form = {"type": "object", "properties": {"genre": {"type": "string"}}}
    question = {"method": "elicitation/create", "params": {"message": "What?", "requestedSchema": form}}
    asked: list[tuple[str, str]] = []

    async def handle(exchange: Exchange) -> None:
        params = exchange.message.get("params") or {}
        if exchange.method == "tools/list":
            await exchange.result({"tools": [{"name": "choose", "inputSchema": {"type": "object"}}]})
        elif "inputResponses" in params:
            answer = params["inputResponses"]["q"]["action"]
            await exchange.result({"content": [{"type": "text", "text": answer}]})
        else:
            await exchange.result({"resultType": "input_required", "inputRequests": {"q": question}})

    async def decline(question: Question) -> Reply:
        asked.append((question.server.partition(" ")[0], question.message))
        return Reply(action="decline")

    async with raw_http(handle) as server:
        servers = {"choosy": ServerConfig(url=server.url, mode="2026-07-28")}
        async with open_hub(servers, on_elicitation=decline) as hub:
            await hub.connect_all()
            assert (await hub.call_tool("choosy__choose")).text_for_model == "decline"
    assert asked == [("choosy", "What?")]


# --- questions -------------------------------------------------------------------------------------------


async def test_a_question_of_a_hubs_server_goes_to_the_hubs_one_function() -> None:
    async def likes_jazz(question: Question) -> Reply:
        assert question.message == "What do you like?"
        return Reply(action="accept", content={"genre": "jazz"})

    home = ServerConfig(command=HOUSEHOLD_COMMAND, mode="legacy")
    async with connected({"home": home}, on_elicitation=likes_jazz) as hub:
        done = await hub.call_tool("home__choose")
    assert done.result.text == "accept genre='jazz' loud=False volume=30"
