"""The tools that may be called, and the message for those that may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from mcp_types import Tool, ToolAnnotations

from playhead.client import connect
from playhead.client.hub import open_hub
from playhead.client.session.tool_calls import has_default_hints
from playhead.config.servers import ServerConfig
from playhead.config.tools import ToolConfigs
from playhead.errors import UsageError
from tests.servers.raw_http import Exchange, raw_http


async def answer_all(exchange: Exchange) -> None:
    await exchange.result({"content": [], "tools": []})


@pytest.mark.requirement("HUB-07")
async def test_a_tool_outside_allowed_tools_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async with raw_http(answer_all) as server:
        own = {"allowed_tools": ["add", "mixed"], "mode": "legacy"}
        entry = {"url": server.url, "playhead": own}
        path = tmp_path / "mcp.json"
        path.write_text(json.dumps({"mcpServers": {"home": entry}}), encoding="utf-8")
        async with connect("home", config=path) as session:
            with pytest.raises(UsageError, match=r"'rm'.*home\.playhead\.allowed_tools.*add, mixed"):
                await session.call_tool("rm", {"path": "/"})
            assert "tools/call" not in server.methods
            assert (await session.call_tool("add")).blocks == ()
            assert server.methods.count("tools/call") == 1


async def test_an_empty_list_allows_nothing_and_none_allows_all() -> None:
    async with raw_http(answer_all) as server:
        async with connect(ServerConfig(url=server.url, allowed_tools=())) as session:
            with pytest.raises(UsageError, match="allows none"):
                await session.call_tool("add")
        async with connect(ServerConfig(url=server.url)) as session:
            await session.call_tool("add")


@pytest.mark.parametrize("arguments", ["x", b"{}", ["a"], 7, {1: 2}])
async def test_arguments_that_are_not_an_object_are_refused_before_anything_is_sent(
    arguments: Any,
) -> None:
    async with raw_http(answer_all) as server, connect(ServerConfig(url=server.url)) as session:
        with pytest.raises(UsageError, match=r"'add'.*expected"):
            await session.call_tool("add", arguments)
        assert "tools/call" not in server.methods


DEFAULTS = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
)


@pytest.mark.parametrize(
    ("annotations", "held"),
    [
        ([DEFAULTS], True),
        ([DEFAULTS, DEFAULTS.model_copy(update={"title": "Delete"})], True),
        ([], False),
        ([DEFAULTS, None], False),
        ([DEFAULTS, ToolAnnotations()], False),
        ([DEFAULTS, DEFAULTS.model_copy(update={"read_only_hint": True})], False),
        ([DEFAULTS, DEFAULTS.model_copy(update={"destructive_hint": False})], False),
        ([ToolAnnotations(destructive_hint=True)], False),
        ([ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False)], False),
    ],
)
def test_annotations_say_nothing_if_every_tool_states_all_defaults(
    annotations: list[ToolAnnotations | None], held: bool
) -> None:
    tools = [Tool(name="t", input_schema={"type": "object"}, annotations=one) for one in annotations]
    assert has_default_hints(tools) is held


async def test_a_hub_takes_default_annotations_on_all_tools_of_a_server_as_absent() -> None:
    def server(*annotations: ToolAnnotations) -> MCPServer:
        made: MCPServer = MCPServer("s", log_level="CRITICAL")
        for index, one in enumerate(annotations):
            made.add_tool(answer_all_tools, name=f"t{index}", annotations=one)
        return made

    marked = ToolAnnotations(read_only_hint=True)
    servers = {"silent": server(DEFAULTS, DEFAULTS), "telling": server(DEFAULTS, marked)}
    async with open_hub(servers, tool_configs=ToolConfigs()) as hub:
        await hub.connect_all()
        await hub.discover_and_register_all_tools()
        found = {tool.tool_id: tool.annotations for tool in hub.tools}
        assert found["silent__t0"] is None
        assert found["silent__t1"] is None
        assert found["telling__t0"] == DEFAULTS
        assert found["telling__t1"] == marked
        assert all(tool.tool.annotations is not None for tool in hub.tools), "as the server lists it"


async def answer_all_tools() -> str:
    return "done"
