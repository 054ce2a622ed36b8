"""FastMCP's proxy in front of other servers, over stdio or HTTP, as its documentation shows it.

    python fastmcp_gateway.py plain|mounted NAME=SERVER... [--http]

It runs in the environment that `make extra NAME=gateways` makes. With `--http` it prints its URL. SERVER is a
URL, or a command line: FastMCP starts it anew for each request. `plain` is a proxy of a configuration: the
names of a single server stay, those of several get its name. `mounted` mounts a proxy of each server with its
name as the namespace.
"""

# mypy: ignore-errors
# (the packages are those of another environment)

from __future__ import annotations

import os
import shlex
import socket
import sys

import uvicorn
from fastmcp import FastMCP
from fastmcp.server import create_proxy


def entry(server: str) -> dict[str, object]:
    if server.startswith("http"):
        return {"url": server, "transport": "http"}
    command, *args = shlex.split(server)
    return {"command": command, "args": args, "env": dict(os.environ)}


def main() -> None:
    shape, *named = sys.argv[1:]
    is_http = "--http" in named
    servers = dict(pair.split("=", 1) for pair in named if pair != "--http")
    if shape == "mounted":
        gateway = FastMCP("gateway")
        for name, server in servers.items():
            gateway.mount(create_proxy({"mcpServers": {name: entry(server)}}), namespace=name)
    else:
        gateway = create_proxy(
            {"mcpServers": {name: entry(it) for name, it in servers.items()}}, name="gateway"
        )
    if not is_http:
        gateway.run(transport="stdio", show_banner=False)
        return
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(gateway.http_app(), log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    main()
