"""A WebSocket transport for the SDK's client, which has none. Playhead's own sessions use `websocket`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from wsproto.connection import ConnectionType
from wsproto.frame_protocol import CloseReason

from playhead.client.transports.websocket_opening import RECEIVE_BYTES, WebSocketOptions, opened
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.protocol.frame_stream import FrameStream
from playhead.protocol.framing import Line

CLOSE_SECONDS: Final = 1.0
"""Limits the sending of our close frame."""

Received = SessionMessage | Exception
_ENDINGS: Final = (
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
)


@asynccontextmanager
async def websocket_transport(
    url: str, *, limits: Limits = DEFAULT_LIMITS, options: WebSocketOptions | None = None
) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Received], MemoryObjectSendStream[SessionMessage]]]:
    """Return a transport for `mcp.Client` to the server at the `ws:` or `wss:` URL `url`.

    Pings are answered, a message that cannot be read is the SDK's to report, and the end of the connection is
    the end of the stream. Raises as `WebSocketCarrier.open`. Leaving closes the connection.
    """
    async with opened(url, limits, options or WebSocketOptions()) as (stream, _subprotocol, received):
        frames = FrameStream(ConnectionType.CLIENT, max_bytes=limits.message_bytes)
        sending = trio.Lock()
        to_client, reading = anyio.create_memory_object_stream[Received](0)
        writing, from_client = anyio.create_memory_object_stream[SessionMessage](0)

        async def write(data: bytes) -> None:
            async with sending:
                await stream.send_all(data)

        async def receive(chunk: bytes) -> None:
            with suppress(*_ENDINGS):
                while frames.closed is None:
                    frames.feed(chunk)
                    while (event := frames.next_event()) is not None or frames.has_more:
                        if isinstance(event, Line):
                            await to_client.send(_parsed(event.data))
                    if frames.has_control:
                        await write(frames.control())
                    chunk = bytes(await stream.receive_some(RECEIVE_BYTES))
                    if not chunk:
                        frames.end()
            to_client.close()

        async def send() -> None:
            with suppress(*_ENDINGS):
                async for item in from_client:
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await write(frames.text(text))

        async with to_client, reading, writing, from_client, trio.open_nursery() as nursery:
            nursery.start_soon(receive, received)
            nursery.start_soon(send)
            yield reading, writing
            nursery.cancel_scope.cancel()
        with trio.move_on_after(CLOSE_SECONDS), suppress(*_ENDINGS):
            await stream.send_all(frames.close(CloseReason.NORMAL_CLOSURE))


def _parsed(data: bytes) -> Received:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(data))
    except ValueError as error:
        return error
