"""Our WebSocket server with clients of others: the SDK's first major version, and plain `websockets`."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
import trio
from mcp.server import Server
from websockets.sync.client import connect

from tests.conformance.old_sdk import PYTHON, needs_old_sdk
from tests.servers.messages import initialize, request
from tests.servers.served_websocket import served_websocket

OLD_CLIENT = """
import asyncio, sys
from mcp import ClientSession
from mcp.client.websocket import websocket_client

async def main():
    async with websocket_client(sys.argv[1]) as (read, write), ClientSession(read, write) as session:
        answer = await session.initialize()
        print(answer.serverInfo.name, answer.protocolVersion)
        tools = await session.list_tools()
        print(*(tool.name for tool in tools.tools))
        answers = await asyncio.gather(*(session.call_tool("add", {"a": 2, "b": n}) for n in range(20)))
        print(*(answer.content[0].text for answer in answers))

asyncio.run(main())
"""


def adding_server() -> Server[Any]:
    async def list_tools(_context: object, _params: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="add", input_schema={"type": "object"})])

    async def call_tool(_context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        total = str(arguments["a"] + arguments["b"])
        return types.CallToolResult(content=[types.TextContent(type="text", text=total)])

    return Server("adder", on_list_tools=list_tools, on_call_tool=call_tool)


async def test_a_plain_client_may_use_one_id_again_and_again() -> None:
    def ask(port: int) -> list[dict[str, Any]]:
        with connect(f"ws://127.0.0.1:{port}/mcp") as client:
            client.send(json.dumps(initialize(id=0)))
            client.recv()
            client.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            answers = []
            for _ in range(200):
                client.send(json.dumps(request("tools/list")))
                answers.append(json.loads(client.recv()))
            return answers

    with trio.fail_after(60):
        async with served_websocket(adding_server()) as port:
            answers = await trio.to_thread.run_sync(ask, port)
    assert [answer for answer in answers if "error" in answer] == []


@needs_old_sdk
async def test_the_first_major_versions_client_lists_and_calls() -> None:
    with trio.fail_after(60):
        async with served_websocket(adding_server()) as port:
            done = await trio.run_process(
                [PYTHON, "-c", OLD_CLIENT, f"ws://127.0.0.1:{port}/mcp"],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
    assert done.returncode == 0, done.stderr.decode()
    greeting, tools, sums = done.stdout.decode().splitlines()
    assert greeting == "adder 2025-11-25"
    assert tools == "add"
    assert sums.split() == [str(2 + n) for n in range(20)]


def converse(url: str) -> list[dict[str, Any]]:
    """The conversation of docs/websocket.md: what a client writes that has no MCP library."""
    answers = []
    with connect(url, subprotocols=["mcp"], close_timeout=5) as websocket:  # type: ignore[list-item]
        for message in (
            initialize("2024-11-05", id="init"),
            {"jsonrpc": "2.0", "method": "initialized"},
            request("tools/list"),
            request("tools/call", id=2, name="add", arguments={"a": 2, "b": 3}),
        ):
            websocket.send(json.dumps(message))
            if "id" in message:
                answers.append(json.loads(websocket.recv(timeout=20)))
    assert websocket.subprotocol == "mcp"
    assert websocket.close_code == 1000
    return answers


async def test_a_client_without_any_mcp_library_is_served() -> None:
    with trio.fail_after(60):
        async with served_websocket(adding_server()) as port:
            url = f"ws://127.0.0.1:{port}/mcp"
            init, tools, called = await trio.to_thread.run_sync(converse, url)
    assert (init["id"], init["result"]["protocolVersion"]) == ("init", "2024-11-05")
    assert (tools["id"], [tool["name"] for tool in tools["result"]["tools"]]) == (1, ["add"])
    assert (called["id"], called["result"]["content"]) == (2, [{"type": "text", "text": "5"}])
