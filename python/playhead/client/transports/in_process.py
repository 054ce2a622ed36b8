"""A server object of the SDK in this process, as a carrier over two memory streams.

A lowlevel `Server` runs over them with its public `run`. For an `MCPServer` the SDK has only the undocumented
`InMemoryTransport`, which no other file imports.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
import trio
from mcp.server import Server
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from playhead.client.transports.carrier import Carrier, Receiver
from playhead.errors import ConnectionLostError
from playhead.protocol.exchange import Outgoing

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

GRACE_SECONDS: Final = 2.0
"""Limits the wait for a server to end by itself once its input has ended, as in the SDK."""


class _Writes(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...


class InProcessCarrier(Carrier):
    """The two streams of a server object."""

    def __init__(self, server: Server[Any] | MCPServer) -> None:
        self._server = server
        self._write: _Writes

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[None]:
        async with _streams_of(self._server) as (read, self._write), trio.open_nursery() as nursery:

            async def receive() -> None:
                async for item in read:
                    if isinstance(item, SessionMessage):
                        message = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                        receiver.take(receiver.exchange.receive(message.encode()))
                receiver.lost(self._ended())

            nursery.start_soon(receive)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()

    def _ended(self) -> ConnectionLostError:
        return ConnectionLostError(f"expected an answer, but the server {self._server.name!r} has ended")

    async def request(self, outgoing: Outgoing, *, is_repeat: bool = False) -> None:
        try:
            await self._put(outgoing.data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise self._ended() from error

    async def tell(self, data: bytes, *, given_up: Outgoing | None = None) -> None:
        try:
            await self._put(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # nobody waits

    async def _put(self, data: bytes) -> None:
        await self._write.send(SessionMessage(jsonrpc_message_adapter.validate_json(data, by_name=False)))


@asynccontextmanager
async def _streams_of(server: Server[Any] | MCPServer) -> AsyncIterator[tuple[Any, Any]]:
    """Run a server, and give the streams to read from it and to write to it."""
    if not isinstance(server, Server):
        from mcp.client._memory import InMemoryTransport

        async with InMemoryTransport(server) as streams:
            yield streams
        return
    writing, server_reads = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    server_writes, reading = anyio.create_memory_object_stream[SessionMessage](0)
    ended = trio.Event()

    async def run() -> None:
        async with server_reads, server_writes:
            await server.run(server_reads, server_writes, server.create_initialization_options())
        ended.set()

    async with reading, writing, trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield reading, writing
        writing.close()
        with trio.move_on_after(GRACE_SECONDS):
            await ended.wait()
        nursery.cancel_scope.cancel()
