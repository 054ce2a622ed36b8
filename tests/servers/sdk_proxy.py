"""A proxy on the plain SDK, in this process: each request is made anew on a client of the inner server.

As proxies on rmcp and on the SDKs do, it passes on the `uri` and `_meta` of a read, and no `arguments`: they
are not part of the SDK's parameters. `message_bytes` limits the messages as agentgateway does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.server import Server
from mcp.shared.exceptions import MCPError

INTERNAL_ERROR = -32603
TOO_LARGE = "failed to send message: http request failed: body exceeded buffer limit"
"""agentgateway's words for an answer of an upstream that is larger than its buffer."""


@dataclass(slots=True)
class SdkProxy:
    inner: Client
    message_bytes: int | None
    answered: list[int] = field(default_factory=list)
    """Sizes of the messages that were passed on."""
    refused: list[int] = field(default_factory=list)

    async def list_tools(self, _context: object, _params: object) -> types.ListToolsResult:
        return await self.inner.list_tools()

    async def call_tool(self, _context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        result = await self.inner.call_tool(params.name, params.arguments)
        assert isinstance(result, types.CallToolResult)
        return result

    async def list_resources(self, _context: object, _params: object) -> types.ListResourcesResult:
        return await self.inner.list_resources()

    async def list_templates(self, _context: object, _params: object) -> types.ListResourceTemplatesResult:
        return await self.inner.list_resource_templates()

    async def read(
        self, _context: object, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        result = await self.inner.read_resource(params.uri)
        assert isinstance(result, types.ReadResourceResult)
        size = len(result.model_dump_json(by_alias=True, exclude_none=True))
        if self.message_bytes is not None and size > self.message_bytes:
            self.refused.append(size)
            raise MCPError(INTERNAL_ERROR, TOO_LARGE)
        self.answered.append(size)
        return result


@asynccontextmanager
async def sdk_proxy(
    server: Server[Any], *, message_bytes: int | None = None
) -> AsyncIterator[tuple[Server[Any], SdkProxy]]:
    """Yield a server that is a proxy of `server`, and what it counts."""
    async with Client(server) as inner:
        proxy = SdkProxy(inner, message_bytes)
        yield (
            Server(
                "proxy",
                on_list_tools=proxy.list_tools,
                on_call_tool=proxy.call_tool,
                on_list_resources=proxy.list_resources,
                on_list_resource_templates=proxy.list_templates,
                on_read_resource=proxy.read,
            ),
            proxy,
        )
