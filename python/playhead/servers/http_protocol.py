"""HTTP/1.1 of one connection: hypercorn's, with our WebSocket and without HTTP/2."""

from __future__ import annotations

from typing import Any, cast

import h11
from hypercorn.events import Closed, Event
from hypercorn.protocol.events import Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol, H11WSConnection

from playhead.servers.websocket_frames import WebSocketStream, Wire


class Http1(H11Protocol):
    """Requests, and the upgrade to WebSocket.

    HTTP/2, which hypercorn would offer to whoever asks in clear text, has none of the deadlines that bound a
    connection: who speaks it is hung up on.
    """

    def __init__(self, *args: Any, wire: Wire) -> None:
        super().__init__(*args)
        self._wire = wire

    async def handle(self, event: Event) -> None:
        """Takes what came from the client."""
        try:
            await super().handle(event)
        except _NotSpokenError:
            await self.send(Closed())

    async def _check_protocol(self, event: h11.Request) -> None:
        if event.method == b"PRI" or b"h2c" in _tokens(event, b"upgrade"):
            raise _NotSpokenError

    async def _create_stream(self, request: h11.Request) -> None:
        if not (
            request.method.upper() == b"GET"
            and b"websocket" in _tokens(request, b"upgrade")
            and b"upgrade" in _tokens(request, b"connection")
        ):
            await super()._create_stream(request)
            return
        if not all(value.isascii() for _, value in request.headers):
            # hypercorn decodes some of them as ASCII, and its error would end the whole server.
            await self._send_error_response(400)
            raise _NotSpokenError
        self.stream = WebSocketStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
            wire=self._wire,
        )
        self.connection = H11WSConnection(cast(h11.Connection, self.connection))
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method="GET",
                raw_path=request.target,
                state=self.connection_state,
            )
        )


class _NotSpokenError(Exception):
    """The client speaks something else."""


def _tokens(request: h11.Request, name: bytes) -> list[bytes]:
    return [
        token.strip().lower() for key, value in request.headers if key == name for token in value.split(b",")
    ]
