"""WebSocket servers for tests: an SDK server behind trio-websocket, and handlers that say what they like.

trio-websocket is not what the client is made of, so the two ends do not share their mistakes.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import mcp_types as types
import trio
from mcp.server import Server
from mcp.shared.message import SessionMessage
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, WebSocketServer
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request

from tests.servers.loopback import tcp_server

Handler = Callable[[WebSocketRequest], Awaitable[None]]


@asynccontextmanager
async def listening(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The URL of a server that hands each upgrade request to `handler`."""

    async def handle(request: WebSocketRequest) -> None:
        with suppress(ConnectionClosed):  # the client left
            await handler(request)

    async with trio.open_nursery() as nursery:
        plain = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = plain[0].socket.getsockname()[1]
        listeners: list[trio.SSLListener[trio.SocketStream] | trio.SocketListener] = list(plain)
        if tls is not None:
            listeners = [trio.SSLListener(listener, tls, https_compatible=True) for listener in plain]
        server = WebSocketServer(
            handle, listeners, handler_nursery=nursery, max_message_size=1 << 26, disconnect_timeout=1
        )
        await nursery.start(server.run)
        yield f"{'ws' if tls is None else 'wss'}://localhost:{port}/mcp"
        nursery.cancel_scope.cancel()


def frame(payload: bytes, *, first: bool = True, final: bool = True, opcode: int = 1) -> bytes:
    """A frame of a message, as no library would let a test write it."""
    head, length = (0x80 if final else 0) | (opcode if first else 0), len(payload)
    if length < 126:
        return bytes([head, length]) + payload
    if length < 1 << 16:
        return bytes([head, 126]) + struct.pack("!H", length) + payload
    return bytes([head, 127]) + struct.pack("!Q", length) + payload


async def serve_session(server: Server[Any], websocket: WebSocketConnection) -> None:
    """Run `server` over one connection, until it ends."""
    to_server, server_read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    server_write, from_server = anyio.create_memory_object_stream[SessionMessage](0)

    async def take() -> None:
        async with to_server:
            while True:
                message = types.jsonrpc_message_adapter.validate_json(await websocket.get_message())
                await to_server.send(SessionMessage(message))

    async def give() -> None:
        async with from_server:
            async for message in from_server:
                await websocket.send_message(
                    message.message.model_dump_json(by_alias=True, exclude_unset=True)
                )

    try:
        async with server_read, server_write, trio.open_nursery() as nursery:
            nursery.start_soon(take)
            nursery.start_soon(give)
            await server.run(server_read, server_write, server.create_initialization_options())
            nursery.cancel_scope.cancel()
    except* (ConnectionClosed, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the client left, perhaps in the middle of an answer


def mcp_handler(server: Server[Any], *, subprotocol: str | None = "mcp") -> Handler:
    """Accepts every request for a WebSocket and serves `server` over it."""

    async def handle(request: WebSocketRequest) -> None:
        websocket = await request.accept(subprotocol=subprotocol)
        await serve_session(server, websocket)

    return handle


@asynccontextmanager
async def raw_websocket(
    talk: Callable[[trio.SocketStream, WSConnection], Awaitable[None]],
) -> AsyncIterator[str]:
    """The URL of a server that opens a WebSocket and leaves every frame to `talk`."""

    async def handle(stream: trio.SocketStream) -> None:
        connection = WSConnection(ConnectionType.SERVER)
        connection.receive_data(bytes(await stream.receive_some()))
        assert isinstance(next(connection.events()), Request)
        await stream.send_all(connection.send(AcceptConnection()))
        await talk(stream, connection)

    async with tcp_server(handle) as port:
        yield f"ws://127.0.0.1:{port}/mcp"
