"""Drives the planner: sends the reads it asks for, and hands it what came of them.

    planner.next ──▶ flights (a task a read) ──▶ landing: measure, trust? ──▶ inlet ──▶ ring
         ▲                                          │            │
         └───────── on_page / on_error ◀────────────┘            └──▶ settle, alone ──▶ planner, or sequential

The planner (Rust, pure) decides which ranges are read and when to give up on one. Here is what needs a
clock, a task or the server's bytes:

* A server is trusted to honour ranges once two answers from different offsets differ. Until then only the
  answer at the first missing offset is stored; the others are held as text. A file smaller than a page, from
  a server that ignores ranges, looks like a page at every offset.
* An answer that cannot be (longer than asked, or the same again) stops everything else and is settled.
* A server that ignores ranges, or whose pages do not fit the ring, is read one page at a time, as text.
* An error belongs to its offset. The reader gets every good byte before it.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Collection
from dataclasses import replace
from typing import NoReturn

import trio

from playhead._core import Pipe, Planner
from playhead.errors import (
    ClosedError,
    DeadlineError,
    PlayheadError,
)
from playhead.limits import KIB, Limits
from playhead.stream.answer import Answer
from playhead.stream.flights import Flights
from playhead.stream.inlet import Inlet
from playhead.stream.landing import Landing
from playhead.stream.options import StreamOptions
from playhead.stream.page import ReadRange
from playhead.stream.patient import PatientReader, late
from playhead.stream.sequential import Sequential
from playhead.stream.settle import Case, Settlement, settle
from playhead.stream.statistics import StreamStatistics, Tally

FIRST_PAGE_BYTES = 8 * KIB
FIRST_BURST = 3
CLOSED = "stream: expected an open one, but its owner closed it (its `async with` was left); open it again"
TIMER_GRAIN_SECONDS = 0.001
"""A timer that is due at once still lets the other tasks run."""


class Driver:
    """One stream's reads. `run` is its task; the rest is called from the trio thread."""

    def __init__(
        self,
        read_range: ReadRange,
        *,
        options: StreamOptions,
        limits: Limits,
        size_bytes: int | None,
        strategy_name: str,
        server_name: str,
    ) -> None:
        self._options = options
        self._limits = limits
        self._strategy_name = strategy_name
        self._server_name = server_name
        self._max_bytes = limits.stream_bytes if options.max_bytes is None else options.max_bytes
        self.pipe = Pipe(options.ring_bytes())
        self.tally = Tally()
        self.inlet = Inlet(self.pipe, max_bytes=self._max_bytes, tally=self.tally)
        page_bytes = min(options.page_bytes, self.pipe.capacity_bytes)
        # A short page can only be the end if nothing after it was asked for.
        in_flight = 1 if options.compat == "reference" else options.in_flight
        self._planner = Planner(
            capacity_bytes=self.pipe.capacity_bytes,
            page_min_bytes=min(FIRST_PAGE_BYTES, page_bytes),
            page_bytes=page_bytes,
            in_flight=in_flight,
            in_flight_start=min(FIRST_BURST, in_flight),
            max_tries=options.max_tries,
            deadline_seconds=options.timeout,
            # Streams that one server fails together must not come back together.
            seed=random.getrandbits(64),
        )
        if size_bytes is not None:
            self._planner.set_total(size_bytes)
        self._ranged = strategy_name != "whole"
        self._patient = PatientReader(
            read_range,
            timeout=options.timeout,
            max_tries=options.max_tries,
            limits=limits,
            tally=self.tally,
            size_bytes=size_bytes,
            ranged=self._ranged,
        )
        self._opened_at = trio.current_time()
        self._flights = Flights(read_range, tally=self.tally)
        # Nothing below refers to its owner: the ring goes with the stream and waits for no collection.
        self._landing = Landing(
            pipe=self.pipe,
            inlet=self.inlet,
            planner=self._planner,
            tally=self.tally,
            limits=limits,
            size_bytes=size_bytes,
            page_bytes=page_bytes,
            short_page_ends=options.compat == "reference",
            server_name=server_name,
            stop_others=self._flights.drop_all,
        )
        self._sequential: Sequential | None = None
        self._feeding = trio.CancelScope()
        self._life = trio.CancelScope()
        self.closed = False
        """The owner closed the stream: nothing is read any more, and no seek may begin anew."""

    # --- the task --------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End `run`."""
        self.closed = True
        self._life.cancel()

    async def run(self) -> None:
        """Read until cancelled; an end or a break is told to the pipe, and a seek goes on from there.

        Cancelled: every read on the wire is cancelled, and a blocked reader gets `ClosedError`.
        """
        try:
            with self._life:
                await self._run()
        finally:
            self.closed = True
            self._sequential = None  # and the answers that it holds
            self.inlet.abort(ClosedError(CLOSED))

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.inlet.watch_room)
            try:
                await self._drive(nursery)
            except PlayheadError as error:
                self._break(error)

    async def _drive(self, nursery: trio.Nursery) -> None:
        if not self._ranged:
            await self._one_by_one(())
        while True:
            await self._planned(nursery)
            if self._landing.surprise is None:
                await self._vouch()
                continue
            settlement = await self._settle()
            self.tally.pages += len(settlement.answers)
            if settlement.end is not None and settlement.proof is not None:
                self._landing.prove(settlement.end, settlement.proof)
            # From here on only `answers` holds the text, so that each is let go when it is fed.
            answers, settlement = deque(settlement.answers), replace(settlement, answers=())
            page_bytes = settlement.page_bytes
            if settlement.ranges_ignored:
                await self._one_by_one(answers)
            if page_bytes is not None and not self._landing.fits(page_bytes):
                await self._one_by_one(answers, page_bytes=page_bytes)
            # First what came before it, so that an answer that denies it is found out.
            for held in self._landing.trust.establish():
                self.inlet.store(held)
            with trio.CancelScope() as self._feeding:
                while answers:
                    await self.inlet.feed(answers.popleft())
            if page_bytes is not None:
                self._landing.adopt(page_bytes)
            self._planner.seek(self.pipe.tail)

    async def _one_by_one(self, answers: Collection[Answer], *, page_bytes: int | None = None) -> NoReturn:
        self._sequential = Sequential(
            pipe=self.pipe,
            inlet=self.inlet,
            patient=self._patient,
            tally=self.tally,
            answers=answers,
            page_bytes=page_bytes,
            end=None if self._landing.end is None else self._landing.end.offset,
            prove=self._landing.prove,
        )
        del answers
        await self._sequential.run()

    # --- planned reading -------------------------------------------------------------------------------

    async def _planned(self, nursery: trio.Nursery) -> None:
        """Read as the planner says, until something has to be settled or vouched for."""
        while self._landing.surprise is None and not self._is_unvouched():
            self.inlet.news = trio.Event()
            self._expire()
            await self._issue(nursery)
            if self._is_unvouched():
                return  # a seek, just now
            self._landing.check()
            timer = self._planner.timer()
            earliest = trio.current_time() + TIMER_GRAIN_SECONDS
            with trio.move_on_at(math.inf if timer is None else max(timer, earliest)):
                await self.inlet.news.wait()

    def _is_unvouched(self) -> bool:
        """A seek came before the answer at offset 0: there is nothing to hold the others against."""
        return (
            self.pipe.tail != 0
            and not self._landing.trust.established
            and self._landing.trust.reference is None
        )

    async def _vouch(self) -> None:
        """Read the beginning, which the reader has left, to know what the server does with ranges."""
        answer = await self._patient.read(0, self._landing.page_bytes)
        if answer.n_bytes > self._landing.page_bytes:
            self.tally.oversized_pages += 1
            self._landing.surprised(answer, self._landing.page_bytes)
        elif answer.n_bytes:
            admission = self._landing.trust.admit(answer, size_bytes=self._landing.size_bytes)
            for admitted in admission.store:
                self.inlet.store(admitted)
            if admission.surprise is not None:
                self._landing.surprised(admission.surprise, admission.surprise.n_bytes)
        else:
            self._landing.trust.establish()
            if answer.proof is not None:
                self._landing.prove(0, answer.proof)

    async def _settle(self) -> Settlement:
        assert self._landing.surprise is not None
        surprise, self._landing.surprise = self._landing.surprise, None
        reference = self._landing.trust.reference
        settled = self._landing.trust.established or reference is not None
        case = Case(
            at=self.pipe.tail if settled else 0,
            want_bytes=surprise.want_bytes,
            far=max(self._limits.stream_bytes, self._max_bytes, self._landing.size_bytes or 0),
            size_bytes=self._landing.size_bytes,
            server_name=self._server_name,
        )
        if self._landing.trust.established:
            mine = (surprise.answer,) if surprise.answer.offset == case.at else ()
            return Settlement(answers=mine, page_bytes=surprise.answer.n_bytes)
        # What trust holds is kept: `_drive` stores it before the answers are fed.
        return await settle(self._patient.read, case, surprise=surprise.answer, reference=reference)

    async def _issue(self, nursery: trio.Nursery) -> None:
        while self._landing.surprise is None and not self._is_unvouched():
            now, head = trio.current_time(), self.pipe.head
            request = self._planner.next(now, head)
            if request is not None:
                if request.start in self._landing.errors:
                    self._planner.on_error(request.id, now, retryable=False)
                elif self._landing.end is not None and request.start >= self._landing.end.offset:
                    self._planner.on_page(request.id, now, 0)
                else:
                    self._flights.send(request, nursery, done=self._landing.done)
                    # trio runs new tasks in any order; on a slow link the first page must be sent first.
                    await trio.lowlevel.checkpoint()
            elif not self.pipe.arm(self._low_bytes()) or self.pipe.head == head:
                return

    def _low_bytes(self) -> int:
        """At most so many readable bytes leave room for the next page."""
        ahead = max(0, self._flights.asked_to - self.pipe.tail)
        return max(0, self.pipe.capacity_bytes - ahead - self._landing.page_bytes)

    def _expire(self) -> None:
        now = trio.current_time()
        for request_id in self._planner.expired(now):
            flight = self._flights.drop(request_id)
            if flight is not None and flight.request.deadline <= now:
                start, end = flight.request.start, flight.request.end
                self._landing.last_failure = DeadlineError(
                    late(start, end, flight.request.deadline - flight.sent_at)
                )
            self._planner.on_error(request_id, now, retryable=True)

    def _break(self, error: PlayheadError) -> None:
        # Whoever keeps the error would keep the pages too, tens of MiB, by the frames that it passed through.
        link: BaseException | None = error
        while isinstance(link, PlayheadError):
            link.__traceback__ = None
            link = link.__cause__ or link.__context__
        self._landing.broken = error
        self._flights.drop_all()
        self.inlet.abort(error)

    # --- what the stream's owner asks --------------------------------------------------------------------

    def seek(self, offset: int) -> None:
        """Go on at `offset`. Reads that are out of the way are cancelled, on the wire too.

        Raises the stream's own error when it is broken, and `ClosedError` when it is closed.
        """
        if self._landing.broken is not None:
            raise self._landing.broken
        self.require_open()
        tail = self.pipe.tail
        self.pipe.seek(offset)
        if self.pipe.tail != tail:  # not in the ring: it was emptied
            self._flights.drop_all()
            self._planner.seek(offset)
            self._landing.trust.forget_held()
            self._landing.errors.clear()
            self._feeding.cancel()
            if self._sequential is not None:
                self._sequential.restart()
        self.inlet.news.set()

    def require_open(self) -> None:
        """Raise `ClosedError` where the owner closed the stream."""
        if self.closed:
            raise ClosedError(CLOSED)

    def can_play(self, needed_bytes: int, now: float) -> bool:
        """Whether playing may start, or resume, without a stall that could be foreseen."""
        head, tail = self.pipe.head, self.pipe.tail
        if self.pipe.closed:
            return True
        if self._sequential is not None:
            return tail - head >= needed_bytes
        total = self._landing.end.offset if self._landing.end is not None else self._landing.size_bytes
        left_bytes = None if total is None else max(0, total - head)
        return self._planner.can_play(now, tail - head, needed_bytes, left_bytes)

    def total_bytes(self) -> int | None:
        """The proved end, else the announced size."""
        return (
            self._landing.end.offset
            if self.inlet.ended and self._landing.end is not None
            else self._landing.size_bytes
        )

    def statistics(self) -> StreamStatistics:
        """A snapshot; callable from any thread."""
        tally, planned, first = self.tally, self._planner.statistics(), self.inlet.first_byte_at
        end = self._landing.end if self.inlet.ended else None
        size = self._landing.size_bytes
        return StreamStatistics(
            bytes=self.pipe.statistics().bytes_read,
            received_bytes=tally.received_bytes,
            requests=tally.requests,
            pages=tally.pages,
            short_pages=tally.short_pages,
            oversized_pages=tally.oversized_pages,
            retries=tally.retries,
            hedges=tally.hedges,
            in_flight=tally.in_flight,
            in_flight_max=tally.in_flight_max,
            bandwidth_bytes_per_second=planned.bandwidth_bytes_per_second,
            rtt_seconds=planned.rtt_seconds,
            first_byte_seconds=None if first is None else first - self._opened_at,
            ended_by=None if end is None else end.proof,
            end_bytes=None if end is None else end.offset,
            size_bytes=size,
            size_was_wrong=size is not None
            and (tally.data_end > size or (end is not None and end.offset != size)),
            strategy=self._strategy_name,
            mime_type=tally.mime_type,
            capacity_bytes=self.pipe.capacity_bytes,
        )
