"""A carrier moves the bytes of one connection, and hands the events that arrive to a receiver.

The receiver is `client.session.connection`. The carrier opens the connection, runs its tasks in its own
nursery, and knows nothing of deadlines, handshakes or results: it writes messages, has the receiver's
exchange turn each received message into events, and passes these on.
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

RepeatVia = Literal["none", "request", "connection"]
"""The way to repeat a read while the server is silent. `none`: impossible, because a process has only its
pipes. `request`: by `Carrier.request(is_repeat=True)`. `connection`: over a second connection, after a `ping`
without a reply."""


class Receiver(Protocol):
    """The session's side of a connection, as a carrier sees it. None of the methods blocks or raises."""

    @property
    def exchange(self) -> Exchange:
        """The requests in flight; turns received messages into events."""
        ...

    def take(self, events: Iterable[Event]) -> None:
        """Take events that have arrived."""
        ...

    def lost(self, error: PlayheadError) -> None:
        """Fail every request in flight with `error`, because the connection has ended by itself. Idempotent:
        the first error counts."""
        ...


class Carrier(ABC):
    """The bytes of one connection. A carrier is opened once."""

    repeat_via: RepeatVia = "none"

    @property
    def closing_cancels(self) -> bool:
        """True if closing a request tells the server that it is cancelled; `notifications/cancelled` must not
        be sent then."""
        return False

    @abstractmethod
    def open(self, receiver: Receiver) -> AbstractAsyncContextManager[None]:
        """Connect, and close at the end of the block: gracefully, or at once if it is cancelled.

        Raises `ConnectError` or another `PlayheadError` before the block begins. A later failure is reported
        with `Receiver.lost`.
        """

    @abstractmethod
    async def request(self, outgoing: Outgoing, *, is_repeat: bool = False) -> None:
        """Send a request. HTTP sends one that `is_repeat` over a new TCP connection.

        Over stdio and WebSocket, which carry all messages on one stream, this returns once the request is
        written; the receiver waits for the answer. Over HTTP it returns once the answer, or a JSON-RPC error
        in its place, was passed to the receiver. Raises a `PlayheadError` if there will be no answer.
        Cancelled: a message is written whole or not at all; HTTP closes the POST.
        """

    @abstractmethod
    async def tell(self, data: bytes, *, given_up: Outgoing | None = None) -> None:
        """Send a notification, or the answer to a request of the server's. Failures are not reported.

        Args:
            given_up: the request that the notification cancels.
        """

    async def listen(self) -> None:
        """Receive the server's own stream, if the transport and revision have one, until cancelled. Runs
        after the handshake, in a task of the receiver's. Returns at once if all messages arrive on one
        stream."""
        await trio.lowlevel.checkpoint()

    async def ping(self) -> bool:
        """Ask for a sign of life. Return True when it has arrived, False if the transport has no ping or the
        connection has ended. The caller limits the time."""
        await trio.lowlevel.checkpoint()
        return False

    def diagnosis(self) -> str:
        """Return a description of the peer for error messages, which may quote it; "" if nothing is known."""
        return ""

    def faults(self) -> ProtocolFaults:
        """Return the faults that `exchange` does not count."""
        return ProtocolFaults()


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierFactory:
    """Makes the carrier of each connection to one server."""

    server: str
    """The server's name and address for messages, without secrets."""
    new: Callable[[], Carrier]
    is_process: bool = False
    authorize: Callable[[], Awaitable[None]] | None = None
    """Ask a person for access; None if no person is needed. Raises a `PlayheadError`."""
