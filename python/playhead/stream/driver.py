"""The driver: sends the reads that the planner asks for, and reports their answers to it.

    planner.next ──▶ InFlight (a task per read) ──▶ ResponseHandler ──▶ ring
         ▲                                               │
         └────── its answer, or its error ◀──────────────┘

The planner (Rust, pure) decides which ranges are read, when a failed read is retried, where the resource
ends, and when the stream loses patience with the server. The driver does everything that needs a clock, a
task or memory. A form is one way of asking a server for ranges; `negotiation` chooses it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio

from playhead._core import Pipe, Planner
from playhead.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    PlayheadError,
    SeekError,
    SessionLostError,
    StreamBrokenError,
    UsageError,
)
from playhead.limits import GIB, KIB, Limits
from playhead.stream.answer import Answer, EndedBy, Page, ReadRange
from playhead.stream.in_flight import Background, Flight, InFlight
from playhead.stream.live_source import LiveSource
from playhead.stream.negotiation import (
    FormNegotiation,
    GrowthListener,
    LateForm,
    RangeForm,
    Refusal,
    is_refusal,
)
from playhead.stream.options import StreamOptions, StreamSkipped, StreamStatistics
from playhead.stream.page_limit import PageLimit
from playhead.stream.phases import Phase, PhaseEvent, phase_after
from playhead.stream.range_support import RangeSupport
from playhead.stream.reader_wait import STATUS_SECONDS, ReaderWait
from playhead.stream.response_handler import ResponseHandler
from playhead.stream.ring_writer import RING_BUDGET, SMALL_RING_BYTES, RingWriter
from playhead.stream.sequential import Sequential, SequentialPlan
from playhead.stream.source import Demand
from playhead.stream.start_rule import StartRule

FIRST_PAGE_BYTES = 8 * KIB
MANY_STREAMS = 32
MANY_FIRST_PAGE_BYTES = 40 * KIB
"""The size of the first page of a stream that starts while `MANY_STREAMS` read: a second at 320 kbit/s, which
lasts until the stream's next turn. With so many streams, a request costs more than its bytes."""
NO_SEEK = (
    "stream: expected to read on, got a seek; the server hands out the bytes of this stream once, in their "
    "order (strategy poll or cursor)"
)
CLOSED = "stream: expected an open stream, but its owner closed it (left its `async with`); open it again"
JUMP_BYTES = 64 * GIB
"""The distance of a seek in a live stream: more than any form delivers between two seeks."""
WHOLE_FRAMES_BYTES = 288
"""A skip is a multiple of this, so that PCM continues with a whole frame: of 1, 2, 3, 4, 6, 8, 9, 12, 16, 18,
24, 32 or 36 bytes."""
MOST_JOINS = 32
"""More than the skips between two bytes, and than a reader is behind."""
SKIPS_IN_VAIN = 8
"""Skips without a byte between them that break a stream. Each goes further ahead of what the server drops."""
TIMER_GRAIN_SECONDS = 0.001
"""The shortest sleep, so that other tasks run even if a timer is already due."""


def _ring_bytes(options: StreamOptions, size_bytes: int | None) -> int:
    wanted = options.ring_bytes()
    if size_bytes is None:
        return wanted
    # A small resource gets a smaller ring, because glibc zeroes even the unused part of a reused one.
    return min(wanted, max(2 * size_bytes, SMALL_RING_BYTES))


def _new_planner(
    options: StreamOptions,
    limits: Limits,
    *,
    room_bytes: int,
    first_page_bytes: int,
    grid_bytes: int,
    size_bytes: int | None,
) -> Planner:
    page_bytes = min(options.page_bytes, room_bytes)
    planner = Planner(
        capacity_bytes=room_bytes,
        page_min_bytes=min(first_page_bytes, page_bytes),
        page_bytes=page_bytes,
        page_bytes_max=max(options.page_bytes_max, page_bytes),
        grid_bytes=grid_bytes,
        in_flight=options.in_flight,
        timeout_seconds=options.timeout,
        patience_seconds=options.patience_seconds,
        sleeps_when_full=options.profile == "play",
        stagnant_answers=limits.stagnant_pages,
        # Streams that fail together must not retry together.
        seed=random.getrandbits(64),
    )
    if size_bytes is not None:
        planner.set_total(size_bytes)
    return planner


class Driver:
    """Drives the reads of one stream. `run` is its task. Call all other methods in the trio thread, except
    those marked "From any thread"."""

    def __init__(
        self,
        forms: Sequence[RangeForm | LateForm],
        *,
        options: StreamOptions,
        limits: Limits,
        size_bytes: int | None,
        server_name: str,
        last_received: Callable[[], float],
        grid_bytes: int = 0,
        remark: Callable[[bool], str] = lambda _: "",
        is_live: bool = False,
    ) -> None:
        """`size_bytes` is the present size if `is_live`. `last_received` returns the time of the server's
        last sign of life, 0.0 before the first. `remark` completes an error message; see
        `FormNegotiation`."""
        self._forms = FormNegotiation(list(forms), server_name, remark)
        self._options = options
        self._server_name = server_name
        self._last_received = last_received
        present_bytes = size_bytes
        if is_live:
            size_bytes = None  # not known yet
        self._size_bytes = size_bytes
        max_bytes = limits.stream_bytes if options.max_bytes is None else options.max_bytes

        # The ring and its writer.
        self._ring_bytes = RING_BUDGET.take(
            _ring_bytes(options, size_bytes), allowed_bytes=limits.streams_bytes
        )
        behind_bytes = self._ring_bytes // 4 if options.profile == "play" else 0
        try:
            self.pipe = Pipe(self._ring_bytes, behind_bytes=behind_bytes)
        except BaseException:  # no memory, or no file descriptor
            RING_BUDGET.release(self._ring_bytes)
            raise
        self.writer = writer = RingWriter(self.pipe, max_bytes=max_bytes)

        # The reads. No part refers to the driver: the ring is freed with the stream, without a garbage
        # collection.
        self._background = background = Background.of_this_loop()
        self._opened_at = trio.current_time()
        self._in_flight = InFlight(background, wake=lambda: writer.news.set(), opened_at=self._opened_at)
        self._page_limit = PageLimit()
        is_one_of_many = background.streams >= MANY_STREAMS
        self._planner = _new_planner(
            options,
            limits,
            room_bytes=self.pipe.ahead_bytes,
            first_page_bytes=MANY_FIRST_PAGE_BYTES if is_one_of_many else FIRST_PAGE_BYTES,
            grid_bytes=grid_bytes,
            size_bytes=size_bytes,
        )
        if is_live:
            self._planner.set_growing(self._opened_at, present_bytes or 0)
        past_any_end = max(limits.stream_bytes, max_bytes, size_bytes or 0)
        self._support = RangeSupport(far=past_any_end, server_name=server_name)
        self._handler = ResponseHandler(
            pipe=self.pipe,
            writer=writer,
            planner=self._planner,
            support=self._support,
            limits=limits,
            size_bytes=size_bytes,
            server_name=server_name,
            patience_seconds=options.patience_seconds,
        )
        self._sequential: Sequential | None = None
        self._sequential_scope = trio.CancelScope()

        # The reader.
        self.wait = ReaderWait(self._planner, options)
        self._start_rule = StartRule(
            pipe=self.pipe,
            writer=writer,
            planner=self._planner,
            in_flight=self._in_flight,
            forms=self._forms,
        )

        # The growth of a live source.
        self.in_hand_seconds: Callable[[], float] | None = None
        """See `RangeStream.set_in_hand`."""
        self._growth_scope: trio.CancelScope | None = None
        """The scope of the task that follows the growth; None without one."""
        self._joined_at = 0
        """The first byte after the newest skip. A seek before it goes there."""
        self._joins: dict[int, int] = {}
        """The offsets at which the reader went on elsewhere, and where: the newest `MOST_JOINS`."""
        self._was_live = is_live
        self._notifications = 0
        self._skipped_bytes = self._skips_in_vain = 0

        # The state of the stream.
        self._phase = Phase.PROBING
        self._form: RangeForm
        """The current form. `_settle_form` sets it before the first read, and after a refusal."""
        self._read: ReadRange
        """Reads a range in the current form, within the page limit. Set with `_form`."""
        self._has_delivered = False
        """True once the form was notified of the first byte (`on_delivered`)."""
        self.received_bytes = 0
        """The bytes of all pages that have arrived, superseded ones included."""
        self._broken: PlayheadError | None = None
        self._end: tuple[int, EndedBy] | None = None
        """The end that was reached; a seek does not undo it."""
        self._wakes_at = -math.inf
        """The time until which `_drive` sleeps."""
        self._life = trio.CancelScope()
        """The scope of `run`, for `stop`."""
        background.join(self._in_flight, self._in_flight.add_reads)  # last, because only `run` undoes it

    # --- the task --------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End `run`."""
        self._enter(PhaseEvent.CLOSE)
        self._in_flight.drop_all()
        self._life.cancel()

    async def run(self) -> None:
        """Read until cancelled. Report the end or the error to the pipe; a seek resumes reading.

        Cancelled: every read on the wire is cancelled, and a blocked reader gets `ClosedError`.
        """
        try:
            with self._life:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.writer.watch_room)
                    try:
                        await self._drive(nursery)
                    except PlayheadError as error:
                        self._break(error)
        finally:
            self._in_flight.drop_all()  # `Background` counts each of them
            self._background.leave(self._in_flight)
            self._enter(PhaseEvent.CLOSE)
            self._sequential = None  # frees the answers that it holds
            self.writer.abort(ClosedError(CLOSED))
            RING_BUDGET.release(self._ring_bytes)

    async def _drive(self, nursery: trio.Nursery) -> None:
        """Act on the state of the stream, sleep until news or the next timer, and again. Never returns."""
        await self._settle_form()
        while True:
            # Made before the state is looked at, so that news during this round ends the sleep at once.
            self.writer.news = trio.Event()
            now = trio.current_time()
            last_received = self._last_received()
            if last_received > 0.0:  # 0.0 means that nothing was received
                self._planner.heard(last_received)
            for request_id in self._planner.expired(now):
                self._expire(request_id, now)
            if self._handler.refusal is not None:  # the server refused the form
                await self._negotiate()
                now = trio.current_time()
            plan = self._handler.plan  # set if the server cannot serve the planner's pages
            if plan is not None and self._sequential is None and now >= self._forms.resumes_at:
                self._start_sequential(plan, nursery)
            if self._handler.earliest is not None and self.pipe.head == self.pipe.tail:
                self._skip_to(self._handler.earliest)
            self._follow_growth(nursery)
            await self._send_reads(nursery, now)
            self._raise_if_broken()
            self._note_progress()
            self.wait.report(now, offset=self.pipe.tail, last_error=self._handler.last_error)
            self._wakes_at = self._next_wake(now)
            with trio.move_on_at(self._wakes_at):
                await self.writer.news.wait()

    # --- a live source -----------------------------------------------------------------------------------

    def _follow_growth(self, nursery: trio.Nursery) -> None:
        """Subscribe to the growth of a live source while it grows, once its form has been answered."""
        is_growing = self._planner.present_bytes is not None
        self._was_live = self._was_live or is_growing
        follow, scope = self._form.follow_growth, self._growth_scope
        if scope is None and is_growing and self._handler.has_answer and follow is not None:
            self._growth_scope = trio.CancelScope()
            nursery.start_soon(self._run_follow, follow, self._growth_scope)
        elif scope is not None and not is_growing:
            scope.cancel()

    async def _run_follow(
        self, follow: Callable[[GrowthListener], Awaitable[None]], scope: trio.CancelScope
    ) -> None:
        with scope:
            await follow(self)

    def set_notifies(self, notifies: bool, /) -> None:
        """See `GrowthListener`."""
        self._planner.set_notifies(trio.current_time(), notifies)
        self.writer.news.set()

    def on_notified(self) -> None:
        """See `GrowthListener`."""
        self._notifications += 1
        self._planner.on_notified(trio.current_time())
        self.writer.news.set()

    def _note_in_hand(self) -> None:
        """Tell the planner how long the audio in hand lasts, after an answer."""
        if self.in_hand_seconds is not None and self._planner.present_bytes is not None:
            self._planner.set_in_hand(trio.current_time(), self.in_hand_seconds())

    def _skip_to(self, earliest: int) -> None:
        """Continue at the first byte that the server still has, once the reader has all bytes before.

        If no byte has arrived since the last skip, it goes further, because the server drops bytes as fast as
        they are requested. Raises `StreamBrokenError` after `SKIPS_IN_VAIN` of these, and if the stream is
        saved: the file would lack the bytes between.
        """
        at = self.pipe.tail
        if earliest <= at:  # they have arrived another way
            self._restart(at)
            return
        self._skips_in_vain = self._skips_in_vain + 1 if at == self._joined_at > 0 else 0
        is_saved = self._options.profile == "save"
        if is_saved or self._skips_in_vain > SKIPS_IN_VAIN:
            times, or_play = ("", ", or play it") if is_saved else (" again and again", "")
            raise StreamBrokenError(
                f"{self._server_name}: expected the bytes from {at} on, got those from {earliest} on: the"
                f" server has dropped the others{times}; read it sooner{or_play}",
                offset=at,
            )
        skipped_bytes = (earliest - at) * (1 + self._skips_in_vain)
        skipped_bytes = -(-skipped_bytes // WHOLE_FRAMES_BYTES) * WHOLE_FRAMES_BYTES
        self._joined_at = at + skipped_bytes
        self._skipped_bytes += skipped_bytes
        self._join(at)
        self.pipe.seek(self._joined_at)
        self._restart(self._joined_at)
        self._handler.start_at(self._joined_at)
        self.wait.notify(StreamSkipped(offset=at, skipped_bytes=skipped_bytes))

    def _join(self, offset: int) -> None:
        """Have the reader that is at `offset` go on after the newest skip."""
        self._joins[offset] = self._joined_at
        if len(self._joins) > MOST_JOINS:
            del self._joins[next(iter(self._joins))]

    def joined(self, offset: int) -> int:
        """See `Reader.joined`. From any thread."""
        while (joined := self._joins.get(offset, offset)) != offset:
            offset = joined
        return offset

    def _next_wake(self, now: float) -> float:
        """Return the time at which to act without news: the earliest of the timers."""
        # A stream whose turn it is not has its next chance when the oldest read no longer counts.
        timer = self._background.until if self._in_flight.waits_for_others else self._planner.timer()
        earliest = math.inf if timer is None else max(timer, now + TIMER_GRAIN_SECONDS)
        if now < self._forms.resumes_at:
            earliest = min(earliest, self._forms.resumes_at)
        if self._in_flight.flights:
            # Early enough to report a wait that begins now. Otherwise `set_reader_waits` would have to wake
            # the driver, once per page.
            earliest = min(earliest, now + STATUS_SECONDS)
        return earliest

    def _enter(self, event: PhaseEvent) -> None:
        self._phase = phase_after(self._phase, event)

    # --- reads -------------------------------------------------------------------------------------------

    async def _send_reads(self, nursery: trio.Nursery, now: float) -> None:
        """Send every read that the planner asks for now. Then have the pipe wake the driver for the next."""
        in_flight, pipe, handler, background = self._in_flight, self.pipe, self._handler, self._background
        start_soon = self._form.start_soon or nursery.start_soon
        is_first = True
        in_flight.waits_for_others = False
        while now >= self._forms.resumes_at and handler.refusal is None:
            head = pipe.head
            # A stream that is alone sends at once. Others may have to wait for their turn; `Background` wakes
            # them then.
            may_send = not background.is_shared or in_flight.may_send(
                now, buffered_bytes=pipe.tail - head, is_new=not handler.has_bytes
            )
            request = self._planner.next(now, head) if may_send else None
            if request is not None:
                end = request.end
                if self._support.end_is_inclusive and end - request.start > 1:
                    end -= 1  # the server adds the byte at `end`
                await in_flight.send(
                    request,
                    self._read,
                    end,
                    start_soon,
                    sent_at=now,
                    is_first=is_first,
                    done=self._on_outcome,
                )
                is_first = False
                now = trio.current_time()
                continue
            # There is nothing to send now.
            if self._phase is Phase.SEQUENTIAL:  # `RingWriter` waits for room in the pipe
                break
            # Have the pipe wake the driver once the reader has taken enough.
            if not pipe.arm(self._low_bytes()):
                break
            # The reader has already taken enough. The planner's answer can only differ if the reader moved.
            if pipe.head == head:
                break
        if background.is_shared and not in_flight.waits_for_others:
            background.pass_turn()  # this stream has nothing more to send, so another may

    def _low_bytes(self) -> int:
        """Return the number of unread bytes at which the pipe wakes the driver: when the next page fits."""
        if self._in_flight.waits_for_others:
            return self._in_flight.comfort_bytes - 1  # when its read becomes urgent
        if self._handler.earliest is not None:
            return 0  # before a skip, the reader takes all that there is
        on_the_way = max(0, self._in_flight.asked_to - self.pipe.tail)
        wanted = self._planner.page_bytes
        if self._options.profile == "play":  # a full planner sleeps until a quarter of the room is free
            wanted = max(wanted, self.pipe.ahead_bytes // 4)
        return max(0, self.pipe.ahead_bytes - on_the_way - wanted)

    def _on_outcome(self, flight: Flight, outcome: Page | PlayheadError) -> None:
        """Pass the outcome of a read to the handler."""
        broke_off = False
        if isinstance(outcome, Page):
            self.received_bytes += outcome.n_bytes
        elif isinstance(outcome, (ConnectionLostError, DeadlineError)):
            # A part of the answer may have arrived if anything did after the read was sent. A lost session
            # says nothing about this read.
            has_session = not isinstance(outcome, SessionLostError)
            broke_off = has_session and self._last_received() > flight.sent_at
        self._handler.done(flight.request, outcome, broke_off=broke_off)
        self._note_in_hand()
        self.writer.news.set()

    def _expire(self, request_id: int, now: float) -> None:
        """Cancel a read that the planner no longer waits for. If it took too long, it has failed."""
        flight = self._in_flight.drop(request_id)
        if flight is None:
            return
        # A read that expired before its timeout is merely unwanted. The grain allows for rounding in the
        # planner's sums.
        if now - flight.sent_at < self._options.timeout - TIMER_GRAIN_SECONDS:
            return
        request = flight.request
        error = DeadlineError(
            f"{self._server_name}: expected an answer to the read of [{request.start}, {request.end}), got "
            f"no byte for {self._options.timeout:g} s",
            advice="raise StreamOptions.timeout to wait longer",
        )
        size = request.end - request.start
        self._page_limit.timed_out(size, error, sent_at=flight.sent_at, now=now)
        self._handler.done(request, error)

    # --- the form ----------------------------------------------------------------------------------------

    async def _settle_form(self) -> None:
        """Wait until the current form is known, and read in it from now on."""
        await self._forms.settle()
        self._form = form = self._forms.form
        # A queue and a whole resource have no pages whose size could be limited.
        is_limited = not form.is_queue and form.name != "whole"
        self._read = partial(self._page_limit.read, form.read) if is_limited else form.read
        self.writer.on_stored = form.on_stored
        if form.live is not None:
            self.writer.lift_limit()
            self.wait.is_endless = form.live.has_own_patience
            form.live.notify = self.wait.notify
            form.live.in_hand_seconds = self.in_hand_seconds
        # Pages that fit the ring only one at a time are not worth planning.
        if form.page_bytes is not None and 2 * form.page_bytes <= self.pipe.ahead_bytes:
            self._planner.set_page_bytes(form.page_bytes)
        if not is_limited:
            self._handler.plan = SequentialPlan(is_queue=form.is_queue)

    async def _negotiate(self) -> None:
        """Try the next form after a refusal before the first byte."""
        refusal = self._handler.refusal
        assert refusal is not None
        self._restart(self.pipe.tail)
        self._leave_refused_sequential()
        # An end at byte 0 is believed only if the announced size is 0.
        ended_by = refusal.claims_end if self._size_bytes == 0 else None
        if ended_by is None:
            ended_by = self._forms.refuse(
                refusal, now=trio.current_time(), has_bytes_past_0=self._handler.has_bytes_past_0
            )
        if ended_by is None:
            await self._settle_form()
        else:
            self._planner.set_end(0, ended_by)

    # --- sequential reading --------------------------------------------------------------------------------

    def _start_sequential(self, plan: SequentialPlan, nursery: trio.Nursery) -> None:
        """Change from the planner's pages to sequential reading, at the tail of the pipe."""
        self._in_flight.drop_all()
        self._planner.seek(self.pipe.tail)
        self._handler.forget()
        self._planner.hold_pages(True)
        self._enter(PhaseEvent.NO_RANGES)
        self._sequential = Sequential(
            plan=plan,
            pipe=self.pipe,
            writer=self.writer,
            planner=self._planner,
            support=self._support,
            ask=self._probe,
            on_end=self._finish,
            is_live=self.live is not None,
        )
        # The handler keeps the plan without its answers, so that each is freed once it is fed.
        self._handler.plan = SequentialPlan(page_bytes=plan.page_bytes, is_queue=plan.is_queue)
        nursery.start_soon(self._run_sequential, self._sequential)

    async def _run_sequential(self, sequential: Sequential) -> None:
        with self._sequential_scope:
            try:
                await sequential.run()
            except PlayheadError as error:
                if not self._handler.has_bytes and is_refusal(error):
                    self._handler.refusal = Refusal(error=error)
                else:
                    self._broken = self._broken or error  # `_drive` raises it
                self.writer.news.set()

    def _leave_refused_sequential(self) -> None:
        """End sequential reading, if it has begun, because its form was refused."""
        if self._sequential is None:
            return
        self._sequential_scope.cancel()
        self._sequential_scope = trio.CancelScope()
        self._sequential = None
        self._handler.plan = None
        self._enter(PhaseEvent.REFUSED)

    async def _probe(self, start: int, end: int) -> Answer:
        """Have the planner send one read for `Sequential`, and return its answer."""
        # A seek may have cancelled the caller: a queue's answer to its read would be lost.
        await trio.lowlevel.checkpoint_if_cancelled()
        send, receive = trio.open_memory_channel[Answer | PlayheadError](math.inf)
        self._handler.on_probe = send.send_nowait
        self._planner.probe(start, end)
        self.writer.news.set()
        try:
            outcome = await receive.receive()
        finally:
            self._handler.on_probe = None
        if isinstance(outcome, PlayheadError):
            raise outcome
        return outcome

    def _finish(self) -> None:
        """Report the end to the form and to the pipe. Called once every byte before it was written."""
        self._end = self._planner.end
        if self.live is not None:
            self._end = self.pipe.tail, "done"
        if (on_end := self._form.on_end) is not None and self._end is not None:
            on_end(self._end[0])
        self._in_flight.drop_all()  # copies of pages, and pages past the end
        self.writer.close()
        self._enter(PhaseEvent.END)
        self.writer.news.set()

    # --- the end and the break -----------------------------------------------------------------------------

    def _raise_if_broken(self) -> None:
        """Raise the error that breaks the stream, if any."""
        if self._broken is not None:
            raise self._broken
        if self._handler.broken is None and self._planner.broken is None:
            return
        if (error := self._handler.break_error()) is not None:
            raise error

    def _note_progress(self) -> None:
        """Act on the first byte, and on the end."""
        if self._handler.has_bytes and not self._has_delivered:
            self._has_delivered = True
            self._form.on_delivered()
        if self._handler.has_bytes and self._phase is Phase.PROBING:
            self._enter(PhaseEvent.BYTES)
        if self._planner.finished and self._phase in {Phase.PROBING, Phase.PLANNED}:
            self._finish()

    def _break(self, error: PlayheadError) -> None:
        """Break the stream: end all reads, and raise `error` in the reader."""
        # The frames of the error's traceback would keep pages alive, tens of MiB.
        link: BaseException | None = error
        seen: set[int] = set()  # the chain of an error that several reads share may be a cycle
        while isinstance(link, PlayheadError) and id(link) not in seen:
            seen.add(id(link))
            link.__traceback__ = None
            link = link.__cause__ or link.__context__
        self._enter(PhaseEvent.BREAK)
        self._broken = error
        self._background.withdraw(self._in_flight)
        self._in_flight.drop_all()
        self._sequential_scope.cancel()
        self.writer.abort(error)

    # --- the stream's owner ---------------------------------------------------------------------------------

    def _restart(self, offset: int) -> None:
        """Drop every read, and plan from `offset` on."""
        self._in_flight.drop_all()
        self._planner.seek(offset)
        self._handler.forget()

    def seek(self, offset: int) -> None:
        """Continue at `offset`. Reads that are no longer wanted are cancelled, on the wire too.

        Raises the stream's own error if it is broken, `ClosedError` if it is closed, and `UsageError` if it
        cannot seek.
        """
        if self._broken is not None:
            raise self._broken
        self.require_open()
        if self.is_queue:
            if offset == self.pipe.head:
                return
            raise UsageError(NO_SEEK)
        self._move(offset)

    def seek_time(self, seconds: float) -> tuple[float, float] | None:
        """See `RangeStream.seek_time`."""
        live = self.live
        if self._broken is not None:
            raise self._broken
        self.require_open()
        if live is None:
            raise SeekError(NO_SEEK)
        times = live.seek(seconds)
        # Offsets of a live stream only order its bytes: go on where no answer on its way can be.
        offset = (self.pipe.tail // JUMP_BYTES + 1) * JUMP_BYTES
        self._move(offset)
        live.sought(offset)
        return times

    def _move(self, offset: int) -> None:
        tail = self.pipe.tail
        if not self.pipe.kept_from <= offset <= tail:
            present_bytes = self._planner.present_bytes
            offset = offset if present_bytes is None else min(offset, present_bytes)
            if offset < self._joined_at:
                self._join(offset)
                offset = self._joined_at
        self.pipe.seek(offset)
        if self.pipe.tail != tail:  # not in the ring, which is empty now
            self._restart(offset)
            self._handler.start_at(offset)
            if self._sequential is not None:
                self._planner.hold_pages(True)
                self._sequential.restart()
                self._enter(PhaseEvent.NO_RANGES)
            else:
                self._enter(PhaseEvent.BYTES)
        self.writer.news.set()

    def can_seek(self, offset: int) -> bool:
        """See `RangeStream.can_seek`. From any thread."""
        if self.is_queue:
            return False
        if self.pipe.kept_from <= offset <= self.pipe.tail:
            return True
        present_bytes = self._planner.present_bytes
        if present_bytes is not None and offset > present_bytes:
            return False
        return self._sequential is None or self._sequential.can_seek(offset)

    @property
    def present_bytes(self) -> int | None:
        """The present end of a live source; None for any other. From any thread."""
        return self._planner.present_bytes

    @property
    def live(self) -> LiveSource | None:
        """The parts and titles of a live stream; None for another, and before its form is known."""
        return self._forms.live

    @property
    def is_queue(self) -> bool:
        """True if the bytes are handed out once, in their order."""
        return self._forms.is_queue

    def require_open(self) -> None:
        """Raise `ClosedError` if the owner closed the stream."""
        if self._phase is Phase.CLOSED:
            raise ClosedError(CLOSED)

    def set_reader_waits(self, waits: bool, /) -> None:
        """Record that the reader begins, or stops, waiting for bytes."""
        self._update_wait(reader_waits=waits)

    def set_demand(self, demand: Demand) -> None:
        """See `RangeStream.set_demand`."""
        self._update_wait(demand=demand)

    def _update_wait(self, *, reader_waits: bool | None = None, demand: Demand | None = None) -> None:
        now = trio.current_time()
        self.wait.update(now, reader_waits=reader_waits, demand=demand)
        if self.wait.costs_patience and self._wakes_at > now + STATUS_SECONDS:
            self.writer.news.set()  # the driver must be awake in time to report a long wait

    def can_play(self, in_hand_bytes: int, bytes_per_second: float, now: float) -> bool:
        """See `RangeStream.can_play`."""
        return self._start_rule.can_play(
            in_hand_bytes,
            bytes_per_second,
            now,
            total_bytes=self.total_bytes(),
            is_sequential=self._phase is Phase.SEQUENTIAL,
        )

    def total_bytes(self) -> int | None:
        """Return the accepted end, else the announced size; None while the resource grows."""
        end = self._planner.end
        if end is None:
            return self._size_bytes if self._planner.present_bytes is None else None
        return end[0]

    def statistics(self) -> StreamStatistics:
        """Return a snapshot. From any thread."""
        planned, end, first = self._planner.statistics(), self._end, self.writer.first_byte_at
        live = self.live
        return StreamStatistics(
            bytes=self.pipe.statistics().bytes_read,
            requests=planned.requests + self._page_limit.reads if live is None else live.requests,
            pages=planned.pages,
            retries=planned.retries,
            hedges=planned.hedges,
            in_flight=planned.in_flight,
            in_flight_max=planned.in_flight_max,
            bandwidth_bytes_per_second=planned.bandwidth_bytes_per_second,
            rtt_seconds=planned.rtt_seconds,
            first_byte_seconds=None if first is None else first - self._opened_at,
            ended_by=None if end is None else end[1],
            end_bytes=None if end is None else end[0],
            size_bytes=self._size_bytes if self._planner.total is None else self._planner.total,
            size_was_wrong=planned.size_was_wrong,
            ranges_ignored_from=self._support.ignored_from,
            strategy=self._forms.name,
            strategy_reason=self._forms.reason,
            mime_type=self._handler.mime_type,
            cache_scope=self._handler.cache_scope,
            capacity_bytes=self.pipe.capacity_bytes,
            reconnects=0 if live is None else live.reconnects,
            is_live=self._was_live or (live is not None and live.duration_seconds is None),
            notifications=self._notifications,
            skipped_bytes=self._skipped_bytes,
        )
