"""A server of the SDK's whose tools give every kind of block, and whose list of tools grows.

In a test's own process: `sample_server()`. As a process of its own over stdio: `SAMPLE_COMMAND`.
"""

from __future__ import annotations

import sys
from typing import Final

from mcp.server.mcpserver import Context, MCPServer

from tests.servers.launch import REPOSITORY

SAMPLE_COMMAND: Final = (
    sys.executable,
    "-c",
    f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from tests.servers.sample import main; main()",
)


def sample_server() -> MCPServer:
    server: MCPServer = MCPServer("sample", log_level="CRITICAL")

    @server.tool()
    async def grow(context: Context, times: int = 1) -> str:
        """Add a tool, and say so in the way of either era: the SDK drops the one that does not fit."""
        for _ in range(times):
            server.add_tool(extra, name=f"extra{len(await server.list_tools())}")
            await context.session.send_tool_list_changed()
            await context.notify_tools_changed()
        return "grown"

    return server


async def extra() -> str:
    return "extra"


def main() -> None:
    import trio

    trio.run(sample_server().run_stdio_async)
