"""Sequential reading: one answer after another, held undecoded and decoded into the ring as the reader
advances.

Used for servers that ignore ranges or whose pages do not fit the ring, and for the forms `whole`, `poll` and
`cursor`. While one answer is fed to the ring the next is read, so at most two are held. The reads are the
planner's probes, so patience and retries are the same as for its pages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import InitVar, dataclass, field, replace
from typing import NoReturn

import trio

from playhead._core import Pipe, Planner
from playhead.concurrency import unwrap_exception_group
from playhead.errors import Base64Error, ContradictionError, PlayheadError, ServerError
from playhead.limits import KIB
from playhead.stream.answer import Answer
from playhead.stream.range_support import Accept, Discard, RangeSupport
from playhead.stream.ring_writer import RingWriter

REFUSAL_DELAYS_SECONDS = (1.0, 5.0, 15.0)
"""Pauses before a refused read is repeated, once the form has delivered. The planner has the same."""
ROUND_SECONDS = 0.5
"""Pause between two attempts to corroborate a claimed end."""
TAIL_BYTES = 4 * KIB
"""The size of the read at the announced end that corroborates a claimed one."""
FALSE_CLAIMS = 3
"""False claims of an end at one offset that break the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialPlan:
    """The input of `Sequential`: the answers that have arrived, and the kind of the following ones."""

    answers: tuple[Answer, ...] = ()
    page_bytes: int | None = None
    """The server's page size. None: every answer is the whole resource, whatever the range."""
    is_queue: bool = False
    """True if every answer continues the previous one, whatever the range."""


@dataclass(slots=True, eq=False, kw_only=True)
class Sequential:
    """Feeds the pipe from its tail to the end of the resource, and from the new tail after each `restart`."""

    plan: InitVar[SequentialPlan]
    pipe: Pipe
    writer: RingWriter
    planner: Planner
    support: RangeSupport
    ask: Callable[[int, int], Awaitable[Answer]]
    """Sends one probe, which the planner retries within the stream's patience. Raises the server's
    refusal."""
    on_end: Callable[[], None]
    """Called when the pipe has all bytes up to the end."""
    is_live: bool = False
    """True for a queue that may continue elsewhere after its end."""
    _page_bytes: int | None = field(init=False)
    _is_queue: bool = field(init=False)
    _ready: deque[Answer] = field(init=False)
    """Answers that were read and are not fed yet."""
    _feeding: Answer | None = None
    _damaged_at: int | None = None
    """The byte from which the newest damaged answer was read again."""
    _rereads: bool = False
    """True from a damaged answer until it is read again, after the one on its way."""
    _has_answer: bool = False
    _largest_bytes: int = 0
    _short_end: int | None = None
    """End of the newest page that was shorter than the largest."""
    _false_claims: dict[int, int] = field(default_factory=dict)
    _scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def __post_init__(self, plan: SequentialPlan) -> None:
        self._page_bytes, self._is_queue, self._ready = plan.page_bytes, plan.is_queue, deque(plan.answers)
        self._has_answer = bool(plan.answers)
        for answer in plan.answers:
            self._note_length(answer)
        if plan.page_bytes is None and plan.answers:
            self.planner.set_end(plan.answers[0].end, "whole")

    def can_seek(self, offset: int) -> bool:
        """Return False if a seek to `offset` would read the whole resource again. From any thread."""
        answer = self._feeding
        return self._page_bytes is not None or (answer is not None and answer.offset <= offset <= answer.end)

    def restart(self) -> None:
        """Continue at the pipe's tail, after a seek."""
        self._scope.cancel()

    async def run(self) -> NoReturn:
        """Read and feed until cancelled. Raises the errors of reading and of `RingWriter.store`."""
        while True:
            with trio.CancelScope() as self._scope:
                await self._feed_all()
                while self._rereads:
                    await self._feed_all()
                if not self._scope.cancel_called:  # a seek may have moved the tail away from the end
                    self.on_end()
                await trio.sleep_forever()

    async def _feed_all(self) -> None:
        failure: PlayheadError | None = None
        self._rereads = False
        with unwrap_exception_group():
            async with trio.open_nursery() as nursery:
                send, receive = trio.open_memory_channel[Answer | PlayheadError](0)
                nursery.start_soon(self._fetch, send)
                async for item in receive:
                    if isinstance(item, PlayheadError):
                        failure = item
                        break
                    self._feeding = item  # after a seek, `_fetch` uses it again
                    self.planner.on_fed(trio.current_time(), max(0, item.end - self.pipe.tail))
                    del item
                    try:
                        await self.writer.feed(self._feeding)
                    except Base64Error:  # read once more, then an error
                        if self._is_queue or self._damaged_at == self.pipe.tail:
                            raise
                        self._damaged_at, self._rereads = self.pipe.tail, True
                    self._feeding = None  # the last reference
                nursery.cancel_scope.cancel()
        if failure is not None:
            # Raised here: in the nursery it would be in a group with the cancellation of a stream that breaks
            # for another reason at the same time.
            raise failure

    async def _fetch(self, send: trio.MemorySendChannel[Answer | PlayheadError]) -> None:
        async with send:
            at = self.pipe.tail
            if self._feeding is not None:
                self._ready.appendleft(self._feeding)
                self._feeding = None
            try:
                while ((end := self.planner.end) is None or at < end[0]) and not self._rereads:
                    answer = await self._next(at)
                    if answer is None:
                        return
                    at = answer.end
                    await send.send(answer)
                    del answer
            except PlayheadError as error:
                await send.send(error)

    async def _next(self, at: int) -> Answer | None:
        """Return the answer that holds `at`; None if `at` is the end."""
        while True:
            while self._ready:
                answer = self._ready.popleft()
                if answer.offset <= at < answer.end:
                    return answer
            if self._is_queue:
                answer = await self._read(at, at + 1)
                if not answer.n_bytes and self.is_live:
                    return None  # the planner would never look behind an end, as a seek may
                if not answer.n_bytes:
                    self.planner.set_end(at, "done")
            elif self._page_bytes is None:
                end = self.planner.end
                answer = await self._read(0, 1 if end is None else max(1, end[0]))
                self.planner.set_end(answer.end, "whole")
            else:
                answer = await self._page(at, self._page_bytes)
                if answer.offset == at:
                    self._note_length(answer)
                if answer.claims_end is not None:
                    await self._corroborate(answer, self._page_bytes)
            if answer.offset <= at < answer.end:
                return answer
            if self.planner.end is not None:
                return None

    async def _read(self, start: int, end: int) -> Answer:
        """Return the answer to `[start, end)`, of any length. Raises the server's refusal."""
        for delay in REFUSAL_DELAYS_SECONDS:
            try:
                answer = await self.ask(start, end)
            except ServerError:
                if not self._has_answer:
                    raise
                await trio.sleep(delay)
            else:
                self._has_answer = True
                return answer
        return await self.ask(start, end)

    async def _page(self, at: int, page_bytes: int) -> Answer:
        while True:
            answer = await self._read(at, at + page_bytes)
            if not answer.n_bytes:
                return answer
            verdict = self.support.judge(answer, end=at + page_bytes, total_bytes=self.planner.total)
            if isinstance(verdict, Discard):
                continue
            if isinstance(verdict, Accept):
                self.planner.seen_to(verdict.stop)
                return replace(answer, offset=verdict.answer.offset)
            # Pages this large are compared with a second read of the same page, not examined by the `Ask`.
            again = await self._read(at, at + page_bytes)
            if again.blobs == answer.blobs:
                return answer

    def _note_length(self, answer: Answer) -> None:
        if 0 < answer.n_bytes < self._largest_bytes:
            self._short_end = answer.end
        self._largest_bytes = max(self._largest_bytes, answer.n_bytes)

    async def _corroborate(self, answer: Answer, page_bytes: int) -> None:
        """Read again around the end that `answer` claims, and accept it if nothing contradicts it.

        Returns without accepting it if bytes follow the first time. Raises `ContradictionError` if the server
        claims the same false end again, or has bytes near the announced end.
        """
        at, by = answer.end, answer.claims_end or "empty"
        if self.planner.served_to > at:
            self._false_claims[at] = self._false_claims.get(at, 0) + 1
            if self._false_claims[at] >= FALSE_CLAIMS:
                raise self._contradiction(at, self.planner.served_to - at, at)
            return
        total = self.planner.total
        follows_short = total is None and by != "done" and at == self._short_end
        rounds = 0 if at == total or follows_short else 2 if total is not None and total > at else 1
        for number in range(rounds):
            if number:
                await trio.sleep(ROUND_SECONDS)
            ranges = [(at, at + page_bytes)]
            if total is not None and total > at:
                ranges.append((max(at, total - TAIL_BYTES), total))
            for start, end in ranges:
                later = await self._read(start, end)
                if later.n_bytes and start == at:
                    return  # not the end: `_next` reads on
                if later.n_bytes:
                    raise self._contradiction(at, later.n_bytes, start)
        self.planner.set_end(at, by)

    def _contradiction(self, at: int, n_bytes: int, start: int) -> ContradictionError:
        return ContradictionError(
            f"expected the resource to end at byte {at}, as the server claimed, got {n_bytes} bytes at "
            f"{start}: the server contradicts itself; try again, or report it to its author",
            offset=at,
        )
