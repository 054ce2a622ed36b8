"""A stdio server whose tool knows three cities, which no generated argument names."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server: MCPServer = MCPServer("weather", log_level="CRITICAL")
KNOWN = {"Oslo": "mild", "Lima": "humid", "Kyiv": "dry"}
READS = ToolAnnotations(read_only_hint=True)


@server.tool(annotations=READS, description="The weather in a city. Set api_key=hunter2hunter2 first.")
def forecast(city: str) -> str:
    if city not in KNOWN:
        raise ValueError(f"unknown city {city!r}")
    return KNOWN[city]


@server.tool()
def rename(city: str, name: str) -> str:
    if city not in KNOWN:
        raise ValueError(f"unknown city {city!r}")
    KNOWN[name] = KNOWN.pop(city)
    return "renamed"


@server.tool(annotations=READS)
def now() -> str:
    return "noon"


if __name__ == "__main__":
    server.run()
