"""What a WebSocket connection has to send in between: pongs, pings, repeated requests."""

from __future__ import annotations

import trio
from wsproto.events import Ping, Pong, TextMessage

from playhead.client.transports import messages
from playhead.client.transports.websocket_compat import Compatibility
from playhead.client.transports.websocket_wire import Wire
from playhead.errors import UsageError


class Owed:
    """Noted by the reading task, which never waits for writing; sent by a task of its own."""

    def __init__(self, compatibility: Compatibility) -> None:
        self._compatibility = compatibility
        self._pong: bytes | None = None
        """The payload of the last ping that has no pong yet. The others need none (RFC 6455, 5.5.3)."""
        self._ping: bytes | None = None
        """A ping of ours that is still to be sent."""
        self._something = trio.Event()
        self.sent_messages = 0

    def pong(self, payload: bytes) -> None:
        """The server has sent a ping."""
        self._pong = payload
        self._something.set()

    def ping(self, payload: bytes) -> None:
        """The server has been silent."""
        self._ping = payload
        self._something.set()

    def look(self) -> None:
        """There may be something in `Compatibility.unsent`."""
        if self._compatibility.unsent:
            self._something.set()

    async def send_to(self, wire: Wire) -> None:
        """Send whatever is owed, whenever something is.

        Raises `trio.BrokenResourceError` or `trio.ClosedResourceError` once the connection takes no more.
        """
        while True:
            await self._something.wait()
            self._something = trio.Event()
            if self._pong is not None:
                payload, self._pong = self._pong, None
                await wire.send(Pong(payload=payload))
            if self._ping is not None:
                payload, self._ping = self._ping, None
                await wire.send(Ping(payload=payload))
            while self._compatibility.unsent:
                encoded = messages.encode(self._compatibility.unsent.popleft())
                if not isinstance(encoded, UsageError):  # it was sent before: it can be written
                    await wire.send(TextMessage(data=encoded.decode()))
                    self.sent_messages += 1
