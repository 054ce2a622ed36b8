"""The template server in this process, and what the tests of it ask again and again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import mcp_types as types
import trio
from mcp.shared.message import SessionMessage

from playhead.servers.template import TemplateServerOptions
from playhead.servers.template.serve import open_template_server

Json = dict[str, Any]


class Wire:
    """A connection that sends what it is told to, word for word, and gives what comes back."""

    def __init__(self, send: Any, receive: Any) -> None:
        self._send, self._receive = send, receive
        self._last_id = 0

    async def notify(self, method: str) -> None:
        await self._put({"jsonrpc": "2.0", "method": method})

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> Json:
        """The whole answer to a request."""
        self._last_id += 1
        request: Json = {"jsonrpc": "2.0", "id": self._last_id, "method": method}
        await self._put(request if params is None else {**request, "params": dict(params)})
        answer: Json = (await self._receive.receive()).message.model_dump(by_alias=True, exclude_none=True)
        assert answer["id"] == self._last_id
        return answer

    async def result(self, method: str, params: Mapping[str, Any] | None = None) -> Json:
        answer = await self.ask(method, params)
        assert "result" in answer, answer
        found: Json = answer["result"]
        return found

    async def error(self, method: str, params: Mapping[str, Any] | None = None) -> Json:
        answer = await self.ask(method, params)
        assert "error" in answer, answer
        found: Json = answer["error"]
        return found

    async def call(self, tool: str, **arguments: object) -> Json:
        return await self.result("tools/call", {"name": tool, "arguments": arguments})

    async def _put(self, message: Json) -> None:
        await self._send.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(message)))


@asynccontextmanager
async def wire(options: TemplateServerOptions | None = None) -> AsyncIterator[Wire]:
    """A connection over memory on which nothing was said yet."""
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](10)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage](10)
    async with open_template_server(options) as server, trio.open_nursery() as nursery:
        run = partial(server.run, from_client, to_client, server.create_initialization_options())
        nursery.start_soon(run)
        async with to_server, from_server:
            yield Wire(to_server, from_server)
        nursery.cancel_scope.cancel()


class Modern(Wire):
    """The same in revision 2026-07-28: each request says by itself what its client is."""

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> Json:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        return await super().ask(method, {**(params or {}), "_meta": meta})


@asynccontextmanager
async def connected(
    revision: str = "2025-11-25", options: TemplateServerOptions | None = None
) -> AsyncIterator[Wire]:
    """A connection after its handshake, or one of the revision that has none."""
    async with wire(options) as raw:
        if revision == "2026-07-28":
            yield Modern(raw._send, raw._receive)
            return
        hello = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
        agreed = await raw.result("initialize", hello)
        assert agreed["protocolVersion"] == revision
        await raw.notify("notifications/initialized")
        yield raw
