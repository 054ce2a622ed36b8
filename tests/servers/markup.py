"""A stdio server whose tool answers with markup and a script."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import trio
from mcp.server import Server

from playhead.servers.stdio import serve_stdio

MARKUP = '<img src=x onerror="document.title=1"><script>document.title=2</script>'


async def _list_tools(_context: object, _params: object) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="markup", input_schema={"type": "object"})])


async def _call_tool(_context: object, _params: object) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=MARKUP)])


if __name__ == "__main__":
    server: Server[Any] = Server("markup", on_list_tools=_list_tools, on_call_tool=_call_tool)
    trio.run(serve_stdio, server)
