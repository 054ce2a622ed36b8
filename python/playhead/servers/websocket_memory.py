"""What all WebSocket clients of one server together may make it hold. No clock and no socket.

Bounds for each connection do not bound the server: 200 clients that each fill theirs held 1.9 GB. So each has
a small allowance of its own, which nobody can take away, and what is above it comes out of one pool: clients
that behave do not notice those that don't.
"""

from __future__ import annotations

from sys import getsizeof
from typing import Final

OWN_BYTES: Final = 256 * 1024
"""A connection's own allowance: a few dozen ordinary requests; with 256 connections 64 MiB."""

REQUEST_BYTES: Final = 4096
"""What a decoded request costs beside its text: objects, a task. Measured: 1.5 KiB waiting."""

ANSWER_BYTES: Final = 1024 * 1024
"""What the answer to a request in flight is taken for, before anyone knows: the largest page that players ask
for. Clients that read nothing have one answer each, and beside it as many as there is room for."""

VALUE_BYTES: Final = 128
"""What a value of decoded JSON costs at most: half a dict of one key."""


NO_ROOM: Final = "the server holds as much for its clients as it may; try again later"


class Pool:
    """The bytes that the connections share."""

    def __init__(self, size_bytes: int) -> None:
        self.free_bytes = size_bytes


class Account:
    """What one connection makes the server hold, in bytes."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._held = 0
        self._shared = 0
        """How much of it is out of the pool."""

    def take(self, size_bytes: int) -> bool:
        """Whether there is room for so much more; then it counts as held."""
        more = max(0, self._held + size_bytes - OWN_BYTES) - self._shared
        if more > self._pool.free_bytes:
            return False
        self._hold(self._held + size_bytes)
        return True

    def give_back(self, size_bytes: int) -> None:
        """So much that was taken is held no more."""
        self._hold(self._held - size_bytes)

    def close(self) -> None:
        """The connection has ended: it holds nothing, and gets nothing out of the pool any more."""
        self._hold(0)
        self._pool = Pool(0)

    def _hold(self, size_bytes: int) -> None:
        self._held = size_bytes
        shared = max(0, size_bytes - OWN_BYTES)
        self._pool.free_bytes += self._shared - shared
        self._shared = shared


def text_bytes(text: str) -> int:
    """What a text costs in memory: four bytes a character where there is one emoji in it."""
    return getsizeof(text)


def request_bytes(text: str, *, json_values: int) -> int:
    """What a request costs once it is decoded, from its text; it was seen to have `json_values` at most."""
    values = min(text.count(",") + text.count("[") + text.count("{"), json_values)
    return REQUEST_BYTES + text_bytes(text) + VALUE_BYTES * values
