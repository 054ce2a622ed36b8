"""A carrier moves the bytes of one connection; a receiver takes the events among them.

The receiver is the session's driver (`client.session.connection`). The carrier opens the connection, runs its
own tasks in a nursery of its own, and knows nothing of deadlines, handshakes or results: it writes what it is
given, turns what arrives into the events of the receiver's exchange, and hands these on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

import trio

from playhead.errors import PlayheadError
from playhead.protocol.exchange import Event, Exchange, Outgoing
from playhead.protocol.faults import ProtocolFaults

SecondRoad = Literal["none", "request", "connection"]
"""`none`: a process and its pipes are the only ones. `request`: with `anew`. `connection`: over a second
carrier, if a `ping` is not answered either."""


class Receiver(Protocol):
    """The driver of a connection, as a carrier sees it. None of these waits or raises."""

    @property
    def exchange(self) -> Exchange:
        """The table of what is in flight, which makes the events."""
        ...

    def take(self, events: Iterable[Event]) -> None:
        """Take what has arrived."""
        ...

    def lost(self, error: PlayheadError) -> None:
        """The connection has ended by itself, and every request in flight fails with `error`. Idempotent:
        the first error counts."""
        ...


class Carrier(ABC):
    """The bytes of one connection. Made once per connection."""

    second_road: SecondRoad = "none"
    """The way of a read that is sent once more while the connection is silent."""

    @property
    def closing_cancels(self) -> bool:
        """True if cancelling `request` is what cancels it for the server, and `tell` must not say so."""
        return False

    @abstractmethod
    def open(self, receiver: Receiver) -> AbstractAsyncContextManager[None]:
        """Connect, and close with the block: gracefully, or at once if it is left by a cancellation.

        Raises `ConnectError` or another `PlayheadError` before the block begins. What breaks afterwards is
        reported with `Receiver.lost`.
        """

    @abstractmethod
    async def request(self, outgoing: Outgoing, *, anew: bool = False) -> None:
        """Send a request; with `anew`, where each has a connection of its own, on one that is opened for it.

        A stream of messages (stdio, WebSocket) returns when it is written, which is at once if the pipe takes
        it, and the driver waits for the answer. HTTP returns when the answer, or a JSON-RPC error in its
        place, was handed to the receiver. Raises a `PlayheadError` if none will come. Cancelled: a message is
        written whole or not at all; HTTP closes the POST.
        """

    @abstractmethod
    async def tell(self, data: bytes, *, given_up: Outgoing | None = None) -> None:
        """Send a notification or an answer of ours. Failures are not reported: nobody waits.

        Args:
            given_up: the request that the notification cancels.
        """

    async def listen(self) -> None:
        """Receive the server's own stream, if the revision has one, until cancelled. Runs after the
        handshake, in a task of the driver's; returns at once where every message is on one stream."""
        await trio.lowlevel.checkpoint()

    async def ping(self) -> bool:
        """Ask for a sign of life: True when it has arrived, False if there is no way to ask, or none comes.
        The caller limits the time."""
        await trio.lowlevel.checkpoint()
        return False

    def diagnosis(self) -> str:
        """A description of the peer for error messages, or nothing. Quotes the peer."""
        return ""

    def faults(self) -> ProtocolFaults:
        """Faults that `exchange` does not count."""
        return ProtocolFaults()


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierFactory:
    """Makes the carrier of the first connection, and of each one after it."""

    server: str
    """The server's name and address for messages, without secrets."""
    new: Callable[[], Carrier]
    is_process: bool = False
    authorize: Callable[[], Awaitable[None]] | None = None
    """Ask a person for access; None if no person is needed. Raises a `PlayheadError`."""
