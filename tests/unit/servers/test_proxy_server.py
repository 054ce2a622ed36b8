"""The proxy: requests pass, and audio becomes sound and a line of text."""

from __future__ import annotations

import json
import sys
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp.server import Server
from mcp.shared.exceptions import MCPError

from playhead import connect
from playhead.config.servers import ServerConfig
from playhead.errors import ServerError
from playhead.playback import NullSink, Player
from playhead.servers.audio import AudioServerOptions
from playhead.servers.audio.audio_server import open_audio_server
from playhead.servers.listening import Transport
from playhead.servers.proxy import ProxyOptions, server_names
from playhead.servers.proxy.proxy_server import PLAYER_PREFIX, open_proxy, serve
from playhead.servers.proxy.result_audio import ADDRESS_META, HEARD_META, ResultAudio
from tests.servers.audio_tools import AUDIO_TOOLS


def sounding(player: Player) -> ResultAudio:
    return ResultAudio(player=player, options=ProxyOptions())


def _echo() -> Server[Any]:
    async def list_tools(_context: object, _params: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="echo", input_schema={"type": "object"})])

    async def call_tool(_context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        if (params.arguments or {}).get("fail"):
            raise MCPError(-32042, "no such song", {"near": ["So What"]})
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=json.dumps(params.arguments))]
        )

    return Server("echo", on_list_tools=list_tools, on_call_tool=call_tool)


async def test_text_passes_unchanged_and_names_stay_as_they_are() -> None:
    async with (
        open_proxy({"echo": _echo()}, None, ProxyOptions()) as server,
        connect(server) as host,
    ):
        assert [tool.name for tool in await host.list_tools()] == ["echo"]
        assert (await host.call_tool("echo", {"a": 1})).raw["content"] == [
            {"type": "text", "text": '{"a": 1}'}
        ]


async def test_an_error_passes_with_its_code_and_data() -> None:
    async with open_proxy({"echo": _echo()}, None, ProxyOptions()) as server, connect(server) as host:
        with pytest.raises(ServerError, match="no such song") as caught:
            await host.call_tool("echo", {"fail": True})
        assert (caught.value.code, caught.value.data) == (-32042, {"near": ["So What"]})


async def test_several_servers_get_prefixes_and_each_call_finds_its_server() -> None:
    async with AsyncExitStack() as stack:
        music = await stack.enter_async_context(open_audio_server(AudioServerOptions(mixer="memory")))
        targets = {"echo": _echo(), "music": music, "other": _echo()}
        server = await stack.enter_async_context(open_proxy(targets, None, ProxyOptions()))
        host = await stack.enter_async_context(connect(server))
        names = {tool.name for tool in await host.list_tools()}
        assert names == {"echo__echo", "other__echo", *(f"music__{tool}" for tool in AUDIO_TOOLS)}
        assert (await host.call_tool("other__echo", {"b": 2})).text == '{"b": 2}'
        link = (await host.call_tool("music__musicPlayer", {"query": ""})).links[0]
        assert link.uri.startswith("music+resource://")
        with pytest.raises(ServerError, match="one of the listed tools"):
            await host.call_tool("echo")


async def test_audio_plays_and_the_host_gets_a_line_and_its_address() -> None:
    async with AsyncExitStack() as stack:
        music = await stack.enter_async_context(open_audio_server(AudioServerOptions(mixer="memory")))
        player = await stack.enter_async_context(Player(NullSink(real_time=False)))
        server = await stack.enter_async_context(
            open_proxy({"music": music}, sounding(player), ProxyOptions())
        )
        host = await stack.enter_async_context(connect(server))
        result = await host.call_tool("musicPlayer", {"query": ""})
        (block,) = result.raw["content"]
        assert block["type"] == "text"
        assert "playing" in block["text"]
        assert result.raw["_meta"][ADDRESS_META][0].startswith("resource://read_from_http")
        await player.wait_finished()
        assert player.snapshot().heard_seconds > 1


async def test_the_seconds_heard_are_in_the_result_of_stop_and_once_in_the_next() -> None:
    async with AsyncExitStack() as stack:
        music = await stack.enter_async_context(open_audio_server(AudioServerOptions(mixer="memory")))
        player = await stack.enter_async_context(Player(NullSink(real_time=False)))
        server = await stack.enter_async_context(
            open_proxy({"music": music}, sounding(player), ProxyOptions())
        )
        host = await stack.enter_async_context(connect(server))
        stopped = await host.call_tool(PLAYER_PREFIX + "stop")
        assert HEARD_META in stopped.raw["_meta"]
        first, second = [await host.call_tool("set_volume", {"volume": 5}) for _ in range(2)]
        assert HEARD_META in first.raw["_meta"]
        assert HEARD_META not in (second.raw.get("_meta") or {})


async def test_the_command_serves_over_stdio() -> None:
    audio = f"{sys.executable} -m playhead serve audio --mixer memory"
    command = [sys.executable, "-m", "playhead", "serve", "proxy", audio, "--sink", "null"]
    async with connect(command) as host:
        names = {tool.name for tool in await host.list_tools()}
        assert {"musicPlayer", PLAYER_PREFIX + "pause"} <= names
        result = await host.call_tool("musicPlayer", {"query": ""})
        assert not result.links
        playing = await host.call_tool(PLAYER_PREFIX + "what_is_playing")
        assert "The queue has 1" in playing.text


@pytest.mark.parametrize("transport", ["http", "ws"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_host_connects_over_the_network(transport: Transport, mode: str) -> None:
    options = ProxyOptions(transport=transport, port=0)
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(serve, {"echo": _echo()}, None, options))
        async with connect(url, mode=mode) as host:
            assert (await host.call_tool("echo", {"c": 3})).text == '{"c": 3}'
        nursery.cancel_scope.cancel()


async def test_the_tools_that_the_servers_file_leaves_out_are_not_listed() -> None:
    command = (sys.executable, "-m", "playhead", "serve", "audio", "--mixer", "memory")
    target = ServerConfig(name="music", command=command, allowed_tools=("musicPlayer",))
    async with open_proxy({"music": target}, None, ProxyOptions()) as server, connect(server) as host:
        assert [tool.name for tool in await host.list_tools()] == ["musicPlayer"]


def test_servers_without_a_name_get_short_ones() -> None:
    arguments = [
        "home",
        "node /opt/music.js --fast",
        "python3 -m playhead serve audio",
        "https://radio.example/mcp",
    ]
    arguments += ["npx -y music", "./9-lives", "a b"]
    names = ["home", "music", "playhead", "radio-example", "music-2", "s-9-lives", "a"]
    assert [*server_names(arguments).values()] == names
