"""A conversation with the template server: each tool, resource and prompt, and each kind of failure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from mcp import Client
from mcp.client import Transport
from mcp.shared.exceptions import MCPError

from playhead.servers.serving import Shutdown
from playhead.servers.template import TemplateServerOptions
from playhead.servers.template.serve import serve
from tests.documents.conversation import Streams, conversation
from tests.servers.loopback import started
from tests.servers.messages import initialize


@asynccontextmanager
async def template_server(token: str | None = None, shutdown: Shutdown | None = None) -> AsyncIterator[str]:
    """The template server in this process, over HTTP and WebSocket; its base URL."""
    options = TemplateServerOptions(transport="http", port=0, token=token)
    async with started(serve, options, shutdown=shutdown or Shutdown()) as url:
        yield url.removesuffix("/mcp")


CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("calculator", {"expression": "2 + 3 * 4"}),
    ("calculator", {"operation": "divide", "a": 1, "b": 0}),
    ("calculator", {"expression": 3}),
    ("web_search", {"query": "sampling", "max_results": 2}),
    ("document_analyzer", {"text": "Sound is a wave. It needs a medium."}),
    ("knowledge_graph", {"entity": "Claude Shannon", "depth": 2}),
    ("no_such_tool", {}),
)
FIRST_CLIENT: tuple[dict[str, Any], ...] = (
    initialize("2024-11-05", id="one"),
    {"method": "initialized"},
    {"id": "two", "method": "tools/list"},
    {"id": 3, "method": "tools/call", "params": {"name": "calculator", "arguments": {"expression": "1 / 4"}}},
    {"id": 4, "method": "tools/call", "params": {"name": "none"}},
    {"id": 5, "method": "resources/read", "params": {"uri": "pages://none"}},
    {"id": 6, "method": "prompts/get", "params": {"name": "none"}},
    {"id": 7, "method": "logging/setLevel", "params": {"level": "info"}},
    {"id": 8, "method": "ping"},
)  # fmt: skip
"""A client of the first version, which meets all but one of the codes that only this version has."""


async def talk_template(transport: Transport, *, mode: str) -> None:
    """The requests of the SDK's client."""
    async with Client(transport, mode=mode, cache=None) as client:
        listed = await client.list_tools()
        resources = await client.list_resources()
        await client.list_resources(cursor=resources.next_cursor)
        await client.list_resource_templates()
        await client.list_prompts()
        for name, arguments in CALLS:
            await _may_fail(client.call_tool(name, arguments))
        await client.read_resource("pages://sampling")
        await client.get_prompt("research", {"question": "What is sound?"})
        await _may_fail(client.read_resource("pages://none"))
        await _may_fail(client.get_prompt("none"))
        await _may_fail(client.get_prompt("research"))
        await _may_fail(client.list_tools(cursor="none"))
        assert {tool.name for tool in listed.tools} >= {"calculator", "web_search"}


async def _may_fail(asking: Coroutine[Any, Any, object]) -> None:
    try:
        await asking
    except MCPError:
        return


async def template_conversation(connect: Callable[[], AbstractAsyncContextManager[Streams]]) -> list[str]:
    return await conversation(connect, FIRST_CLIENT, talk_template)
