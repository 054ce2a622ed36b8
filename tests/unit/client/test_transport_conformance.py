"""The stdio and in-process carriers against the public suite, and the SDK's client as its oracle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
import trio
from mcp.client._memory import InMemoryTransport
from mcp.server import Server
from mcp.shared.message import SessionMessage

from playhead.client.transports.in_process import InProcessCarrier
from playhead.client.transports.stdio import StdioCarrier
from playhead.limits import DEFAULT_LIMITS
from playhead.protocol.framing import Line, LineFramer
from playhead.testing import peers, transports


@asynccontextmanager
async def sdk_in_process(server: Server[Any], mode: str) -> AsyncIterator[transports.Client]:
    async with transports.sdk_client(InMemoryTransport(server), mode=mode) as client:
        yield client


@asynccontextmanager
async def in_process(server: Server[Any], mode: str) -> AsyncIterator[transports.Client]:
    async with transports.carrier_client(InProcessCarrier(server), mode=mode) as client:
        yield client


@asynccontextmanager
async def over_stdio(server: Server[Any], mode: str) -> AsyncIterator[transports.Client]:
    """Real pipes to a relay process, and from there a socket to the server in this process."""

    async def serve(stream: trio.SocketStream) -> None:
        to_server, server_read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        server_write, from_server = anyio.create_memory_object_stream[SessionMessage](0)

        async def take() -> None:
            framer = LineFramer(max_bytes=1 << 26)
            async with to_server:
                async for chunk in stream:
                    framer.feed(chunk)
                    while (event := framer.next_event()) is not None:
                        if isinstance(event, Line):
                            message = types.jsonrpc_message_adapter.validate_json(event.data)
                            await to_server.send(SessionMessage(message))

        async def give() -> None:
            async with from_server:
                async for message in from_server:
                    line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await stream.send_all(line.encode() + b"\n")

        try:
            async with stream, server_read, server_write, trio.open_nursery() as nursery:
                nursery.start_soon(take)
                nursery.start_soon(give)
                await server.run(server_read, server_write, server.create_initialization_options())
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the client left in the middle of an answer

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        carrier = StdioCarrier(peers.relay_command(port), limits=DEFAULT_LIMITS)
        async with transports.carrier_client(carrier, mode=mode) as client:
            yield client
        nursery.cancel_scope.cancel()


@pytest.mark.requirement("MCP-06", "MCP-12")
@pytest.mark.parametrize("check", transports.TRANSPORT_LAWS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    "factory", [sdk_in_process, in_process, over_stdio], ids=lambda factory: factory.__name__
)
async def test_a_client_conforms(
    factory: transports.Factory, check: transports.TransportLaw, mode: str
) -> None:
    await check(factory, mode=mode)
