"""A WebSocket server of the SDK's first major version. Runs in `old_sdk.PYTHON`, not in the project's own.

    python old_sdk_server.py        prints its port, serves until it is ended

FastMCP of that version has no WebSocket of its own: its documented way is the SDK's `websocket_server` as an
ASGI application.
"""

# mypy: ignore-errors
# (the packages are those of another environment)

from __future__ import annotations

import socket
import sys
import warnings

import anyio
import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.websocket import websocket_server
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

warnings.simplefilter("ignore")
mcp = FastMCP("old")
NOTE = bytes(range(256)) * 4096  # 1 MiB


@mcp.tool()
def add(a: int, b: int) -> int:
    return a + b


@mcp.tool()
async def wait(context: Context) -> str:
    await context.report_progress(1, 2)
    await anyio.sleep_forever()


@mcp.tool()
def fail() -> str:
    raise ValueError("out of tape")


@mcp.resource("note://big", mime_type="application/octet-stream")
def big() -> bytes:
    return NOTE


@mcp.prompt()
def greet(name: str) -> str:
    return f"Good morning, {name}"


async def endpoint(websocket):
    server = mcp._mcp_server
    async with websocket_server(websocket.scope, websocket.receive, websocket._send) as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    app = Starlette(routes=[WebSocketRoute("/mcp", endpoint)])
    config = uvicorn.Config(app, log_level="warning", ws="websockets-sansio")
    uvicorn.Server(config).run(sockets=[listener])
    sys.exit(0)
