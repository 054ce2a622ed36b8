"""A driver of one carrier for tests: its requests and their outcomes, without deadlines or a handshake."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import trio

from playhead.client.transports.carrier import Carrier
from playhead.errors import PlayheadError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.protocol.exchange import Answered, Event, Exchange, Faulted, Notified, Outgoing, SignOfLife
from playhead.protocol.revisions import NEWEST_INITIALIZED, Revision


class Driver:
    """A `Receiver`. Requests have the ids 1, 2, … in the order in which they are sent."""

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS, revision: Revision = NEWEST_INITIALIZED) -> None:
        self.exchange = Exchange(limits)
        self.exchange.revision = revision
        self.carrier: Carrier
        self.failure: PlayheadError | None = None
        self.events: list[Event] = []
        self.signs_of_life: list[int | str | None] = []
        """The requests whose answers showed one; None: the stream does not tell."""
        self._send, self._receive = trio.open_memory_channel[Event](math.inf)

    # --- as a receiver -------------------------------------------------------------------------------

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, SignOfLife):
                self.signs_of_life.append(event.id)
                continue
            self.events.append(event)
            if not isinstance(event, Faulted) or event.id is not None:
                self._send.send_nowait(event)

    def lost(self, error: PlayheadError) -> None:
        assert self.failure is None, "expected one loss to be reported"
        self.failure = error
        for key in list(self.exchange.in_flight):
            failed = self.exchange.fail(key, error)
            assert failed is not None
            self._send.send_nowait(failed)
        self._send.close()

    # --- for the test --------------------------------------------------------------------------------

    def request(self, method: str = "tools/list", params: Mapping[str, Any] | None = None) -> Outgoing:
        return self.exchange.request(method, params or {})

    async def ask(self, count: int = 1, method: str = "tools/list") -> None:
        for _ in range(count):
            await self.carrier.request(self.request(method))

    async def event(self) -> Event:
        with trio.fail_after(10):
            return await self._receive.receive()

    async def notification(self) -> Notified:
        event = await self.event()
        assert isinstance(event, Notified)
        return event

    async def result(self, id: int) -> dict[str, Any]:
        event = await self.event()
        assert isinstance(event, Answered)
        assert (event.id, event.error) == (id, None)
        assert event.result is not None
        return event.result

    async def error(self, id: int) -> PlayheadError:
        event = await self.event()
        assert isinstance(event, Faulted)
        assert event.id == id
        assert isinstance(event.error, PlayheadError)
        return event.error

    async def end(self) -> PlayheadError:
        """The loss of the connection, after which nothing else is received."""
        with trio.fail_after(10):
            assert [event async for event in self._receive] == []
        assert self.failure is not None
        return self.failure
