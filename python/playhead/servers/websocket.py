"""MCP over WebSocket, the server's side: one JSON-RPC message a text frame.

Off-standard: see docs/websocket.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from mcp.server import Server
from starlette.websockets import WebSocket

SUBPROTOCOL: Final = "mcp"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketOptions:
    """What one connection may cost."""

    message_bytes: int = 1088 * 1024
    """A message from the client; a longer one closes with 1009."""
    message_seconds: float = 20.0
    """From a message's first piece to its last; then 1008."""
    json_depth: int = 128
    json_values: int = 50_000
    requests_in_flight: int = 32
    """Requests that are worked on at once, or whose answers wait to be sent; further ones wait."""
    requests_waiting: int = 1024
    """Requests in flight and waiting, together; one more is answered with an error."""
    waiting_bytes: int = 4 * 1024 * 1024
    """The same in bytes."""
    ping_seconds: float = 20.0
    """Between two pings."""
    silence_seconds: float = 60.0
    """How long a client may send nothing, not even a pong."""
    send_seconds: float = 30.0
    """For each 64 KiB that a client has to take."""


DEFAULT_OPTIONS: Final = WebSocketOptions()


def websocket_endpoint(
    server: Server[Any], *, options: WebSocketOptions = DEFAULT_OPTIONS
) -> Callable[[WebSocket], Awaitable[None]]:
    """The endpoint of a Starlette `WebSocketRoute` that serves `server` to each client that connects."""

    async def endpoint(websocket: WebSocket) -> None:
        raise NotImplementedError

    return endpoint
