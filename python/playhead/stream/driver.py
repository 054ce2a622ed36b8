"""Drives the planner: sends the reads it asks for, and hands it what came of them.

    planner.next ──▶ one task a read ──▶ measure ──▶ trust? ──▶ ring (inlet)
         ▲                                  │           │
         └── on_page / on_error ◀───────────┘           └──▶ settle (alone) ──▶ planner, or one by one

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
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NoReturn

import trio

from playhead._core import Pipe, Planner, Request
from playhead.errors import (
    ClosedError,
    ContradictionError,
    DeadlineError,
    LimitError,
    PlayheadError,
    RangePastEndError,
    ServerError,
    TransportError,
)
from playhead.limits import KIB, Limits
from playhead.stream.answer import Answer, measure
from playhead.stream.inlet import Inlet
from playhead.stream.options import StreamOptions
from playhead.stream.page import Page, ReadRange
from playhead.stream.patient import PatientReader, broken, late
from playhead.stream.sequential import Sequential
from playhead.stream.settle import Case, Settlement, settle
from playhead.stream.statistics import EndedBy, StreamStatistics, Tally
from playhead.stream.trust import Trust

FIRST_PAGE_BYTES = 8 * KIB
FIRST_BURST = 3
TIMER_GRAIN_SECONDS = 0.001
"""A timer that is due at once still lets the other tasks run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flight:
    request: Request
    scope: trio.CancelScope
    sent_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """Nothing is at or past `offset`."""

    offset: int
    proof: EndedBy


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
        self._read_range = read_range
        self._options = options
        self._limits = limits
        self._size_bytes = size_bytes
        self._strategy_name = strategy_name
        self._server_name = server_name
        self._max_bytes = limits.stream_bytes if options.max_bytes is None else options.max_bytes
        self.pipe = Pipe(options.ring_bytes())
        self.tally = Tally()
        self.inlet = Inlet(self.pipe, max_bytes=self._max_bytes, tally=self.tally)
        self._page_bytes = min(options.page_bytes, self.pipe.capacity_bytes)
        # A short page can only be the end if nothing after it was asked for.
        in_flight = 1 if options.compat == "reference" else options.in_flight
        self._planner = Planner(
            capacity_bytes=self.pipe.capacity_bytes,
            page_min_bytes=min(FIRST_PAGE_BYTES, self._page_bytes),
            page_bytes=self._page_bytes,
            in_flight=in_flight,
            in_flight_start=min(FIRST_BURST, in_flight),
            max_tries=options.max_tries,
            deadline_seconds=options.timeout,
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
        self._flights: dict[int, _Flight] = {}
        self._trust = Trust()
        self._surprise: tuple[Answer, int] | None = None
        self._end: _End | None = None
        self._errors: dict[int, PlayheadError] = {}
        self._last_failure: TransportError | None = None
        self._broken: PlayheadError | None = None
        self._stagnant = 0
        self._sequential: Sequential | None = None
        self._feeding = trio.CancelScope()
        self._has_adopted = False
        self._life = trio.CancelScope()

    # --- the task --------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End `run`."""
        self._life.cancel()

    async def run(self) -> None:
        """Read until cancelled; an end or a break is told to the pipe, and a seek goes on from there.

        Cancelled: every read on the wire is cancelled, and a blocked reader gets `ClosedError`.
        """
        try:
            with self._life:
                await self._run()
        finally:
            self.inlet.abort(ClosedError("stream: closed by its owner while it was read; open it again"))

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
            if self._surprise is None:
                await self._vouch()
                continue
            settlement = await self._settle()
            self.tally.pages += len(settlement.answers)
            if settlement.end is not None and settlement.proof is not None:
                self._prove(settlement.end, settlement.proof)
            # From here on only `answers` holds the text, so that each is let go when it is fed.
            answers, settlement = deque(settlement.answers), replace(settlement, answers=())
            page_bytes = settlement.page_bytes
            if settlement.ranges_ignored:
                await self._one_by_one(answers)
            if page_bytes is not None and not self._fits(page_bytes):
                await self._one_by_one(answers, page_bytes=page_bytes)
            # First what came before it, so that an answer that denies it is found out.
            for held in self._trust.establish():
                self.inlet.store(held)
            with trio.CancelScope() as self._feeding:
                while answers:
                    await self.inlet.feed(answers.popleft())
            if page_bytes is not None:
                self._adopt(page_bytes)
            self._planner.seek(self.pipe.tail)

    async def _one_by_one(self, answers: Collection[Answer], *, page_bytes: int | None = None) -> NoReturn:
        self._sequential = Sequential(
            pipe=self.pipe,
            inlet=self.inlet,
            patient=self._patient,
            tally=self.tally,
            answers=answers,
            page_bytes=page_bytes,
            end=None if self._end is None else self._end.offset,
            prove=self._prove,
        )
        del answers
        await self._sequential.run()

    def _fits(self, page_bytes: int) -> bool:
        """Whether two pages fit the ring: with fewer there is nothing to plan."""
        return page_bytes <= self.pipe.capacity_bytes // 2

    def _adopt(self, page_bytes: int) -> None:
        # Once: a server that always sends a little more than asked for would be followed up and up.
        self._has_adopted = True
        self._page_bytes = page_bytes
        self._planner.set_page_bytes(page_bytes)

    # --- planned reading -------------------------------------------------------------------------------

    async def _planned(self, nursery: trio.Nursery) -> None:
        """Read as the planner says, until something has to be settled or vouched for."""
        while self._surprise is None and not self._is_unvouched():
            self.inlet.news = trio.Event()
            self._expire()
            await self._issue(nursery)
            if self._is_unvouched():
                return  # a seek, just now
            self._check()
            timer = self._planner.timer()
            earliest = trio.current_time() + TIMER_GRAIN_SECONDS
            with trio.move_on_at(math.inf if timer is None else max(timer, earliest)):
                await self.inlet.news.wait()

    def _is_unvouched(self) -> bool:
        """A seek came before the answer at offset 0: there is nothing to hold the others against."""
        return self.pipe.tail != 0 and not self._trust.established and self._trust.reference is None

    async def _vouch(self) -> None:
        """Read the beginning, which the reader has left, to know what the server does with ranges."""
        answer = await self._patient.read(0, self._page_bytes)
        if answer.n_bytes > self._page_bytes:
            self.tally.oversized_pages += 1
            self._surprised(answer, self._page_bytes)
        elif answer.n_bytes:
            admission = self._trust.admit(answer, size_bytes=self._size_bytes)
            for admitted in admission.store:
                self.inlet.store(admitted)
            if admission.surprise is not None:
                self._surprised(admission.surprise, admission.surprise.n_bytes)
        else:
            self._trust.establish()
            if answer.proof is not None:
                self._prove(0, answer.proof)

    async def _settle(self) -> Settlement:
        assert self._surprise is not None
        (surprise, want_bytes), self._surprise = self._surprise, None
        reference = self._trust.reference
        settled = self._trust.established or reference is not None
        case = Case(
            at=self.pipe.tail if settled else 0,
            want_bytes=want_bytes,
            far=max(self._limits.stream_bytes, self._max_bytes, self._size_bytes or 0),
            size_bytes=self._size_bytes,
            server_name=self._server_name,
        )
        if self._trust.established:
            mine = (surprise,) if surprise.offset == case.at else ()
            return Settlement(answers=mine, page_bytes=surprise.n_bytes)
        # What trust holds is kept: `_drive` stores it before the answers are fed.
        return await settle(self._patient.read, case, surprise=surprise, reference=reference)

    async def _issue(self, nursery: trio.Nursery) -> None:
        while self._surprise is None and not self._is_unvouched():
            now, head = trio.current_time(), self.pipe.head
            request = self._planner.next(now, head)
            if request is not None:
                if request.start in self._errors:
                    self._planner.on_error(request.id, now, retryable=False)
                elif self._end is not None and request.start >= self._end.offset:
                    self._planner.on_page(request.id, now, 0)
                else:
                    self._send(request, nursery)
                    # trio runs new tasks in any order; on a slow link the first page must be sent first.
                    await trio.lowlevel.checkpoint()
            elif not self.pipe.arm(self._low_bytes()) or self.pipe.head == head:
                return

    def _low_bytes(self) -> int:
        """At most so many readable bytes leave room for the next page."""
        asked_to = max((flight.request.end for flight in self._flights.values()), default=0)
        ahead = max(0, asked_to - self.pipe.tail)
        return max(0, self.pipe.capacity_bytes - ahead - self._page_bytes)

    def _send(self, request: Request, nursery: trio.Nursery) -> None:
        flight = _Flight(request=request, scope=trio.CancelScope(), sent_at=trio.current_time())
        self._flights[request.id] = flight
        self.tally.sent()
        self.tally.hedges += request.is_hedge
        self.tally.retries += request.attempt > 0 and not request.is_hedge
        nursery.start_soon(self._read, flight)

    async def _read(self, flight: _Flight) -> None:
        request = flight.request
        page: Page | None = None
        error: PlayheadError | None = None
        try:
            with flight.scope:
                page = await self._read_range(request.start, request.end)
        except PlayheadError as failure:
            error = failure
        finally:
            self.tally.in_flight -= 1
        if self._flights.pop(request.id, None) is None:
            return  # nobody waits for it any more: a seek, a deadline, a copy that was faster
        if page is not None:
            self._landed(request, page)
        elif error is not None:
            self._failed(request, error)
        self.inlet.news.set()

    def _drop(self, request_id: int) -> _Flight | None:
        flight = self._flights.pop(request_id, None)
        if flight is not None:
            flight.scope.cancel()
        return flight

    def _expire(self) -> None:
        now = trio.current_time()
        for request_id in self._planner.expired(now):
            flight = self._drop(request_id)
            if flight is not None and flight.request.deadline <= now:
                start, end = flight.request.start, flight.request.end
                self._last_failure = DeadlineError(late(start, end, flight.request.deadline - flight.sent_at))
            self._planner.on_error(request_id, now, retryable=True)

    # --- what came -------------------------------------------------------------------------------------

    def _failed(self, request: Request, error: PlayheadError) -> None:
        now = trio.current_time()
        if isinstance(error, RangePastEndError):
            self._accept(request, Answer(offset=request.start, blobs=(), n_bytes=0, proof="416"))
        elif isinstance(error, TransportError):
            self._last_failure = error
            self._planner.on_error(request.id, now, retryable=True)
        elif request.is_confirm and isinstance(error, ServerError):
            # The announced size and the refusal to read past it agree.
            self._accept(request, Answer(offset=request.start, blobs=(), n_bytes=0, proof="size"))
        else:
            self._spoil(request, error)

    def _spoil(self, request: Request, error: PlayheadError) -> None:
        """The stream breaks at this page, once all before it has come, unless it ends before it."""
        self._errors[request.start] = error
        if request.is_confirm:
            # To the planner a refusal past the announced size is the end; this is none.
            self._broken = self._broken or error
        else:
            self._planner.on_error(request.id, trio.current_time(), retryable=False)

    def _landed(self, request: Request, page: Page) -> None:
        try:
            answer = measure(
                page,
                offset=request.start,
                data_end=self.tally.data_end,
                size_bytes=self._size_bytes,
                block_bytes=self._limits.block_bytes,
            )
            self.tally.mime_type = self.tally.mime_type or page.mime_type
            self.tally.received_bytes += answer.n_bytes
            if page.total_bytes is not None and self._size_bytes is None:
                self._size_bytes = page.total_bytes
                self._planner.set_total(page.total_bytes)
            self._accept(request, answer)
        except ContradictionError as error:
            self._broken = self._broken or error
        except PlayheadError as error:
            self._spoil(request, error)

    def _accept(self, request: Request, answer: Answer) -> None:
        now = trio.current_time()
        want_bytes = request.end - request.start
        if not answer.n_bytes:
            if answer.proof is not None:
                self._prove(answer.offset, answer.proof)
            self._planner.on_page(request.id, now, 0)
            return
        if answer.n_bytes > want_bytes:
            self.tally.oversized_pages += 1
            if not self._trust.established or not self._fits(answer.n_bytes):
                self._surprised(answer, want_bytes)
                return
            if not self._has_adopted:
                self._adopt(answer.n_bytes)
        admission = self._trust.admit(answer, size_bytes=self._size_bytes)
        for admitted in admission.store:
            # More than was asked for is kept where it fits: the page it belongs to is held against it.
            self.inlet.store(admitted, stop=min(admitted.end, self.pipe.head + self.pipe.capacity_bytes))
        if admission.surprise is not None:
            # Nothing admitted is longer than asked for: here it is the likeness that surprises.
            self._surprised(admission.surprise, max(want_bytes, admission.surprise.n_bytes))
            return
        if answer.n_bytes < want_bytes:
            self.tally.short_pages += 1
            if answer.proof is not None:
                self._prove(answer.end, answer.proof)
            elif self._options.compat == "reference":
                self._prove(answer.end, "reference")
        if self._planner.on_page(request.id, now, min(answer.n_bytes, want_bytes)):
            self.tally.pages += 1
            self._stagnant = 0
        else:
            self._stagnate(request)

    def _surprised(self, answer: Answer, want_bytes: int) -> None:
        """Stop all other reads: whatever they bring is in doubt."""
        self._surprise = (answer, want_bytes)
        self._drop_all()

    def _stagnate(self, request: Request) -> None:
        self._stagnant += 1
        allowed = self._limits.stagnant_pages
        if self._stagnant > allowed:
            self._broken = self._broken or LimitError(
                f"{self._server_name}: expected new bytes, got {self._stagnant} pages in a row without one "
                f"(the last at byte {request.start}); report it to the server's author",
                limit="stagnant_pages",
                allowed=allowed,
                got=self._stagnant,
            )

    # --- the end ---------------------------------------------------------------------------------------

    def _prove(self, offset: int, proof: EndedBy) -> None:
        if self._end is None or offset < self._end.offset:
            self._end = _End(offset=offset, proof=proof)

    def _check(self) -> None:
        """Tell the pipe what is settled: the end, or the break."""
        if self._broken is not None:
            raise self._broken
        contradicted = self._planner.contradiction
        if contradicted is not None:
            raise ContradictionError(
                f"{self._server_name}: said that the resource ends at byte {contradicted}, and sent bytes "
                "past it: the server contradicts itself; try again, or report it to its author",
                offset=contradicted,
            )
        failed = self._planner.failed
        if failed is not None:
            offset, tries = failed
            error = self._errors.get(offset)
            if error is not None:
                raise error
            raise broken(offset, tries, self._last_failure) from self._last_failure
        if self._planner.finished and self._surprise is None and not self.pipe.closed:
            self.inlet.close()

    def _break(self, error: PlayheadError) -> None:
        self._broken = error
        self._drop_all()
        self.inlet.abort(error)

    def _drop_all(self) -> None:
        for request_id in list(self._flights):
            self._drop(request_id)

    # --- what the stream's owner asks --------------------------------------------------------------------

    def seek(self, offset: int) -> None:
        """Go on at `offset`. Reads that are out of the way are cancelled, on the wire too.

        Raises the stream's own error when it is broken, and `ClosedError` when it is closed.
        """
        if self._broken is not None:
            raise self._broken
        tail = self.pipe.tail
        self.pipe.seek(offset)
        if self.pipe.tail != tail:  # not in the ring: it was emptied
            self._drop_all()
            self._planner.seek(offset)
            self._trust.forget_held()
            self._errors.clear()
            self._feeding.cancel()
            if self._sequential is not None:
                self._sequential.restart()
        self.inlet.news.set()

    def can_play(self, needed_bytes: int, now: float) -> bool:
        """Whether playing may start, or resume, without a stall that could be foreseen."""
        head, tail = self.pipe.head, self.pipe.tail
        if self.pipe.closed:
            return True
        if self._sequential is not None:
            return tail - head >= needed_bytes
        total = self._end.offset if self._end is not None else self._size_bytes
        left_bytes = None if total is None else max(0, total - head)
        return self._planner.can_play(now, tail - head, needed_bytes, left_bytes)

    def total_bytes(self) -> int | None:
        """The proved end, else the announced size."""
        return self._end.offset if self.inlet.ended and self._end is not None else self._size_bytes

    def statistics(self) -> StreamStatistics:
        """A snapshot; callable from any thread."""
        tally, planned, first = self.tally, self._planner.statistics(), self.inlet.first_byte_at
        end = self._end if self.inlet.ended else None
        size = self._size_bytes
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
