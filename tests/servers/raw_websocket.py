"""A WebSocket client of a few lines, for tests of servers: it does what it is told, right or wrong."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import trio
from mcp.client import Transport
from mcp.shared.message import SessionMessage
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import CloseConnection, Event, Ping, TextMessage
from wsproto.utilities import generate_accept_token

from tests.servers.messages import initialize, request

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="


def upgrade(path: str, port: int, *headers: str) -> bytes:
    """The head of a handshake."""
    lines = [
        f"GET {path} HTTP/1.1",
        *([] if any(line.lower().startswith("host:") for line in headers) else [f"Host: 127.0.0.1:{port}"]),
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {KEY.decode()}",
        "Sec-WebSocket-Version: 13",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


class RawWebSocket:
    """One connection, after its handshake."""

    def __init__(self, stream: trio.abc.Stream, head: bytes, rest: bytes) -> None:
        self.stream = stream
        self.head = head
        self.status = int(head.split()[1])
        self.frames = Connection(ConnectionType.CLIENT, trailing_data=rest)
        self.answers_pings = True
        self.answers_close = True
        self.pings = 0
        self._parts: list[str] = []
        self._received: list[Event] = []

    async def send(self, message: object) -> None:
        """A JSON message in one frame."""
        await self.send_text(message if isinstance(message, str) else json.dumps(message))

    async def send_text(self, text: str) -> None:
        await self.stream.send_all(self.frames.send(TextMessage(data=text)))

    async def send_piece(self, text: str, *, last: bool) -> None:
        """One fragment."""
        await self.stream.send_all(self.frames.send(TextMessage(data=text, message_finished=last)))

    async def receive(self) -> Any:
        """The next message as JSON, or `CloseConnection`; 1006 when the connection ended without it."""
        while True:
            for event in self._events():
                match event:
                    case TextMessage():
                        self._parts.append(event.data)
                        if event.message_finished:
                            text, self._parts = "".join(self._parts), []
                            return json.loads(text)
                    case Ping():
                        self.pings += 1
                        if self.answers_pings:
                            await self.stream.send_all(self.frames.send(event.response()))
                    case CloseConnection():
                        if self.answers_close and self.frames.state is ConnectionState.REMOTE_CLOSING:
                            await self.stream.send_all(self.frames.send(event.response()))
                        return event
                    case _:
                        pass
            try:
                data = bytes(await self.stream.receive_some())
            except trio.BrokenResourceError:
                data = b""
            if not data:
                return CloseConnection(code=1006)
            self.frames.receive_data(bytes(data))

    def _events(self) -> Any:
        self._received.extend(self.frames.events())
        while self._received:
            yield self._received.pop(0)

    async def ask(self, method: str, params: dict[str, Any] | None = None, *, id: Any = 1) -> Any:
        """A request, and what comes next."""
        await self.send(request(method, id=id, **(params or {})))
        return await self.receive()

    async def initialize(self, *, version: str = "2024-11-05", notification: str = "initialized") -> Any:
        """The handshake of MCP; gives the server's answer."""
        await self.send(initialize(version, id=0))
        answer = await self.receive()
        await self.send({"jsonrpc": "2.0", "method": notification})
        return answer


def read(uri: str, request_id: int, **arguments: object) -> dict[str, object]:
    """A request that reads a resource."""
    params = {"uri": uri} | ({"arguments": arguments} if arguments else {})
    return {"jsonrpc": "2.0", "id": request_id, "method": "resources/read", "params": params}


@asynccontextmanager
async def raw_websocket(
    port: int, *headers: str, path: str = "/mcp", over: trio.abc.Stream | None = None
) -> AsyncIterator[RawWebSocket]:
    """A connection to a server of this machine; `status` says whether the upgrade was accepted (101)."""
    async with over or await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(upgrade(path, port, *headers))
        received = b""
        while b"\r\n\r\n" not in received:
            data = await stream.receive_some()
            assert data, f"the server left after {received!r}"
            received += data
        head, _, rest = received.partition(b"\r\n\r\n")
        if head.split()[1] == b"101":
            assert generate_accept_token(KEY) in head
        yield RawWebSocket(stream, head, rest)


@asynccontextmanager
async def raw_transport(port: int) -> AsyncIterator[Any]:
    """The same as a transport of the SDK."""
    to_client, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writing, to_server = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive(websocket: RawWebSocket) -> None:
        async with to_client:
            while not isinstance(message := await websocket.receive(), CloseConnection):
                await to_client.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(message)))

    async def send(websocket: RawWebSocket) -> None:
        async with to_server:
            async for item in to_server:
                await websocket.send_text(item.message.model_dump_json(by_alias=True, exclude_unset=True))

    async with (
        raw_websocket(port, "Sec-WebSocket-Protocol: mcp") as websocket,
        reading,
        writing,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(receive, websocket)
        nursery.start_soon(send, websocket)
        yield reading, writing
        nursery.cancel_scope.cancel()


def as_transport(port: int) -> Transport:
    """The transport for `mcp.Client`."""
    transport: Transport = raw_transport(port)
    return transport
