"""A server object of the SDK in this process, as a carrier over the SDK's memory streams.

The SDK runs an `MCPServer` over streams in one place only, which it does not document: imported here and
nowhere else, until there is a public one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import trio
from mcp.client._memory import InMemoryTransport
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from playhead.client.transports.carrier import Carrier, Receiver
from playhead.errors import ConnectionLostError
from playhead.protocol.exchange import Outgoing

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer


class _Writes(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...


class InProcessCarrier(Carrier):
    """The two streams of a server object."""

    def __init__(self, server: Server[Any] | MCPServer) -> None:
        self._server = server
        self._write: _Writes

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[None]:
        async with InMemoryTransport(self._server) as (read, self._write), trio.open_nursery() as nursery:

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

    async def request(self, outgoing: Outgoing, *, anew: bool = False) -> None:
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
