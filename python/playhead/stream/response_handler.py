"""The response handler: puts the bytes of an answered read into the ring, and reports outcomes to the
planner.

    outcome ──▶ measure ──▶ range_support.judge ──▶ RingWriter.store ──▶ planner.on_answer
        └─ an error ──▶ read_failure ──────────────────────────────────▶ planner.on_error

An answer cannot be judged while the answer at offset 0 is missing, or while a read that decides about another
answer is in flight (`OpenQuestion`). Until then it is held, and the planner does not request it again. No
more answers are held than reads are in flight.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never

import trio

from playhead._core import Pipe, Planner, Request
from playhead.cache import EARLIEST_META, LIVE_META
from playhead.content.block_types import is_size
from playhead.errors import (
    Base64Error,
    ContradictionError,
    LimitError,
    PlayheadError,
    RangeNotHonouredError,
    RangePastEndError,
    ResourceChangedError,
    ServerError,
    StreamBrokenError,
    TransportError,
)
from playhead.limits import Limits
from playhead.retry import read_failure
from playhead.stream.answer import Answer, Page, measure
from playhead.stream.negotiation import Refusal, is_refusal
from playhead.stream.range_support import Accept, Ask, Discard, Ignored, OwnPage, RangeSupport, Verdict
from playhead.stream.ring_writer import RingWriter
from playhead.stream.sequential import SequentialPlan

ERRORS_KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """A read in flight whose answer decides about another one."""

    ask: Ask
    request: Request
    """The request of the answer in question."""
    answer: Answer


@dataclass(slots=True, eq=False, kw_only=True)
class ResponseHandler:
    """Handles the outcomes of the reads of one stream, and collects what the driver acts on."""

    pipe: Pipe
    writer: RingWriter
    planner: Planner
    support: RangeSupport
    limits: Limits
    size_bytes: int | None
    server_name: str
    patience_seconds: float
    on_probe: Callable[[Answer | PlayheadError], None] | None = None
    """Receives the answers to the probes of sequential reading."""
    has_bytes: bool = False
    """True once a byte of the resource has arrived and was judged."""
    has_bytes_past_0: bool = False
    """True once an answer with bytes had to be held, past an offset 0 that may have been refused."""
    refusal: Refusal | None = None
    """Set if the form of the reads was refused before the first byte."""
    plan: SequentialPlan | None = None
    """Set once it is known that the server cannot serve the planner's pages."""
    errors: OrderedDict[int, PlayheadError] = field(default_factory=OrderedDict)
    """The newest errors by the offset of their read."""
    last_error: PlayheadError | None = None
    """The newest error."""
    broken: PlayheadError | None = None
    """The error that breaks the stream at once, if any."""
    mime_type: str | None = None
    cache_scope: Literal["public", "private"] | None = None
    """The declaration of the newest answer with bytes."""
    has_answer: bool = False
    """True once the current form has been answered without a refusal."""
    earliest: int | None = None
    """The first offset that the server still has, if it has dropped bytes that were requested."""
    _question: OpenQuestion | None = None
    _waiting: list[tuple[Request, Answer]] = field(default_factory=list)
    _start: int = 0

    # --- outcomes ----------------------------------------------------------------------------------------

    def done(self, request: Request, outcome: Page | PlayheadError, *, broke_off: bool = False) -> None:
        """Handle the outcome of a read. `broke_off` is True if it failed after a part of its answer
        arrived."""
        try:
            answer = self._measured(request, outcome)
        except RangeNotHonouredError as error:
            self.broken = self.broken or error
        except PlayheadError as error:
            self._failed(request, error, broke_off=broke_off)
        else:
            if request.is_probe:
                self.has_bytes = self.has_bytes or answer.n_bytes > 0
                self.planner.on_answer(request.id, trio.current_time(), answer.n_bytes, answer.claims_end)
                self._probed(answer)
            else:
                self._accept(request, answer)

    def forget(self) -> None:
        """Drop the held answers and the open question, after a seek or a change of form."""
        self._waiting.clear()
        self._question = None
        self.refusal = self.earliest = None
        self.has_answer = False
        self.planner.hold_pages(False)
        self.errors.clear()

    def start_at(self, offset: int) -> None:
        """Continue at `offset`. Past 0, answers are judged without the answer at offset 0."""
        self._start = offset

    def _measured(self, request: Request, outcome: Page | PlayheadError) -> Answer:
        if isinstance(outcome, RangePastEndError):
            return Answer(offset=request.start, blobs=(), n_bytes=0, claims_end="416")
        if isinstance(outcome, PlayheadError):
            raise outcome
        if outcome.text_items and "timeout" in outcome.text.lower():
            raise TransportError(
                f"read at byte {request.start}: expected bytes, got the text {outcome.text!r}"
            )
        answer = measure(
            outcome,
            offset=request.start,
            size_bytes=self.size_bytes,
            block_bytes=self.limits.block_bytes,
            ranged=not (self.plan is not None and self.plan.page_bytes is None),
        )
        size_bytes, served_to = outcome.size_bytes, self.planner.served_to
        if outcome.is_live or self.planner.present_bytes is not None:
            # The answer may be older than others, but not than the bytes before its first one.
            served_to = min(served_to, request.start)
        if size_bytes is not None and size_bytes < served_to:
            raise ResourceChangedError(
                f"{self.server_name}: the resource changed while it was read: the page at byte"
                f" {request.start} declares a size of {size_bytes} bytes, and {served_to} were there; read it"
                " again from the start",
                offset=request.start,
            )
        self.mime_type = self.mime_type or outcome.mime_type
        self.cache_scope = outcome.cache_scope if outcome.blobs else self.cache_scope
        self._note_size(outcome, answer)
        return answer

    def _note_size(self, page: Page, answer: Answer) -> None:
        """Pass the size that a page declares on to the planner: the present one while the resource grows."""
        size_bytes, now = page.size_bytes or page.total_bytes, trio.current_time()
        is_growing = self.planner.present_bytes is not None
        if page.is_live or (is_growing and page.is_live is None):
            announces_end = page.is_live is not None
            served_to = answer.end if answer.n_bytes else 0
            self.planner.set_growing(now, max(served_to, size_bytes or 0), announces_end=announces_end)
        elif is_growing:
            self.planner.set_grown(now, size_bytes)
        elif page.total_bytes is not None:
            self.planner.set_total(page.total_bytes, exact=True)

    def _failed(self, request: Request, error: PlayheadError, *, broke_off: bool) -> None:
        self.last_error = error
        failure = read_failure(error)
        data = error.data if isinstance(error, ServerError) and isinstance(error.data, dict) else {}
        earliest = data.get(EARLIEST_META)
        if is_size(earliest) and earliest > request.start:
            self.earliest = max(self.earliest or 0, earliest)
            if self.planner.present_bytes is not None:
                self.planner.set_growing(trio.current_time(), earliest)
            self.planner.hold_pages(True)  # until the reader has read all bytes before
            self.planner.on_error(request.id, trio.current_time(), "lost")
            return
        if data.get(LIVE_META) is False and request.start <= self.pipe.tail:
            self.broken = self.broken or error  # the source has failed, and every byte before is here
        if request.start == self._start and not self.has_bytes and not request.is_probe and is_refusal(error):
            self.refusal = self.refusal or Refusal(error=error)
            return
        if request.is_probe and not self.has_bytes and self.on_probe is not None and is_refusal(error):
            failure = replace(failure, kind="refused")  # a sequential form: negotiated, not retried
        self.errors[request.start] = error
        self.errors.move_to_end(request.start)
        if len(self.errors) > ERRORS_KEPT:
            self.errors.popitem(last=False)
        self.planner.on_error(
            request.id,
            trio.current_time(),
            failure.kind,
            code=failure.code,
            retry_after_seconds=failure.retry_after_seconds,
            broke_off=broke_off,
        )
        if request.is_probe and failure.kind != "lost":
            self._probed(error)

    def _accept(self, request: Request, answer: Answer) -> None:
        if self.plan is not None:
            return  # the planner's pages are abandoned
        is_elsewhere = answer.declared_offset not in (None, answer.offset)
        if not answer.n_bytes and not is_elsewhere:
            is_live = self.planner.present_bytes is not None
            self.has_answer = self.has_answer or is_live
            if request.start == self._start == 0 and not self.has_bytes and not is_live:
                self.refusal = self.refusal or Refusal(claims_end=answer.claims_end)
                return
            self.planner.on_answer(request.id, trio.current_time(), 0, answer.claims_end)
            return
        waits_for_first = answer.offset > self._start == 0 < answer.n_bytes and not self.support.knows_first
        if self._question is not None or waits_for_first:
            self.has_bytes_past_0 = True
            self.planner.hold(request.id)
            self._waiting.append((request, answer))
            return
        self.has_bytes = self.has_answer = self.has_bytes or answer.n_bytes > 0
        try:
            verdict = self.support.judge(answer, end=request.end, total_bytes=self._total_bytes)
            if isinstance(verdict, Accept):
                self._keep(request, verdict)
            else:
                self._apply(request, answer, verdict)
        except RangeNotHonouredError as error:
            self.broken = self.broken or error
        if answer.offset == 0:
            self._judge_waiting()

    def break_error(self) -> PlayheadError | None:
        """Return the error that breaks the stream, if any."""
        if self.broken is not None:
            return self.broken
        broken = self.planner.broken
        if broken is None:
            return None
        offset, reason, amount = broken
        server, patience = self.server_name, self.patience_seconds
        last = self.last_error
        because = f" (the last read failed: {last.message})" if last is not None else ""
        error: PlayheadError
        match reason:
            case "refused":
                return self.errors.get(offset) or last
            case "contradiction":
                return ContradictionError(
                    f"{server}: claimed repeatedly that the resource ends at byte {offset}, and "
                    "served bytes past it; the server contradicts itself: report it to its author",
                    offset=offset,
                )
            case "shrunken":
                return ResourceChangedError(
                    f"{server}: expected a growing resource to keep its bytes, got none from {offset} on,"
                    " where it had some; read it again from the start",
                    offset=offset,
                )
            case "stagnant":
                return LimitError(
                    f"{server}: expected new bytes from {offset} on, got {amount:g} answers in a row "
                    "without one; report it to the server's author",
                    limit="stagnant_pages",
                    allowed=amount - 1,
                    got=amount,
                )
            case "retry-after":
                error = StreamBrokenError(
                    f"{server}: expected bytes from {offset} on, got a request to wait {amount:.0f} s, "
                    f"longer than the patience of {patience:g} s{because}; try again later",
                    offset=offset,
                    advice="raise StreamOptions.patience_seconds to wait longer",
                )
            case _:
                error = StreamBrokenError(
                    f"{server}: expected bytes from {offset} on, got none while the reader waited "
                    f"{patience:g} s{because}; check the server and the connection",
                    offset=offset,
                    advice="raise StreamOptions.patience_seconds to wait longer",
                )
        error.__cause__ = last
        return error

    # --- judging -----------------------------------------------------------------------------------------

    @property
    def _total_bytes(self) -> int | None:
        end = self.planner.end
        return self.planner.total if end is None else end[0]  # the end is known after a seek back

    def _judge_waiting(self) -> None:
        waiting, self._waiting = sorted(self._waiting, key=lambda pair: pair[1].offset), []
        for request, answer in waiting:
            self._accept(request, answer)

    def _apply(self, request: Request, answer: Answer, verdict: Verdict) -> None:
        """Act on `verdict`. Raises `RangeNotHonouredError` if a held page contradicts it."""
        match verdict:
            case Accept():
                self._keep(request, verdict)
            case Discard():
                # Wherever these bytes belong, the resource has at least as many.
                self.planner.seen_to(answer.n_bytes)
                self.planner.on_error(request.id, trio.current_time(), "lost")
            case OwnPage():
                if 2 * verdict.page_bytes <= self.pipe.ahead_bytes:
                    self.planner.set_page_bytes(verdict.page_bytes)
                    self._keep(request, Accept(answer=answer, start=answer.offset, stop=request.end))
                    return
                for ahead, waiting in self._waiting:
                    self.support.check_own_page(
                        waiting, want=ahead.end - ahead.start, total_bytes=self._total_bytes
                    )
                self.plan = SequentialPlan(answers=(answer,), page_bytes=verdict.page_bytes)
            case Ignored() if verdict.whole.n_bytes < self.planner.served_to:
                self.planner.on_error(request.id, trio.current_time(), "lost")  # more than this was served
            case Ignored():
                self.plan = SequentialPlan(answers=(verdict.whole,))
            case Ask():
                self.planner.hold(request.id)
                self.planner.hold_pages(True)
                self.planner.probe(verdict.start, verdict.end)
                self._question = OpenQuestion(ask=verdict, request=request, answer=answer)
            case _:
                assert_never(verdict)

    def _probed(self, outcome: Answer | PlayheadError) -> None:
        question, self._question = self._question, None
        if question is None:
            if self.on_probe is not None:
                self.on_probe(outcome)
            return
        self.planner.hold_pages(False)
        try:
            verdict = self.support.resolve(
                question.ask,
                question.answer,
                outcome if isinstance(outcome, Answer) else None,
                end=question.request.end,
            )
            if isinstance(verdict, OwnPage) and isinstance(outcome, Answer):
                self.planner.seen_to(min(outcome.end, question.ask.end))
            self._apply(question.request, question.answer, verdict)
        except RangeNotHonouredError as error:
            self.broken = self.broken or error
            return
        if self.plan is None:
            self._judge_waiting()

    def _keep(self, request: Request, keep: Accept) -> None:
        stop = min(keep.stop, request.end)
        answer, n_bytes = keep.answer, stop - keep.start
        if answer.offset == request.start and answer.n_bytes == n_bytes + 1:
            n_bytes += 1  # an inclusive end: the byte shows that the resource goes on, and is read again
        claims_end = answer.claims_end if stop == answer.end else None
        now = trio.current_time()
        try:
            # The planner may probe for the end past the ring's window. Such an answer is not stored. After a
            # seek back the window stays where it was, for the pages on their way.
            if stop <= self.pipe.kept_from + self.pipe.capacity_bytes:
                self.writer.store(answer, start=keep.start, stop=stop)
        except ContradictionError as error:
            self.broken = self.broken or error
        except (Base64Error, LimitError) as error:
            self._failed(request, error, broke_off=False)
        else:
            self.planner.on_answer(request.id, now, n_bytes, claims_end)
