"""Sessions over WebSocket: what a closed connection does to requests, and how the next one comes about."""

from __future__ import annotations

import base64
import json
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from trio_websocket import WebSocketConnection, WebSocketRequest

from playhead import ServerConfig, connect
from playhead.client.hub import open_hub
from playhead.errors import ConnectError, ConnectionLostError, WebSocketClosedError
from tests.servers.websocket_peer import listening, mcp_handler, serve_session

SONG = bytes(range(256)) * 1024


class Radio:
    """A server of one song and one tool. A connection on its `doomed` list is closed at the first call."""

    def __init__(self, *, doomed: int = 0) -> None:
        self.connections = 0
        self.reads = 0
        self._doomed = doomed
        self._websocket: WebSocketConnection | None = None

    async def read(
        self, context: ServerRequestContext[Any, Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        self.reads += 1
        await self._perhaps_close()
        blob = base64.b64encode(SONG).decode()
        return types.ReadResourceResult(contents=[types.BlobResourceContents(uri=params.uri, blob=blob)])

    async def call(
        self, context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        await self._perhaps_close()
        return types.CallToolResult(content=[types.TextContent(text="played")])

    async def list(
        self, context: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="play", input_schema={"type": "object"})])

    async def _perhaps_close(self) -> None:
        if self.connections <= self._doomed:
            await self.close()
            await trio.sleep_forever()

    async def close(self) -> None:
        assert self._websocket is not None
        await self._websocket.aclose(1012, "restarting")

    async def handle(self, request: WebSocketRequest) -> None:
        self.connections += 1
        self._websocket = await request.accept(subprotocol="mcp")
        server = Server("radio", on_read_resource=self.read, on_call_tool=self.call, on_list_tools=self.list)
        await serve_session(server, self._websocket)


async def test_a_call_in_flight_fails_at_once_with_the_close_code_and_the_next_one_reconnects() -> None:
    radio = Radio(doomed=1)
    async with listening(radio.handle) as url, connect(url) as session:
        with pytest.raises(WebSocketClosedError, match="restarting") as caught:
            await session.call_tool("play", {})
        assert caught.value.code == 1012
        assert (await session.call_tool("play", {})).text == "played"
        assert session.statistics().reconnects == 1
        assert radio.connections == 2


async def test_a_page_whose_connection_is_closed_is_asked_for_again() -> None:
    radio = Radio(doomed=2)
    async with listening(radio.handle) as url, connect(url) as session:
        async with session.open("song://one") as stream:
            assert b"".join([chunk async for chunk in stream]) == SONG
        assert radio.connections == 3


async def test_a_connection_closed_between_two_calls_costs_none_of_them() -> None:
    radio = Radio()
    async with listening(radio.handle) as url, connect(url) as session:
        assert (await session.call_tool("play", {})).text == "played"
        await radio.close()
        assert "code 1012" in await session.wait_lost()
        assert (await session.call_tool("play", {})).text == "played"
        assert radio.connections == 2


async def test_the_server_is_called_by_its_name_and_place_without_its_secrets() -> None:
    radio = Radio()
    async with listening(radio.handle) as url:
        config = ServerConfig(name="radio", url=url.replace("//", "//ada:pw@") + "?key=secret")
        async with connect(config) as session:
            assert session.name == f"radio ({url}?key=…)"
    with pytest.raises(ConnectError) as caught:
        async with connect(config):
            pass
    assert "secret" not in str(caught.value)
    assert "pw" not in str(caught.value)


async def test_a_server_that_closes_on_the_unknown_method_is_asked_in_the_old_way() -> None:
    connections = 0
    inner = mcp_handler(Server("old", on_list_tools=Radio().list))

    async def handle(request: WebSocketRequest) -> None:
        nonlocal connections
        connections += 1
        if connections > 1:
            await inner(request)
            return
        websocket = await request.accept()
        assert json.loads(await websocket.get_message())["method"] == "server/discover"
        await websocket.aclose(1002, "what?")

    async with listening(handle) as url, connect(url) as session:
        assert [tool.name for tool in await session.list_tools()] == ["play"]
    assert connections == 2


async def test_a_server_that_closes_on_everything_fails_the_connecting_with_its_words() -> None:
    async def handle(request: WebSocketRequest) -> None:
        websocket = await request.accept()
        await websocket.get_message()
        await websocket.aclose(1008, "not today")

    async with listening(handle) as url:
        with pytest.raises(ConnectError, match="'not today'") as caught:
            async with connect(url):
                pass
        assert isinstance(caught.value.__cause__, ConnectionLostError)


async def test_a_hub_takes_websocket_servers_among_the_others() -> None:
    radio = Radio()
    async with listening(radio.handle) as url:
        servers = {"radio": ServerConfig(name="radio", url=url)}
        async with open_hub(servers) as hub:
            await hub.connect_all()
            await hub.discover_and_register_all_tools()
            (tool,) = hub.tools
            assert (await hub.call_tool(tool)).result.text == "played"
