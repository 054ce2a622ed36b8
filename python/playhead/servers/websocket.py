"""MCP over WebSocket, the server's side: one JSON-RPC message a text frame.

Off-standard: see docs/websocket.md. The SDK answers the messages, in whichever era the client opens with;
here they are carried, and what one client can cost is bounded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from mcp.server import Server
from starlette.responses import PlainTextResponse
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from playhead.servers.shutdown import shutdown_of
from playhead.servers.websocket_connection import WebSocketConnection
from playhead.servers.websocket_frames import OPTIONS_KEY, FrameOptions
from playhead.servers.websocket_memory import Account, Pool
from playhead.servers.websocket_requests import RequestLimits

SUBPROTOCOL: Final = "mcp"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketOptions:
    """What one connection may cost. The sizes are bytes, the times seconds."""

    message_bytes: int = 1088 * 1024
    """A message from the client, in as many frames as it likes: 1 MiB, as over HTTP, and room for what goes
    around its arguments. A longer one closes with 1009."""
    message_seconds: float = 20.0
    """From a message's first piece to its last; then 1008."""
    json_depth: int = 128
    """Nesting of a message."""
    json_values: int = 50_000
    """Values of a message: `[[],[],…` of the greatest length would become 60 MB of Python lists."""
    requests_in_flight: int = 32
    """Requests that are worked on at once, or whose answers were not taken yet: so much can a client make the
    server hold that does not read. Further ones wait for their turn."""
    requests_waiting: int = 1024
    """Requests in flight and waiting; one more is answered with -32603 at once."""
    waiting_bytes: int = 4 * 1024 * 1024
    """The same, in bytes of the requests."""
    ping_seconds: float = 20.0
    """Between two pings: half of what the usual proxies and NATs allow an idle connection."""
    silence_seconds: float = 60.0
    """How long a client may send nothing, not even a pong; then 1008."""
    send_seconds: float = 30.0
    """For each 64 KiB that a client has to take: 2 KiB/s, a tenth of the slowest music."""
    shared_bytes: int = 32 * 1024 * 1024
    """What messages, requests and answers of all clients together may take, beside 256 KiB and one answer
    for each. Past it further requests wait until their client has taken an answer, too large ones are
    answered with -32603, and a connection whose message there is no room for is closed with 1013."""


DEFAULT_OPTIONS: Final = WebSocketOptions()


def websocket_routes(server: Server[Any], path: str) -> list[WebSocketRoute]:
    """`server` at `path`, and HTTP 404 to whoever asks for a WebSocket elsewhere.

    Starlette answers those with 403, which says that other credentials would help. As the last routes.
    """
    return [WebSocketRoute(path, websocket_endpoint(server)), WebSocketRoute("/{path:path}", _nowhere)]


async def _nowhere(websocket: WebSocket) -> None:
    await websocket.send_denial_response(PlainTextResponse("no WebSocket at this path", status_code=404))


def websocket_endpoint(
    server: Server[Any], *, options: WebSocketOptions = DEFAULT_OPTIONS
) -> Callable[[WebSocket], Awaitable[None]]:
    """The endpoint of a Starlette `WebSocketRoute` that serves `server` to every client that connects.

    Under `serve_app` all of `options` hold, and a shutdown lets the requests in flight have their answers and
    then closes with 1001. Under another ASGI server the frames (size, pings, silence, deadlines) are bounded
    by that server's own settings.

    Close codes: 1003 a binary frame; 1007 text that is not UTF-8; 1002 what is no frame; 1009 a message too
    long; 1008 a message not whole in time, or silence; 1001 shut down; 1011 the server failed; 1013 no room.
    """
    limits = RequestLimits(
        json_depth=options.json_depth,
        json_values=options.json_values,
        in_flight=options.requests_in_flight,
        waiting=options.requests_waiting,
        waiting_bytes=options.waiting_bytes,
    )
    pool = Pool(options.shared_bytes)

    async def endpoint(websocket: WebSocket) -> None:
        account = Account(pool)
        frames = FrameOptions(
            message_bytes=options.message_bytes,
            message_seconds=options.message_seconds,
            ping_seconds=options.ping_seconds,
            silence_seconds=options.silence_seconds,
            send_seconds=options.send_seconds,
            account=account,
        )
        offered = websocket.scope.get("subprotocols") or ()
        await websocket.receive()  # "websocket.connect"
        await websocket.send(
            {
                "type": "websocket.accept",
                "subprotocol": SUBPROTOCOL if SUBPROTOCOL in offered else None,
                "headers": [],
                OPTIONS_KEY: frames,
            }
        )
        try:
            await WebSocketConnection(server, websocket, limits, account, shutdown_of(websocket.scope)).run()
        finally:
            account.close()

    return endpoint
