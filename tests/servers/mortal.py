"""A stdio MCP server that says its process id, greets, and dies when it is told to.

python tests/servers/mortal.py NAME
"""

from __future__ import annotations

import os
import sys

import trio
from mcp.server.mcpserver import MCPServer


def main() -> None:
    name = sys.argv[1]
    server: MCPServer = MCPServer(name, log_level="CRITICAL")

    @server.tool()
    async def greet() -> str:
        return f"I am {name}"

    @server.tool()
    async def pid() -> str:
        return str(os.getpid())

    @server.tool()
    async def die() -> str:
        print("the end", file=sys.stderr, flush=True)
        os._exit(3)

    @server.tool()
    async def hang() -> str:
        await trio.sleep_forever()
        return "never"

    trio.run(server.run_stdio_async)


if __name__ == "__main__":
    main()
