"""A carrier for tests of the driver above it: a scripted server in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from playhead.client.transports.carrier import Carrier, Receiver, RepeatVia
from playhead.protocol.exchange import Outgoing, SignOfLife

PAGE: dict[str, Any] = {"contents": []}
Serve = Callable[["Peer", Outgoing], Awaitable[None]]


class Peer(Carrier):
    """A carrier whose server is `serve`, run in a task per request as over HTTP, or to the end of a write."""

    def __init__(
        self,
        serve: Serve | None = None,
        *,
        repeat_via: RepeatVia = "none",
        pongs: bool = False,
        closing_cancels: bool = False,
    ) -> None:
        self._serve = serve
        self.repeat_via: RepeatVia = repeat_via
        self._pongs = pongs
        self._closing_cancels = closing_cancels
        self.receiver: Receiver
        self.requests: list[tuple[float, Outgoing, bool]] = []
        self.sent: list[dict[str, Any]] = []
        self.pings: list[float] = []
        self._nursery: trio.Nursery

    @property
    def closing_cancels(self) -> bool:
        return self._closing_cancels

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[None]:
        """The server asks something while it is left: what still arrives must hurt nobody."""
        self.receiver = receiver
        async with trio.open_nursery() as self._nursery:
            yield
            self.say(id="late", method="ping")
            self._nursery.cancel_scope.cancel()

    async def request(self, outgoing: Outgoing, *, is_repeat: bool = False) -> None:
        self.requests.append((trio.current_time(), outgoing, is_repeat))
        if self._serve is not None:
            self._nursery.start_soon(self._serve, self, outgoing)

    async def tell(self, data: bytes, *, given_up: Outgoing | None = None) -> None:
        self.sent.append(json.loads(data))

    async def listen(self) -> None: ...

    async def ping(self) -> bool:
        self.pings.append(trio.current_time())
        if not self._pongs:
            await trio.sleep_forever()
        return True

    # --- what it says --------------------------------------------------------------------------------

    def say(self, **members: Any) -> None:
        data = json.dumps({"jsonrpc": "2.0", **members}).encode()
        self.receiver.take(self.receiver.exchange.receive(data))

    def touch(self, id: int | str | None) -> None:
        """Bytes of an answer arrive."""
        self.receiver.take([SignOfLife(id)])

    def answer(self, outgoing: Outgoing, result: Mapping[str, Any] = PAGE) -> None:
        self.say(id=outgoing.id, result=result)
