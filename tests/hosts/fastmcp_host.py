"""FastMCP's client with the proxy, without a model: an unused word, and the command. Prints the results."""

import asyncio
import json
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport


async def main(_model_url: str, command: str, *arguments: str) -> None:
    async with Client(StdioTransport(command, list(arguments))) as client:
        calls = (
            ("musicPlayer", {"query": ""}, 1.5),
            ("player__pause", {}, 0.5),
            ("set_volume", {"volume": 50}, 0),
            ("player__resume", {}, 6),
        )
        for name, values, seconds in calls:
            result = await client.call_tool(name, values)
            texts = [getattr(block, "text", block.type) for block in result.content]
            print(json.dumps({"role": "tool", "content": "\n".join(texts)}), flush=True)
            await asyncio.sleep(seconds)


asyncio.run(main(*sys.argv[1:]))
