"""The bytes of one client's connection, for HTTP and WebSocket."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from typing import Final

import trio

from playhead.limits import KIB

SEND_BYTES: Final = 64 * KIB
"""The size of the pieces to send. `send_seconds` limits the time for each."""
RECEIVE_BYTES: Final = 16 * KIB
"""Limits the bytes of one read."""


class ClientGoneError(ConnectionError):
    """The client closed the connection, or does not read."""


class Wire:
    """The bytes of one connection. Every wait has a deadline."""

    def __init__(self, stream: trio.abc.Stream, send_seconds: float) -> None:
        self._stream = stream
        self.send_seconds = send_seconds

    async def receive(self, deadline: float) -> bytes:
        """Receive bytes; b"" at the end of the connection. Raises `trio.TooSlowError` at the deadline."""
        with trio.fail_at(deadline):
            try:
                return bytes(await self._stream.receive_some(RECEIVE_BYTES))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return b""

    async def send(self, data: bytes) -> None:
        """Send the bytes that the system takes at once, then the rest in pieces, each within `send_seconds`.
        Only one task may send at a time. If it fails or is cancelled, the connection is closed.

        Raises:
            ClientGoneError: the connection broke or was closed, or the client does not read.
        """
        sent = 0
        try:
            with memoryview(data) as view:
                if isinstance(self._stream, trio.SocketStream):
                    # A checkpoint before this line would bring the pages of all clients into memory at once.
                    with suppress(BlockingIOError):
                        sent = os.write(self._stream.socket.fileno(), view)
                while sent < len(view):
                    with trio.fail_after(self.send_seconds):
                        await self._stream.send_all(view[sent : sent + SEND_BYTES])
                    sent += SEND_BYTES
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            raise ClientGoneError("the client has left, or does not read its answer") from error
        finally:
            if sent < len(data):  # half an answer may have been sent, so nothing can follow it
                await trio.aclose_forcefully(self._stream)

    async def linger(self, seconds: float) -> None:
        """Read and discard until the client closes, before this side does.

        Closing with bytes unread resets the connection, and the client may never see the answer.
        """
        with trio.move_on_after(seconds):
            try:
                if isinstance(self._stream, trio.SocketStream):
                    await self._stream.send_eof()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            while await self.receive(math.inf):
                pass
