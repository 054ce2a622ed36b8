"""An open WebSocket on trio: wsproto's frames over a stream. Says nothing of what the messages mean."""

from __future__ import annotations

from collections.abc import Iterator

import trio
from wsproto import WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import CloseConnection, Event
from wsproto.utilities import LocalProtocolError

from playhead.client.transports.websocket_opening import RECEIVE_BYTES

GOODBYE = 1000
TOO_BIG = 1009
ABNORMAL = 1006
"""RFC 6455, section 7.1.5: the code of a connection that ended without a close frame."""


class Wire:
    """Both ends of the byte path. `send` may be called by several tasks, `receive` by one."""

    def __init__(self, stream: trio.abc.Stream, connection: WSConnection) -> None:
        self._stream = stream
        self._connection = connection
        self._sending = trio.StrictFIFOLock()
        self.sent_bytes = 0

    @property
    def closed_by_peer(self) -> bool:
        """Whether the last `CloseConnection` event was a frame of the peer's, and not wsproto's own finding
        that the peer has broken the protocol."""
        return self._connection.state in (ConnectionState.REMOTE_CLOSING, ConnectionState.CLOSED)

    async def send(self, event: Event) -> None:
        """Send one frame. Raises `trio.BrokenResourceError` where the connection can't take it any more.

        Cancelled in the middle, it leaves half a frame behind: the connection can only be dropped then.
        """
        async with self._sending:
            try:
                frame = self._connection.send(event)
            except LocalProtocolError as error:
                raise trio.BrokenResourceError from error
            await self._stream.send_all(frame)
            self.sent_bytes += len(frame)

    def pending(self) -> Iterator[Event]:
        """The events of what was received last. Parsed one at a time, while this is iterated."""
        return self._connection.events()

    async def receive(self) -> bool:
        """Wait for more bytes; False at the end of the connection."""
        try:
            chunk = await self._stream.receive_some(RECEIVE_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        if not chunk:
            return False
        self._connection.receive_data(bytes(chunk))
        return True

    async def finish(self, code: int, reason: str | None = None, *, seconds: float) -> None:
        """Send a close frame (an answer to the peer's, where there was one), for `seconds` at most."""
        with trio.move_on_after(seconds):
            try:
                await self.send(CloseConnection(code=code, reason=reason))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
