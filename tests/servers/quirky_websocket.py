"""A WebSocket MCP server of the field, imitated field by field: the public Go template (mcp-go-template).

It knows 2024-11-05 alone, wants a notification named `initialized` (from any of its clients), puts a heading
into the message of an error and the reason into its data, leaves the id out of what it could not read,
answers in series, and takes any path of HTTP for its own. `QuirkyServer.heard` tells what it was sent.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream

from tests.servers.loopback import tcp_server

REVISION = "2024-11-05"
EXACT_INTEGERS = 2**53
HEALTH = {"name": "quirky", "status": "healthy", "time": "2026-01-01T00:00:00Z", "version": "1.0.0"}
ROOT = {
    "description": "Quirky.",
    "endpoints": {"health": "/health", "websocket": "/mcp"},
    "name": "quirky",
    "protocol_version": REVISION,
    "version": "1.0.0",
}
NO_ID = object()


class RefusalError(Exception):
    """Without a reason, `data` is left out (Go: `omitempty`)."""

    def __init__(self, code: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({"data": reason} if reason else {})


UNGREETED = "handler not initialized"


def rounded(text: str) -> int:
    """A JSON integer as a server sees it that keeps numbers in 64-bit floats."""
    number = int(text)
    return number if abs(number) <= EXACT_INTEGERS else int(float(number))


class Replayed(trio.abc.Stream):
    """A stream of which the beginning was read already."""

    def __init__(self, begin: bytes, inner: trio.SocketStream) -> None:
        self._begin = begin
        self._inner = inner

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        begin, self._begin = self._begin, b""
        return begin or bytes(await self._inner.receive_some(max_bytes))

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._inner.aclose()


@dataclass(slots=True)
class QuirkyServer:
    """One server, all its connections."""

    url: str = ""
    heard: list[tuple[str, Any]] = field(default_factory=list)
    """Method and id of each message that was one."""
    searching: trio.Event = field(default_factory=trio.Event)
    greeted: bool = False
    """One flag for all clients."""
    found: trio.Event = field(default_factory=trio.Event)
    """A search waits for this. Nothing else is answered on its connection meanwhile."""

    def methods(self) -> list[str]:
        return [method for method, _id in self.heard]

    async def serve(self, stream: trio.SocketStream) -> None:
        head = bytearray()
        while b"\r\n\r\n" not in head:
            chunk = await stream.receive_some()
            if not chunk:
                return
            head += chunk
        target = head.split(b" ", 2)[1].decode()
        if b"upgrade: websocket" not in head.lower() or target != "/mcp":
            body = json.dumps(HEALTH if target == "/health" else ROOT).encode() + b"\n"
            lines = (
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            await stream.send_all(lines.encode() + body)
            await stream.aclose()
            return
        try:
            async with trio.open_nursery() as nursery:
                request = await wrap_server_stream(nursery, Replayed(bytes(head), stream))
                await self._talk(await request.accept())
        except* (ConnectionClosed, trio.BrokenResourceError):
            pass  # the client left

    async def _talk(self, websocket: WebSocketConnection) -> None:
        while True:
            text = await websocket.get_message()
            if isinstance(text, bytes):
                continue
            try:
                message = json.loads(text, parse_int=rounded)
            except ValueError:
                refusal = RefusalError(-32700, "Invalid JSON", "invalid character 'o' in literal null")
                await self._fail(websocket, NO_ID, refusal)
                continue
            if not isinstance(message, dict):  # a batch
                reason = "json: cannot unmarshal array into Go value of type mcp.Message"
                await self._fail(websocket, NO_ID, RefusalError(-32700, "Invalid JSON", reason))
                continue
            method, request_id = message.get("method", ""), message.get("id", NO_ID)
            self.heard.append((method, None if request_id is NO_ID else request_id))
            self.greeted = self.greeted or method == "initialized"
            if request_id is NO_ID:
                continue
            try:
                result = await self._answer(method, message.get("params") or {})
            except RefusalError as refusal:
                await self._fail(websocket, request_id, refusal)
                continue
            await websocket.send_message(json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}))

    async def _fail(self, websocket: WebSocketConnection, request_id: Any, refusal: RefusalError) -> None:
        named = {} if request_id is NO_ID else {"id": request_id}
        await websocket.send_message(json.dumps({"jsonrpc": "2.0", **named, "error": refusal.error}))

    async def _answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                if (asked := params.get("protocolVersion")) != REVISION:
                    raise RefusalError(
                        -32603, "initialization failed", f"unsupported protocol version: {asked}"
                    )
                return {
                    "protocolVersion": REVISION,
                    "capabilities": {"prompts": {}, "resources": {}, "tools": {}},
                    "serverInfo": {"name": "quirky", "version": "1.0.0"},
                }
            case "tools/list":
                return {"tools": TOOLS}
            case "tools/call":
                name = params.get("name")
                self._require("tool call failed", name in {tool["name"] for tool in TOOLS}, "tool", name)
                return await self._call(name, params.get("arguments") or {})
            case "resources/list":
                return {"resources": [{"uri": "note://a", "name": "a"}]}
            case "resources/read":
                uri = params.get("uri")
                self._require("resource read failed", uri == "note://a", "resource", uri)
                return {"contents": [{"uri": "note://a", "mimeType": "text/plain", "blob": "YSBub3Rl"}]}
            case "prompts/list":
                return {"prompts": [{"name": "greet"}]}
            case "prompts/get":
                name = params.get("name")
                self._require("prompt get failed", name == "greet", "prompt", name)
                blocks = [{"type": "text", "text": "Good"}, {"type": "text", "text": "morning"}]
                return {"messages": [{"role": "user", "content": blocks}]}
            case _:  # ping and resources/templates/list among them
                raise RefusalError(-32601, f"method '{method}' not found")

    def _require(self, heading: str, known: bool, kind: str, name: object) -> None:
        if not self.greeted:
            raise RefusalError(-32603, heading, UNGREETED)
        if not known:
            raise RefusalError(-32603, heading, f"{kind} '{name}' not found")

    async def _call(self, name: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        match name, arguments:
            case "calculator", {"operation": "add", "a": a, "b": b}:
                return _text(f"{a:.2f} + {b:.2f} = {a + b:.6f}")
            case "web_search", {"query": query}:
                self.searching.set()
                await self.found.wait()
                return _text(f"No search results found for query: '{query}'")
            case "calculator", _:
                return _text("Error: operation parameter must be a string") | {"isError": True}
            case _:
                text = "Error: query parameter is required and must be a non-empty string"
                return _text(text) | {"isError": True}


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


TOOLS = [
    {
        "name": "calculator",
        "description": "Calculates.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "operation": {"type": "string"},
                "a": {"type": "number"},
                "b": {"type": "number"},
            },
            "required": ["operation", "a", "b"],
        },
    },
    {
        "name": "web_search",
        "description": "Searches.",
        "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
]


@asynccontextmanager
async def quirky_server() -> AsyncIterator[QuirkyServer]:
    """A listening server; leaving ends it."""
    server = QuirkyServer()
    async with tcp_server(server.serve) as port:
        server.url = f"ws://127.0.0.1:{port}/mcp"
        yield server
