"""An HTTP/1.1 server written by hand, because the faults it makes are ones that no framework lets through.

It speaks the handshake of the old era by itself (and refuses `server/discover`), and hands every other
request to the test, with the socket.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from tests.servers.loopback import tcp_server

Json = dict[str, Any]
MALFORMED: Json = {}
"""The message of a body that is not JSON."""


@dataclass(slots=True)
class Exchange:
    """One request and the means to answer it, well or badly."""

    verb: str
    target: str
    headers: dict[str, str]
    content: bytes
    message: Json
    """`content`, if it is JSON."""
    stream: trio.SocketStream
    closed: bool = False

    @property
    def method(self) -> str:
        return str(self.message.get("method", ""))

    async def json(self, body: Json, *, status: int = 200, headers: str = "") -> None:
        await self.body(json.dumps(body).encode(), status=status, headers=headers)

    async def result(self, result: Json, *, headers: str = "") -> None:
        await self.json({"jsonrpc": "2.0", "id": self.message["id"], "result": result}, headers=headers)

    async def error(self, code: int, message: str, *, status: int = 200) -> None:
        error = {"code": code, "message": message}
        await self.json({"jsonrpc": "2.0", "id": self.message["id"], "error": error}, status=status)

    async def body(
        self, body: bytes, *, status: int = 200, kind: str = "application/json", headers: str = ""
    ) -> None:
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
        await self.stream.send_all(head.encode() + body)

    async def raw(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def begin(self, kind: str = "text/event-stream") -> None:
        """The head of an answer in chunks."""
        head = f"HTTP/1.1 200 X\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
        await self.stream.send_all(head.encode())

    async def chunk(self, data: bytes = b"", *, last: bool = False) -> None:
        piece = b"%x\r\n%s\r\n" % (len(data), data) if data else b""
        await self.stream.send_all(piece + (b"0\r\n\r\n" if last else b""))

    async def hang_up(self) -> None:
        self.closed = True
        await self.stream.aclose()


Handler = Callable[[Exchange], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class RawServer:
    url: str = ""
    connections: int = 0
    methods: list[str] = field(default_factory=list)
    """Of every JSON-RPC message that came, in order."""
    headers: list[dict[str, str]] = field(default_factory=list)
    greet: Callable[[Exchange], Awaitable[bool]] | None = None
    """In place of the handshake below; gives whether it answered."""
    capabilities: Json = field(default_factory=lambda: {"tools": {}})
    """Capabilities in the answer to `initialize`."""
    session: str | None = None
    """If given, the session id of the answer to `initialize`, with the number of the handshake."""
    host: str = "127.0.0.1"
    """The only `Host` that the handshake accepts."""

    async def handshake(self, exchange: Exchange) -> bool:
        """Answer what belongs to a handshake of the old era; False for anything else."""
        host = exchange.headers.get("host", self.host).partition(":")[0]
        if host != self.host or "origin" in exchange.headers:
            await exchange.body(b"", status=403)
        elif exchange.headers.get("mcp-protocol-version") == "1999-12-31":
            await exchange.body(b"", status=400)
        elif exchange.verb != "POST":
            await exchange.body(b"", status=405)
        elif exchange.message is MALFORMED:
            await exchange.body(b"", status=400)
        elif exchange.method == "server/discover":
            await exchange.error(-32601, "Method not found")
        elif exchange.method == "initialize":
            count = self.methods.count("initialize")
            session = f"mcp-session-id: {self.session}-{count}\r\n" if self.session else ""
            await exchange.result(
                {
                    "protocolVersion": "2025-11-25",
                    "capabilities": self.capabilities,
                    "serverInfo": {"name": "raw", "version": "1"},
                },
                headers=session,
            )
        elif "id" not in exchange.message:
            await exchange.raw(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        else:
            return False
        return True


@asynccontextmanager
async def raw_http(
    handler: Handler, *, session: str | None = None, port: int = 0
) -> AsyncIterator[RawServer]:
    """Serve on loopback; `handler` gets everything but the handshake (several calls may run at once)."""
    server = RawServer(session=session)

    async def serve(stream: trio.SocketStream) -> None:
        server.connections += 1
        try:
            async with stream:
                while (exchange := await _receive(stream)) is not None:
                    server.methods.append(exchange.method)
                    server.headers.append(exchange.headers)
                    if not await (server.greet or server.handshake)(exchange):
                        await handler(exchange)
                    if exchange.closed:
                        return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async with tcp_server(serve, port=port) as bound:
        server.url = f"http://127.0.0.1:{bound}/mcp"
        yield server


async def _receive(stream: trio.SocketStream) -> Exchange | None:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = await stream.receive_some(65536)
        if not chunk:
            return None
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "0"))
    while len(body) < length:
        chunk = await stream.receive_some(65536)
        if not chunk:
            return None
        body += chunk
    verb, target, _ = first.split(" ")
    is_json = headers.get("content-type", "").startswith("application/json")
    try:
        message = json.loads(body) if is_json else {}
    except ValueError:
        message = MALFORMED
    return Exchange(verb, target, headers, body, message, stream)
