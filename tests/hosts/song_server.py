"""A server with text, audio and a resource that is updated, over stdio. Run it by its path."""

from __future__ import annotations

import base64
import io
import wave
from typing import Any

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated

from playhead.servers.stdio import serve_stdio

URI = "song://1"
ANY = {"type": "object", "properties": {"text": {"type": "string"}}}


async def list_tools(_context: object, _params: object) -> types.ListToolsResult:
    names = ("echo", "song", "touch")
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=ANY) for name in names])


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    text = types.TextContent(type="text", text=str((params.arguments or {}).get("text")))
    if params.name == "song":
        with wave.open(file := io.BytesIO(), "wb") as writer:
            writer.setparams((2, 2, 44_100, 0, "NONE", "NONE"))
            writer.writeframes(bytes(44_100))
        data = base64.b64encode(file.getvalue()).decode("ascii")
        return types.CallToolResult(
            content=[text, types.AudioContent(type="audio", data=data, mime_type="audio/wav")]
        )
    if params.name == "touch":
        await context.session.send_resource_updated(URI)
        await bus.publish(ResourceUpdated(uri=URI))
    return types.CallToolResult(content=[text])


async def list_resources(_context: object, _params: object) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[types.Resource(uri=URI, name="one")])


async def read(_context: object, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text="la la")])


async def done(_context: object, _params: object) -> types.EmptyResult:
    return types.EmptyResult()


bus = InMemorySubscriptionBus()
server: Server[Any] = Server(
    "songs",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_read_resource=read,
    on_subscribe_resource=done,
    on_unsubscribe_resource=done,
    on_subscriptions_listen=ListenHandler(bus),
)
if __name__ == "__main__":
    trio.run(serve_stdio, server)
