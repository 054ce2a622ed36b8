"""A WebSocket MCP server of the field, with each habit that a client has to live with, one by one.

It knows 2024-11-05 alone, wants a notification named `initialized`, leaves the id out of what it could not
read, answers in series, and takes any path of HTTP for its own. `QuirkyServer.heard` tells what it was sent.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream

REVISION = "2024-11-05"
EXACT_INTEGERS = 2**53
HEALTH = {"name": "quirky", "status": "healthy", "time": "2026-01-01T00:00:00Z", "version": "1.0.0"}
NO_ID = object()


class RefusalError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


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
            body = json.dumps(HEALTH).encode() if target == "/health" else b"welcome\n"
            lines = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
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
        greeted = False
        while True:
            text = await websocket.get_message()
            if isinstance(text, bytes):
                continue
            try:
                message = json.loads(text, parse_int=rounded)
            except ValueError:
                message = None
            if not isinstance(message, dict):  # a batch as well
                await self._fail(websocket, NO_ID, -32700, "Parse error")
                continue
            method, request_id = message.get("method", ""), message.get("id", NO_ID)
            self.heard.append((method, None if request_id is NO_ID else request_id))
            greeted = greeted or method == "initialized"
            if request_id is NO_ID:
                continue
            try:
                result = await self._answer(method, message.get("params") or {}, greeted)
            except RefusalError as refusal:
                await self._fail(websocket, request_id, refusal.code, str(refusal))
                continue
            await websocket.send_message(json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}))

    async def _fail(self, websocket: WebSocketConnection, request_id: Any, code: int, said: str) -> None:
        named = {} if request_id is NO_ID else {"id": request_id}
        answer = {"jsonrpc": "2.0", **named, "error": {"code": code, "message": said}}
        await websocket.send_message(json.dumps(answer))

    async def _answer(self, method: str, params: Mapping[str, Any], greeted: bool) -> dict[str, Any]:
        match method:
            case "initialize":
                if params.get("protocolVersion") != REVISION:
                    raise RefusalError(
                        -32603, f"unsupported protocol version: {params.get('protocolVersion')}"
                    )
                return {
                    "protocolVersion": REVISION,
                    "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
                    "serverInfo": {"name": "quirky", "version": "1.0.0"},
                }
            case "tools/list":
                return {"tools": TOOLS}
            case "tools/call":
                if not greeted:
                    raise RefusalError(-32603, "handler not initialized")
                return await self._call(params.get("name"), params.get("arguments") or {})
            case "resources/list":
                return {"resources": [{"uri": "note://a", "name": "a"}]}
            case "resources/read":
                if params.get("uri") != "note://a":
                    raise RefusalError(-32603, f"resource not found: {params.get('uri')}")
                return {"contents": [{"uri": "note://a", "mimeType": "text/plain", "blob": "YSBub3Rl"}]}
            case "prompts/list":
                return {"prompts": [{"name": "greet"}]}
            case "prompts/get":
                if params.get("name") != "greet":
                    raise RefusalError(-32603, f"prompt not found: {params.get('name')}")
                blocks = [{"type": "text", "text": "Good"}, {"type": "text", "text": "morning"}]
                return {"messages": [{"role": "user", "content": blocks}]}
            case _:  # ping and resources/templates/list among them
                raise RefusalError(-32601, f"method not found: {method}")

    async def _call(self, name: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        match name, arguments:
            case "calculator", {"operation": "add", "a": a, "b": b}:
                return {"content": [{"type": "text", "text": f"{a + b}"}]}
            case "calculator", _:
                text = "expected operation, a and b"
                return {"content": [{"type": "text", "text": text}], "isError": True}
            case "web_search", {"query": query}:
                self.searching.set()
                await self.found.wait()
                return {"content": [{"type": "text", "text": f"nothing about {query}"}]}
            case _:
                raise RefusalError(-32603, f"tool not found: {name}")


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
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
        server.url = f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"
        yield server
        nursery.cancel_scope.cancel()
