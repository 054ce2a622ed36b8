"""Whether the other side still lives: pings after silence, and a verdict when nothing at all comes back.

Any byte is a sign of life, not a pong alone: a page of 1 MiB in one frame takes 65 s over 128 kbit/s, and no
pong can come in the middle of it. While our own side does not read, nothing is held against the server.
"""

from __future__ import annotations

from collections.abc import Callable

import trio


class Pulse:
    """Times of one connection, on trio's clock.

    Args:
        ping_seconds: silence after which a ping is due.
        pong_seconds: silence after a ping that means that nobody is there.
    """

    def __init__(self, *, ping_seconds: float, pong_seconds: float) -> None:
        self._ping_seconds = ping_seconds
        self._pong_seconds = pong_seconds
        self._heard_at = trio.current_time()
        self._sign = trio.Event()
        self.pings = 0
        self.deaf = False
        """Whether our own side is not reading just now."""

    def hear(self) -> None:
        """Bytes have come."""
        self._heard_at = trio.current_time()
        self._sign.set()

    async def watch(self, ping: Callable[[bytes], None]) -> float:
        """Call `ping` with a payload whenever one is due; returns once the silence has been too long, with
        its seconds."""
        while True:
            await trio.sleep_until(self._heard_at + self._ping_seconds)
            if trio.current_time() < self._heard_at + self._ping_seconds:
                continue
            if self.deaf:
                self.hear()
                continue
            self._sign = trio.Event()
            self.pings += 1
            ping(self.pings.to_bytes(4, "big"))
            with trio.move_on_after(self._pong_seconds):
                await self._sign.wait()
            if not self._sign.is_set() and not self.deaf:
                return trio.current_time() - self._heard_at
            self.hear()
