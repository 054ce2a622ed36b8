"""The Python SDK's client: a URL or a command, and a line of JSON with what it got."""

import json
import sys
from contextlib import AbstractAsyncContextManager
from typing import Any
from warnings import simplefilter

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


async def main(*target: str) -> None:
    first, *rest = target
    updated = anyio.Event()
    seen: list[str] = []

    async def note(message: Any) -> None:
        uri = getattr(getattr(message, "params", None), "uri", None)
        if uri is not None:
            seen.append(str(uri))
            updated.set()

    carrier: AbstractAsyncContextManager[Any] = (
        streamable_http_client(first)
        if first.startswith("http")
        else stdio_client(StdioServerParameters(command=first, args=rest))
    )
    async with carrier as streams, ClientSession(streams[0], streams[1], message_handler=note) as session:
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        echo = await session.call_tool("echo", {"text": "hello"})
        song = await session.call_tool("song", {"text": "here"})
        resources = [str(each.uri) for each in (await session.list_resources()).resources]
        contents: Any = (await session.read_resource("song://1")).contents
        await session.subscribe_resource("song://1")
        await session.call_tool("touch", {})
        with anyio.fail_after(10):
            await updated.wait()
    got = {
        "tools": tools,
        "echo": [block.model_dump(mode="json").get("text") for block in echo.content],
        "song": [block.model_dump(mode="json").get("text") for block in song.content],
        "resources": resources,
        "read": contents[0].text,
        "updated": seen,
    }
    print(json.dumps(got))


simplefilter("ignore")  # `resources/subscribe` is deprecated
anyio.run(main, *sys.argv[1:])
