"""A server object of a test's own process over real pipes: a relay process, and from there a socket to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import trio
from mcp.server import Server
from mcp.shared.message import SessionMessage

from playhead.protocol.framing import Line, LineFramer
from playhead.testing import peers
from tests.servers.loopback import tcp_server


@asynccontextmanager
async def relayed_stdio(server: Server[Any]) -> AsyncIterator[list[str]]:
    """Gives the command that starts a relay."""

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

    async with tcp_server(serve) as port:
        yield peers.relay_command(port)
