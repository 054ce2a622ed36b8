"""A WebSocket as a transport of the SDK's client, which has none: our frames, and its messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import trio
from mcp.shared.message import SessionMessage
from wsproto.connection import ConnectionType

from playhead.client.transports.websocket_opening import (
    RECEIVE_BYTES,
    WebSocketOptions,
    open_stream,
    upgrade,
)
from playhead.limits import DEFAULT_LIMITS
from playhead.protocol.frame_stream import FrameStream
from playhead.protocol.framing import Line
from playhead.web_address import WebAddress


@asynccontextmanager
async def sdk_websocket(url: str) -> AsyncIterator[tuple[Any, Any]]:
    to_client, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writing, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    address = WebAddress.parse(url)
    stream = await open_stream(address, verify=None)
    _subprotocol, chunk = await upgrade(stream, address, WebSocketOptions())
    frames = FrameStream(ConnectionType.CLIENT, max_bytes=DEFAULT_LIMITS.message_bytes)

    async def receive() -> None:
        nonlocal chunk
        async with to_client:
            while frames.closed is None:
                frames.feed(chunk)
                while (event := frames.next_event()) is not None or frames.has_more:
                    if isinstance(event, Line):
                        message = types.jsonrpc_message_adapter.validate_json(event.data)
                        await to_client.send(SessionMessage(message))
                chunk = bytes(await stream.receive_some(RECEIVE_BYTES))
                if not chunk:
                    frames.end()

    async def send() -> None:
        async with from_client:
            async for item in from_client:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stream.send_all(frames.text(text.encode()))

    async with stream, reading, writing, trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        nursery.start_soon(send)
        yield reading, writing
        nursery.cancel_scope.cancel()
