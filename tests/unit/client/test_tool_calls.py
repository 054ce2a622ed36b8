"""The tools that may be called, and the message for those that may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from playhead.client import connect
from playhead.config.servers import ServerConfig
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
async def test_arguments_that_are_no_mapping_of_names_are_refused_before_anything_is_sent(
    arguments: Any,
) -> None:
    async with raw_http(answer_all) as server, connect(ServerConfig(url=server.url)) as session:
        with pytest.raises(UsageError, match=r"'add'.*expected"):
            await session.call_tool("add", arguments)
        assert "tools/call" not in server.methods
