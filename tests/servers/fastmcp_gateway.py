"""FastMCP's proxy in front of other servers, over stdio, as its documentation shows it.

    python fastmcp_gateway.py plain|mounted NAME=URL...     (of the environment that `make gateways` makes)

`plain` is a proxy of a configuration: the names of a single server stay, those of several get its name.
`mounted` mounts a proxy of each server with its name as the namespace.
"""

# mypy: ignore-errors
# (the packages are those of another environment)

from __future__ import annotations

import sys

from fastmcp import FastMCP
from fastmcp.server import create_proxy


def main() -> None:
    shape, *named = sys.argv[1:]
    urls = dict(pair.split("=", 1) for pair in named)
    if shape == "mounted":
        gateway = FastMCP("gateway")
        for name, url in urls.items():
            gateway.mount(create_proxy(url), namespace=name)
    else:
        servers = {name: {"url": url, "transport": "http"} for name, url in urls.items()}
        gateway = create_proxy({"mcpServers": servers}, name="gateway")
    gateway.run(transport="stdio", show_banner=False)


if __name__ == "__main__":
    main()
