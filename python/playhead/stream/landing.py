"""What came of the reads: which answers are stored, what they prove, and what is wrong with them.

An error belongs to its offset: the planner breaks the stream there once all before it has come, and takes
it back if the resource ends before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

from playhead._core import Pipe, Planner, Request
from playhead.errors import (
    ContradictionError,
    LimitError,
    PlayheadError,
    RangePastEndError,
    ServerError,
    TransportError,
)
from playhead.limits import Limits
from playhead.stream.answer import Answer, measure
from playhead.stream.inlet import Inlet
from playhead.stream.page import Page
from playhead.stream.patient import broken
from playhead.stream.statistics import EndedBy, Tally
from playhead.stream.trust import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Nothing is at or past `offset`."""

    offset: int
    proof: EndedBy


@dataclass(frozen=True, slots=True, kw_only=True)
class Surprise:
    """An answer that has to be settled, and how much was asked for."""

    answer: Answer
    want_bytes: int


class Landing:
    """Takes what reads bring, and keeps what is known of the resource and its server.

    `stop_others` cancels every other read. `page_bytes` is how much a new page asks for.
    """

    def __init__(
        self,
        *,
        pipe: Pipe,
        inlet: Inlet,
        planner: Planner,
        tally: Tally,
        limits: Limits,
        size_bytes: int | None,
        page_bytes: int,
        short_page_ends: bool,
        server_name: str,
        stop_others: Callable[[], None],
    ) -> None:
        self._pipe = pipe
        self._inlet = inlet
        self._planner = planner
        self._tally = tally
        self._limits = limits
        self._short_page_ends = short_page_ends
        self._server_name = server_name
        self._stop_others = stop_others
        self._stagnant = 0
        self._has_adopted = False
        self.size_bytes = size_bytes
        self.page_bytes = page_bytes
        self.trust = Trust()
        self.surprise: Surprise | None = None
        self.end: End | None = None
        self.errors: dict[int, PlayheadError] = {}
        """The final error of the page that begins there."""
        self.last_failure: TransportError | None = None
        self.broken: PlayheadError | None = None

    def done(self, request: Request, outcome: Page | PlayheadError) -> None:
        """A read has come back."""
        if isinstance(outcome, Page):
            self._landed(request, outcome)
        else:
            self._failed(request, outcome)
        self._inlet.news.set()

    def _failed(self, request: Request, error: PlayheadError) -> None:
        now = trio.current_time()
        if isinstance(error, RangePastEndError):
            self._accept(request, Answer(offset=request.start, blobs=(), n_bytes=0, proof="416"))
        elif isinstance(error, TransportError):
            self.last_failure = error
            self._planner.on_error(request.id, now, retryable=True)
        elif request.is_confirm and isinstance(error, ServerError):
            # The announced size and the refusal to read past it agree.
            self._accept(request, Answer(offset=request.start, blobs=(), n_bytes=0, proof="size"))
        else:
            self._spoil(request, error)

    def _spoil(self, request: Request, error: PlayheadError) -> None:
        """The stream breaks at this page, once all before it has come, unless it ends before it."""
        self.errors[request.start] = error
        if request.is_confirm:
            # To the planner a refusal past the announced size is the end; this is none.
            self.broken = self.broken or error
        else:
            self._planner.on_error(request.id, trio.current_time(), retryable=False)

    def _landed(self, request: Request, page: Page) -> None:
        try:
            answer = measure(
                page,
                offset=request.start,
                data_end=self._tally.data_end,
                size_bytes=self.size_bytes,
                block_bytes=self._limits.block_bytes,
            )
            self._tally.mime_type = self._tally.mime_type or page.mime_type
            self._tally.received_bytes += answer.n_bytes
            if page.total_bytes is not None and self.size_bytes is None:
                self.size_bytes = page.total_bytes
                self._planner.set_total(page.total_bytes)
            self._accept(request, answer)
        except ContradictionError as error:
            self.broken = self.broken or error
        except PlayheadError as error:
            self._spoil(request, error)

    def _accept(self, request: Request, answer: Answer) -> None:
        now = trio.current_time()
        want_bytes = request.end - request.start
        if not answer.n_bytes:
            if answer.proof is not None:
                self.prove(answer.offset, answer.proof)
            self._planner.on_page(request.id, now, 0)
            return
        if answer.n_bytes > want_bytes:
            self._tally.oversized_pages += 1
            if not self.trust.established or not self.fits(answer.n_bytes):
                self.surprised(answer, want_bytes)
                return
            if not self._has_adopted:
                self.adopt(answer.n_bytes)
        admission = self.trust.admit(answer, size_bytes=self.size_bytes)
        for admitted in admission.store:
            # More than was asked for is kept where it fits: the page it belongs to is held against it.
            self._inlet.store(admitted, stop=min(admitted.end, self._pipe.head + self._pipe.capacity_bytes))
        if admission.surprise is not None:
            # Nothing admitted is longer than asked for: here it is the likeness that surprises.
            self.surprised(admission.surprise, max(want_bytes, admission.surprise.n_bytes))
            return
        if answer.n_bytes < want_bytes:
            self._tally.short_pages += 1
            if answer.proof is not None:
                self.prove(answer.end, answer.proof)
            elif self._short_page_ends:
                self.prove(answer.end, "reference")
        if self._planner.on_page(request.id, now, min(answer.n_bytes, want_bytes)):
            self._tally.pages += 1
            self._stagnant = 0
        else:
            self._stagnate(request)

    def surprised(self, answer: Answer, want_bytes: int) -> None:
        """Stop all other reads: whatever they bring is in doubt."""
        self.surprise = Surprise(answer=answer, want_bytes=want_bytes)
        self._stop_others()

    def _stagnate(self, request: Request) -> None:
        self._stagnant += 1
        allowed = self._limits.stagnant_pages
        if self._stagnant > allowed:
            self.broken = self.broken or LimitError(
                f"{self._server_name}: expected new bytes, got {self._stagnant} pages in a row without one "
                f"(the last at byte {request.start}); report it to the server's author",
                limit="stagnant_pages",
                allowed=allowed,
                got=self._stagnant,
            )

    def prove(self, offset: int, proof: EndedBy) -> None:
        if self.end is None or offset < self.end.offset:
            self.end = End(offset=offset, proof=proof)

    def check(self) -> None:
        """Tell the pipe what is settled: the end, or the break."""
        if self.broken is not None:
            raise self.broken
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
            error = self.errors.get(offset)
            if error is not None:
                raise error
            raise broken(offset, tries, self.last_failure) from self.last_failure
        if self._planner.finished and self.surprise is None and not self._pipe.closed:
            self._inlet.close()

    def fits(self, page_bytes: int) -> bool:
        """Whether two pages fit the ring: with fewer there is nothing to plan."""
        return page_bytes <= self._pipe.capacity_bytes // 2

    def adopt(self, page_bytes: int) -> None:
        # Once: a server that always sends a little more than asked for would be followed up and up.
        self._has_adopted = True
        self.page_bytes = page_bytes
        self._planner.set_page_bytes(page_bytes)
