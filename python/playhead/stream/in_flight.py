"""Reads in flight: a task for each, and the order in which the streams of an event loop may send them.

Each stream fills its ring as fast as the link allows. Without an order, streams that are far ahead would use
the link and the trio thread for audio that is heard in a minute, and streams that start or run low would wait
behind them. So there are two kinds of reads:

* Urgent: the stream has less than two seconds of audio ahead of its reader. The read is sent at once or, if
  `READS_AT_ONCE` are in flight, in the order in which the streams run dry (have nothing left to play).
* Background: the stream has more and fills its ring. All streams together have at most `BACKGROUND_BYTES` of
  these in flight, so that a new stream gets its first audio before others fill their rings.

A stream that is alone never waits, so its reads are counted only once there is a second stream.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

import trio

from playhead._core import Request
from playhead.errors import PlayheadError
from playhead.limits import KIB, MIB
from playhead.stream.answer import Page, ReadRange

COMFORT_BYTES = 64 * KIB
"""The least bytes ahead of the reader beyond which a read is not urgent: two seconds at 256 kbit/s."""
COMFORT_SECONDS = 2.0
"""The audio ahead of the reader beyond which a read is not urgent: several times the duration of a read."""
BACKGROUND_BYTES = MIB
"""Half a second of a link of 16 Mbit/s: background reads delay the first read of a new stream by that
time."""
READS_AT_ONCE = 128
"""Limits the reads of all streams in flight: a tenth of a second of the trio thread's work, and enough for
500 players over a round trip of 0.25 s. More would only queue for connections, in no useful order."""
COMFORT_BYTES_PER_SECOND = COMFORT_BYTES / COMFORT_SECONDS
"""The byte rate to assume for audio whose rate is not known."""
NEW_STREAM_SECONDS = 0.5
"""A new stream is treated as if it ran dry this long after it was opened. So streams that would be
interrupted sooner come before it, and streams with more audio after it."""
FIRST_WAITS = 5.0
"""The expected wait for a stream's second page, in waits for its first page: second pages are larger, and all
are requested at once. In simulated time 3 was too few (tests/unit/stream/test_in_flight.py)."""
SLOW_SECONDS = 2.0
"""A read older than this no longer counts: its server is slow, not the shared link or thread."""

_QueueEntry = tuple[float, int, object, Callable[[], None]]
"""The time at which a stream runs dry, a serial number for equal times, the stream, and its wake-up call."""


class Background:
    """The reads of all streams of one event loop, and the streams that wait to send a read."""

    def __init__(self) -> None:
        self._streams: dict[object, Callable[[], None]] = {}
        self.is_shared = False
        """True if there are two streams or more, which take turns."""
        self._reads: dict[object, tuple[float, int]] = {}
        """The time at which each read was sent, in that order, and its bytes; 0 bytes if it is urgent."""
        self._bytes = 0
        """The bytes of the background reads in `_reads`."""
        self._waiting: dict[object, Callable[[], None]] = {}
        """The streams that wait to send a background read, each with its wake-up call."""
        self._low: dict[object, _QueueEntry] = {}
        """The streams that wait to send an urgent read, each with its entry in `_by_due`."""
        self._by_due: list[_QueueEntry] = []
        """A heap of the entries; some may belong to streams that no longer wait."""
        self._tickets = itertools.count()
        self._granted = set[object]()
        """The streams that were woken for an urgent read, and have not called `has_room` since."""

    @classmethod
    def of_this_loop(cls) -> Background:
        try:
            return _BACKGROUND.get()
        except LookupError:
            background = cls()
            _BACKGROUND.set(background)
            return background

    @property
    def streams(self) -> int:
        """The number of streams."""
        return len(self._streams)

    @property
    def is_short(self) -> bool:
        """True if streams wait to send urgent reads."""
        return bool(self._low)

    def join(self, stream: object, add_reads: Callable[[], None]) -> None:
        """Add a stream. `add_reads` is called to add its reads in flight once it is no longer alone."""
        self._streams[stream] = add_reads
        if len(self._streams) == 2:
            self.is_shared = True
            for add_reads_of_each in self._streams.values():
                add_reads_of_each()

    def leave(self, stream: object) -> None:
        """Remove `stream`, which has ended."""
        del self._streams[stream]
        if len(self._streams) < 2:
            self.is_shared = False
            self._reads.clear()
            self._bytes = 0
        self.withdraw(stream)

    def withdraw(self, stream: object) -> None:
        """Stop waiting: `stream` has nothing to send."""
        self._waiting.pop(stream, None)
        self._low.pop(stream, None)
        self._granted.discard(stream)
        self.pass_turn()

    def has_room(
        self, stream: object, *, now: float, wake: Callable[[], None], dry_at: float | None = None
    ) -> bool:
        """Return whether `stream` may send a read. If not, `wake` is called when it may; call this again at
        `until` at the latest.

        `dry_at` makes the read urgent: the time at which the stream's reader runs dry without it. Without
        `dry_at` it is a background read.

        A stream that was woken may send without another comparison, which could make it wait for ever: while
        its reader takes nothing, its `dry_at` moves on with the clock, past those of the waiting streams.
        """
        is_granted = stream in self._granted
        self._granted.discard(stream)
        while self._reads and (oldest := next(iter(self._reads.items())))[1][0] + SLOW_SECONDS <= now:
            self._remove(oldest[0])
        if dry_at is None:
            if self._is_full() or self._first_low() is not None:
                self._waiting[stream] = wake
                self.pass_turn()
                return False
            self._waiting.pop(stream, None)
            return True
        first = self._first_low()
        is_later = first is not None and first[2] is not stream and first[0] < dry_at
        if self._has_too_many() or (is_later and not is_granted):
            entry = (dry_at, next(self._tickets), stream, wake)
            self._low[stream] = entry
            heapq.heappush(self._by_due, entry)
            self.pass_turn()
            return False
        self._low.pop(stream, None)
        return True

    def add(self, read: object, *, now: float, n_bytes: int, fills_ring: bool = True) -> None:
        """Count a read that is being sent. It is a background read if it `fills_ring`."""
        self._reads[read] = (now, n_bytes if fills_ring else 0)
        self._bytes += self._reads[read][1]
        self.pass_turn()

    def remove(self, read: object) -> None:
        """Stop counting a read, which has ended."""
        if read in self._reads:
            self._remove(read)
            self.pass_turn()

    @property
    def until(self) -> float:
        """The time at which the oldest read no longer counts."""
        oldest = next(iter(self._reads.values()), None)
        return math.inf if oldest is None else oldest[0] + SLOW_SECONDS

    def _has_too_many(self) -> bool:
        return self.is_shared and len(self._reads) >= READS_AT_ONCE

    def _is_full(self) -> bool:
        return self.is_shared and (self._bytes >= BACKGROUND_BYTES or self._has_too_many())

    def _first_low(self) -> _QueueEntry | None:
        while self._by_due and self._low.get(self._by_due[0][2]) is not self._by_due[0]:
            heapq.heappop(self._by_due)
        return self._by_due[0] if self._by_due else None

    def _remove(self, read: object) -> None:
        self._bytes -= self._reads.pop(read)[1]

    def pass_turn(self) -> None:
        """Wake the stream that runs dry first, if there is room. If none has an urgent read, wake the stream
        that has waited longest; it then goes to the end of the queue.

        A stream that may send but has nothing to send must call this, so that another can use the room.
        """
        if (first := self._first_low()) is not None:
            if not self._has_too_many():
                _, _, stream, wake = first
                del self._low[stream]
                self._granted.add(stream)
                wake()
        elif self._waiting and not self._is_full():
            wake = self._waiting.pop(next(iter(self._waiting)))
            wake()


_BACKGROUND: trio.lowlevel.RunVar[Background] = trio.lowlevel.RunVar("playhead.background_reads")


READ_SCOPE: Final[ContextVar[trio.CancelScope]] = ContextVar("playhead_read_scope")
"""The scope that cancels the read of the current task. Another stream must not join a cancelled read."""


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A read in flight."""

    request: Request
    sent_at: float
    """The time that was passed to the planner, so that both measure the same timeout on a busy machine."""
    fills_ring: bool
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class InFlight:
    """The reads in flight of one stream, each with a task and a cancel scope."""

    def __init__(self, background: Background, *, wake: Callable[[], None], opened_at: float) -> None:
        """`wake` is called when the stream may send a read, after `may_send` has returned False."""
        self.flights: dict[int, Flight] = {}
        """The reads in flight by the id of their request. Do not change it from outside."""
        self._background = background
        self._wake = wake
        self._opened_at = opened_at
        self._fills_ring = True
        """True if the next read is a background read."""
        self.waits_for_others = False
        """True if the last `may_send` returned False."""
        self.bytes_per_second = 0.0
        """The byte rate of the audio; 0 while it is not known."""
        self.asked_to = 0
        """The highest end of the ranges requested since the last `drop_all`."""

    @property
    def comfort_bytes(self) -> int:
        """The bytes ahead of the reader beyond which reads are background reads."""
        return max(COMFORT_BYTES, int(COMFORT_SECONDS * self.bytes_per_second))

    def wait_bytes(self, first_byte_at: float) -> float:
        """Return the bytes that will be played until the next page arrives if its read has to wait; else 0.
        From any thread.

        The read has to wait if this stream has none in flight while streams wait to send urgent reads.
        """
        if self.flights or not self._background.is_short:
            return 0.0
        seconds = min(COMFORT_SECONDS, FIRST_WAITS * (first_byte_at - self._opened_at))
        return seconds * (self.bytes_per_second or COMFORT_BYTES_PER_SECOND)

    def may_send(self, now: float, *, buffered_bytes: int, is_new: bool) -> bool:
        """Return whether the stream, with `buffered_bytes` ahead of its reader, may send a read. A stream
        that is alone need not call this."""
        on_wire = sum(flight.request.end - flight.request.start for flight in self.flights.values())
        ahead_bytes = buffered_bytes + on_wire
        self._fills_ring = ahead_bytes >= self.comfort_bytes
        dry_at = now + ahead_bytes / (self.bytes_per_second or COMFORT_BYTES_PER_SECOND)
        if is_new and ahead_bytes == 0:
            dry_at = self._opened_at + NEW_STREAM_SECONDS
        self.waits_for_others = not self._background.has_room(
            self, now=now, wake=self._wake, dry_at=None if self._fills_ring else dry_at
        )
        return not self.waits_for_others

    async def send(
        self,
        request: Request,
        read: ReadRange,
        end: int,
        start_soon: Callable[..., None],
        *,
        sent_at: float,
        is_first: bool,
        done: Callable[[Flight, Page | PlayheadError], None],
    ) -> None:
        """Read `request` up to `end` in a task, which then calls `done(flight, outcome)`.

        Unless it `is_first`, a checkpoint lets the earlier tasks begin before this one. Trio runs new tasks
        in any order, but on a slow link the first page must be sent first. Cancelled: the read is not begun.
        """
        self.flights[request.id] = flight = Flight(request, sent_at, self._fills_ring)
        self.asked_to = max(self.asked_to, request.end)
        if self._background.is_shared:
            self._add(flight)
        if not is_first:
            await trio.lowlevel.checkpoint()
        start_soon(self._read, flight, read, end, done)

    def _add(self, flight: Flight) -> None:
        n_bytes = flight.request.end - flight.request.start
        read = self, flight.request.id
        self._background.add(read, now=flight.sent_at, n_bytes=n_bytes, fills_ring=flight.fills_ring)

    def add_reads(self) -> None:
        """Count the reads in flight in `Background`."""
        for flight in self.flights.values():
            self._add(flight)

    async def _read(
        self, flight: Flight, read: ReadRange, end: int, done: Callable[[Flight, Page | PlayheadError], None]
    ) -> None:
        outcome: Page | PlayheadError | None = None
        READ_SCOPE.set(flight.scope)
        try:
            with flight.scope:
                outcome = await read(flight.request.start, end)
        except PlayheadError as error:
            outcome = error
        # The outcome of a dropped read (a seek, a timeout, a faster copy) is not used.
        if self._remove(flight.request.id) is not None and outcome is not None:
            done(flight, outcome)

    def drop(self, request_id: int) -> Flight | None:
        """Cancel a read, on the wire too, and return it; None if it is not in flight."""
        flight = self._remove(request_id)
        if flight is not None:
            flight.scope.cancel()
        return flight

    def drop_all(self) -> None:
        for request_id in list(self.flights):
            self.drop(request_id)
        self.asked_to = 0

    def _remove(self, request_id: int) -> Flight | None:
        if self._background.is_shared:
            self._background.remove((self, request_id))
        return self.flights.pop(request_id, None)
