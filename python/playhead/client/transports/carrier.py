"""A carrier moves the bytes of one connection; a receiver takes the messages and events among them.

The receiver is the session's driver (`client.session.connection`). The carrier opens the connection, runs its
own tasks in a nursery of its own, and knows nothing of deadlines, handshakes or results: it writes what it is
given, and hands on what arrives.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from playhead.errors import PlayheadError
from playhead.protocol.exchange import Event, Exchange, Outgoing
from playhead.protocol.faults import ProtocolFaults

SecondRoad = Literal["none", "request", "connection"]
"""`none`: a process and its pipes are the only ones. `request`: with `anew`. `connection`: over a second
carrier, if a `ping` is not answered either."""


class Receiver(Protocol):
    """The driver of a connection, as a carrier sees it. None of these waits or raises."""

    @property
    def exchange(self) -> Exchange: ...

    def received(self, data: bytes, *, only: int | str | None = None) -> None:
        """Take one whole message.

        Args:
            only: the request on whose POST it arrived: no other may be answered by it.
        """
        ...

    def dispatch(self, event: Event) -> None:
        """Take an event that the carrier has from `exchange`, by way of an `Inbox`."""
        ...

    def touched(self, id: int | str | None) -> None:
        """Bytes of the answer to `id` have arrived; None: of an answer that is awaited, whichever it is."""
        ...

    def is_answered(self, id: int | str) -> bool:
        """True if nobody waits for the answer to `id` any more."""
        ...

    def lost(self, error: PlayheadError) -> None:
        """The connection has ended by itself, and every request in flight fails with `error`. Idempotent:
        the first error counts."""
        ...


class Carrier(Protocol):
    """The bytes of one connection. Made once per connection."""

    @property
    def closing_cancels(self) -> bool:
        """True if cancelling `request` is what cancels it for the server, and `send` must not say so."""
        ...

    @property
    def second_road(self) -> SecondRoad:
        """The way of a read that is sent once more while the connection is silent."""
        ...

    def open(self, receiver: Receiver) -> AbstractAsyncContextManager[None]:
        """Connect, and close with the block: gracefully, or at once if it is left by a cancellation.

        Raises `ConnectError` or another `PlayheadError` before the block begins. What breaks afterwards is
        reported with `Receiver.lost`.
        """
        ...

    async def request(self, outgoing: Outgoing, *, anew: bool = False) -> None:
        """Send a request; with `anew`, where each has a connection of its own, on one that is opened for it.

        A stream of messages (stdio, WebSocket) returns when it is written, which is at once if the pipe takes
        it, and the driver waits for the answer. HTTP returns when the answer, or a JSON-RPC error in its
        place, was handed to the receiver. Raises a `PlayheadError` if none will come. Cancelled: a message is
        written whole or not at all; HTTP closes the POST.
        """
        ...

    async def send(self, data: bytes, *, outgoing: Outgoing | None = None) -> None:
        """Send a notification or an answer of ours. Failures are not reported: nobody waits.

        Args:
            outgoing: the request that the notification cancels.
        """
        ...

    async def listen(self) -> None:
        """Receive the server's own stream, if the revision has one, until cancelled. Runs after the
        handshake, in a task of the driver's; returns at once where no such stream exists."""
        ...

    async def ping(self) -> bool:
        """Ask for a sign of life: True when it has arrived, False if there is no way to ask, or none comes.
        The caller limits the time."""
        ...

    def diagnosis(self) -> str:
        """A description of the peer for error messages, or nothing. Quotes the peer."""
        ...

    def faults(self) -> ProtocolFaults:
        """Faults that `exchange` does not count."""
        ...
