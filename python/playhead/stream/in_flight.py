"""Reads on the wire: a task for each, and the turn of each stream of a process.

Each stream fills its ring as fast as the link allows. Of many streams the ones that are ahead would take the
link, and the trio thread, for megabytes of audio that is heard in a minute, and streams that start or run low
would wait behind them. So reads are of two kinds. A stream with less than two seconds ahead of its reader
reads at once; if `READS_AT_ONCE` are on the wire it waits, and the stream that runs dry first comes next.
Beyond two seconds it reads in the background, and the background of all streams together is at most
`BACKGROUND_BYTES` on the wire: a new stream gets its first audio before others fill their rings.

A stream that is alone waits for nobody: its reads are counted from the moment at which it has company.
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
"""Bytes ahead of the reader that are enough, at least: two seconds at 256 kbit/s."""
COMFORT_SECONDS = 2.0
"""The same in audio, where its byte rate is known: several times the duration of one read."""
BACKGROUND_BYTES = MIB
"""Half a second of a link of 16 Mbit/s, by which the first read of a new stream may be late."""
READS_AT_ONCE = 128
"""Reads of all streams on the wire: the trio thread's work of a tenth of a second, and enough for 500
players over a round trip of 0.25 s. More would only queue, each for its connection, in no useful order."""
COMFORT_BYTES_PER_SECOND = COMFORT_BYTES / COMFORT_SECONDS
"""The rate of audio whose rate is not known."""
NEW_STREAM_SECONDS = 0.5
"""A new stream counts as one that runs dry so long after it was opened: it comes after streams with less
audio, which would be interrupted, and before streams with more."""
FIRST_WAITS = 5.0
"""A stream may wait so many times as long for its second page as for the first: the second pages are larger,
and all are requested at once. In simulated time 3 were too few (tests/unit/stream/test_in_flight.py)."""
SLOW_SECONDS = 2.0
"""A read that takes longer no longer counts: its server is slow, and not the shared link or thread."""


class Background:
    """The reads of an event loop, and the streams that wait for their turn.

    Streams of other event loops are not seen.
    """

    def __init__(self) -> None:
        self._streams: dict[object, Callable[[], None]] = {}
        self.is_shared = False
        """Two streams or more read: they take turns."""
        self._reads: dict[object, tuple[float, int]] = {}
        """When each was sent, in that order, and its bytes; 0 if it does not fill a ring."""
        self._bytes = 0
        self._waiting: dict[object, Callable[[], None]] = {}
        self._low: dict[object, tuple[float, int, object, Callable[[], None]]] = {}
        """The streams that wait for a read before they run dry, each with its entry in `_by_due`."""
        self._by_due: list[tuple[float, int, object, Callable[[], None]]] = []
        """A heap, in which entries of streams that no longer wait may be left."""
        self._tickets = itertools.count()
        self._granted = set[object]()
        """Streams that were woken for a read before they run dry, and have not asked since."""

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
        """Streams that read."""
        return len(self._streams)

    @property
    def is_short(self) -> bool:
        """Streams wait for a read before they run dry."""
        return bool(self._low)

    def join(self, stream: object, add_reads: Callable[[], None]) -> None:
        """One more stream reads. `add_reads` adds its reads in flight, once it is no longer alone."""
        self._streams[stream] = add_reads
        if len(self._streams) == 2:
            self.is_shared = True
            for each in self._streams.values():
                each()

    def leave(self, stream: object) -> None:
        """`stream`, which joined, is over."""
        del self._streams[stream]
        if len(self._streams) < 2:
            self.is_shared = False
            self._reads.clear()
            self._bytes = 0
        self.withdraw(stream)

    def withdraw(self, stream: object) -> None:
        """`stream` waits for no turn any more."""
        self._waiting.pop(stream, None)
        self._low.pop(stream, None)
        self._granted.discard(stream)
        self.pass_turn()

    def has_room(
        self, stream: object, *, now: float, wake: Callable[[], None], dry_at: float | None = None
    ) -> bool:
        """Return whether `stream` may send a read: one that fills its ring or, with `dry_at`, one without
        which its reader runs dry at that time. If not, `wake` is called when it may, unless `until` passes
        first.

        A stream that was woken sends next. Compared again, it could wait for ever: while its reader takes
        nothing, the time at which it runs dry moves on with the clock, past the waiting streams' times.
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
        """A read was sent."""
        self._reads[read] = (now, n_bytes if fills_ring else 0)
        self._bytes += self._reads[read][1]
        self.pass_turn()

    def remove(self, read: object) -> None:
        """A read is over, whichever kind it is."""
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

    def _first_low(self) -> tuple[float, int, object, Callable[[], None]] | None:
        while self._by_due and self._low.get(self._by_due[0][2]) is not self._by_due[0]:
            heapq.heappop(self._by_due)
        return self._by_due[0] if self._by_due else None

    def _remove(self, read: object) -> None:
        self._bytes -= self._reads.pop(read)[1]

    def pass_turn(self) -> None:
        """Wake the stream that runs dry first or, if none waits for that, the one that has waited longest, if
        there is room. When it waits again it is the last.

        A stream that may send and has nothing to send calls it, so that the room is used.
        """
        if (first := self._first_low()) is not None:
            if not self._has_too_many():
                del self._low[first[2]]
                self._granted.add(first[2])
                first[3]()
        elif self._waiting and not self._is_full():
            self._waiting.pop(next(iter(self._waiting)))()


_BACKGROUND: trio.lowlevel.RunVar[Background] = trio.lowlevel.RunVar("playhead.background_reads")


READ_SCOPE: Final[ContextVar[trio.CancelScope]] = ContextVar("playhead_read_scope")
"""The scope that cancels the read of the current task: a read that is cancelled must not be joined."""


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    request: Request
    sent_at: float
    """The time passed to the planner, so that both time out together on a busy machine."""
    fills_ring: bool
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class InFlight:
    """Reads of one stream on the wire, with one task and one cancel scope each, and its turn to send one."""

    def __init__(self, background: Background, *, wake: Callable[[], None], opened_at: float) -> None:
        """`wake` is called when the stream may send a read, after `may_send` refused it."""
        self.flights: dict[int, Flight] = {}
        """Those on the wire, by the id of their request. Read only."""
        self._background = background
        self._wake = wake
        self._opened_at = opened_at
        self._fills_ring = True
        self.waits_for_others = False
        """The last turn was refused."""
        self.bytes_per_second = 0.0
        """The rate of the audio; 0 while it is not known."""
        self.asked_to = 0
        """The highest end of the reads since the last `drop_all`."""

    @property
    def comfort_bytes(self) -> int:
        """Bytes ahead of the reader beyond which reads fill the ring, in the background."""
        return max(COMFORT_BYTES, int(COMFORT_SECONDS * self.bytes_per_second))

    def wait_bytes(self, first_byte_at: float) -> float:
        """Return the bytes that are played until the next page arrives, if it has to wait for its turn. From
        any thread.

        It has if nothing is on the wire while streams wait to read before they run dry, this one or others.
        """
        if self.flights or not self._background.is_short:
            return 0.0
        seconds = min(COMFORT_SECONDS, FIRST_WAITS * (first_byte_at - self._opened_at))
        return seconds * (self.bytes_per_second or COMFORT_BYTES_PER_SECOND)

    def may_send(self, now: float, *, buffered_bytes: int, is_new: bool) -> bool:
        """Return whether the stream may send a read, with `buffered_bytes` before its reader. One that is
        alone may, and need not ask."""
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

        Unless it `is_first`, the tasks before it begin first: trio runs new tasks in any order, and on a slow
        link the first page must be sent first. A checkpoint then; cancelled, the read is not begun.
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
        """Add the reads in flight to the count of all streams."""
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
        # A dropped read (a seek, a timeout, a faster copy) has no more use.
        if self._remove(flight.request.id) is not None and outcome is not None:
            done(flight, outcome)

    def drop(self, request_id: int) -> Flight | None:
        """Cancel a read, on the wire too; None if it is not in flight."""
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
