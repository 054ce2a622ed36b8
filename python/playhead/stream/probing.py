"""Probing: small reads that show whether a server takes a form, and the meaning of its template's variables.

A form that nothing announces is tried with one read. The names of a template's variables usually tell what
they mean. If not, two overlapping reads do, because the first contains the bytes that each meaning predicts
for the second. A form whose answers fit no meaning is refused: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import trio

from playhead.errors import DeadlineError, PlayheadError, RangeNotHonouredError, RangePastEndError
from playhead.limits import KIB, Limits
from playhead.stream.answer import DONE_BYTES, Answer, Page, ReadRange, leading, measure
from playhead.stream.in_flight import READ_SCOPE
from playhead.stream.negotiation import RangeForm, Refusal
from playhead.stream.numbered_pages import NumberedPages
from playhead.stream.range_support import PERIOD_BYTES, repeats_within

PROBE_BYTES = 8 * KIB
"""The size of a stream's first page, because the answer is used as that page."""
PROBE_SECONDS = 5.0
"""Limits the wait for the answer to a probe."""
NUMBERED_PAGE_BYTES = 64 * KIB
"""The page size to request if a server numbers its pages and lets the client choose it: 1.6 s at 320
kbit/s."""

Expand = Callable[[int, int], Awaitable[Page]]
"""Reads with the two variables of a template set to these numbers."""


class Prober:
    """Sends the probes of one resource. `size_bytes` is its announced size, if any."""

    def __init__(self, *, size_bytes: int | None, limits: Limits, server_name: str) -> None:
        self._size_bytes = size_bytes or None
        self._limits = limits
        self._server_name = server_name
        n_bytes = PROBE_BYTES if self._size_bytes is None else max(1, min(PROBE_BYTES, self._size_bytes // 2))
        # An answer as long as the marker of the end could be taken for it.
        self._n_bytes = n_bytes - 1 if n_bytes == len(DONE_BYTES) else n_bytes

    async def try_form(self, form: RangeForm, *, whole: RangeForm) -> RangeForm | Refusal:
        """Send a small read in `form`, and return the form that uses its answer as the first page.

        That is `whole` if the server ignored the range: its answer is longer than the range, and either has
        the announced size or, without one, is longer by two bytes or more.
        """
        try:
            read = form.read if form.start_soon is None else partial(_read_apart, form.read, form.start_soon)
            page, answer = await self._probe(read, 0, self._n_bytes)
        except PlayheadError as error:
            return Refusal(error=error.with_traceback(None))
        if not answer.n_bytes:
            return Refusal(claims_end=answer.claims_end)
        is_whole = answer.n_bytes > self._n_bytes and answer.n_bytes == self._size_bytes
        is_whole |= answer.n_bytes > self._n_bytes + 1 and self._size_bytes is None
        if is_whole:
            reason = f"{whole.reason}; a small read with {form.name} was answered with the whole"
            return replace(whole, read=_answered(page, 1, whole.read), reason=reason)
        return replace(form, read=_answered(page, self._n_bytes, form.read))

    async def learn_bound(self, read: Expand) -> Literal["end", "length"]:
        """Find out whether the second of two variables is the end of the range or its length.

        Raises `RangeNotHonouredError` if it is neither, and the errors of `read`.
        """
        _, first = await self._probe(read, 0, self._n_bytes)
        data = leading(first, first.n_bytes)
        low, high = len(data) // 4, len(data) // 2
        if not 0 < low < high or len(data) > self._n_bytes + 1 or repeats_within(data[low:], PERIOD_BYTES):
            raise self._unclear(f"{len(data)} bytes for (0, {self._n_bytes}), which tell nothing")
        _, second = await self._probe(read, low, high)
        part = leading(second, second.n_bytes)
        if part == data[low : low + high]:
            return "length"
        if part in (data[low:high], data[low : high + 1]):  # the end may be inclusive
            return "end"
        raise self._unclear(f"{len(part)} bytes for ({low}, {high}), which are neither an end nor a length")

    async def learn_pages(self, read: Expand, *, has_size: bool) -> NumberedPages:
        """Find out the number of the first page, and the length of pages. `has_size` is True if the second
        variable of `read` is the page size.

        Raises `RangeNotHonouredError` for answers that no numbering explains, and the errors of `read`.
        """

        async def page(number: int, n_bytes: int) -> bytes:
            _, answer = await self._probe(read, number, n_bytes)
            return leading(answer, answer.n_bytes)

        async def page_if_any(number: int, n_bytes: int) -> bytes:
            try:
                return await page(number, n_bytes)
            except PlayheadError:
                return b""

        size = self._n_bytes if has_size else 0
        base, first = 0, await page_if_any(0, size)
        if not first:
            base, first = 1, await page(1, size)
        if repeats_within(first, PERIOD_BYTES) and (has_size or len(first) != self._size_bytes):
            raise self._unclear(f"page {base} of {len(first)} bytes, which repeat themselves")
        if has_size:
            half = len(first) // 2
            if len(first) > size:
                raise self._unclear(f"a page of {len(first)} bytes for a size of {size}")
            following = await page_if_any(base + 1, half)
            if base == 0 and following == first[:half]:  # the server takes page 0 for page 1
                base, following = 1, await page_if_any(2, half)
            if following != first[half : 2 * half]:
                raise self._unclear(f"pages {base} and {base + 1} that do not follow each other")
            step = len(await page(base, NUMBERED_PAGE_BYTES))
            if step > NUMBERED_PAGE_BYTES:
                raise self._unclear(f"a page of {step} bytes for a size of {NUMBERED_PAGE_BYTES}")
        else:
            following = await page_if_any(base + 1, size)
            if base == 0 and following == first:
                base, following = 1, await page_if_any(2, size)
            step = len(first)
            # Pages of bytes are equally long, or the second one ends at the size. Otherwise these are pages
            # of a document.
            is_file = following != first and len(following) == step
            if not is_file and step + len(following) != self._size_bytes:
                raise self._unclear(f"pages of {step} and {len(following)} bytes, and the size is not theirs")
        return NumberedPages(
            read=read, base=base, step=step, limits=self._limits, server_name=self._server_name
        )

    async def _probe(self, read: ReadRange, first: int, second: int) -> tuple[Page, Answer]:
        with trio.move_on_after(PROBE_SECONDS):
            try:
                page = await read(first, second)
            except RangePastEndError:
                return Page(blobs=()), Answer(offset=0, blobs=(), n_bytes=0, claims_end="416")
            block_bytes = self._limits.block_bytes
            return page, measure(page, offset=0, size_bytes=self._size_bytes, block_bytes=block_bytes)
        raise DeadlineError(f"{self._server_name}: no answer within {PROBE_SECONDS:g} s")

    def _unclear(self, actual: str) -> RangeNotHonouredError:
        return RangeNotHonouredError(f"{self._server_name}: got {actual}", offset=0)


async def _read_apart(read: ReadRange, start_soon: Callable[..., None], start: int, end: int) -> Page:
    """Read in a separate task started by `start_soon`, and wait for its outcome; see
    `RangeForm.start_soon`."""
    send, receive = trio.open_memory_channel[Page | PlayheadError](1)
    scope = trio.CancelScope()

    async def run() -> None:
        READ_SCOPE.set(scope)
        with scope:
            try:
                send.send_nowait(await read(start, end))
            except PlayheadError as error:
                send.send_nowait(error)

    start_soon(run)
    try:
        outcome = await receive.receive()
    finally:
        scope.cancel()
    if isinstance(outcome, PlayheadError):
        raise outcome
    return outcome


def _answered(page: Page, n_bytes: int, read: ReadRange) -> ReadRange:
    """Return a `read` that uses `page` once: as the answer to a read from 0 to `n_bytes` or more."""
    unused = [page]

    async def read_or_reuse(start: int, end: int) -> Page:
        return unused.pop() if unused and start == 0 and end >= n_bytes else await read(start, end)

    return read_or_reuse
