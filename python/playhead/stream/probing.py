"""Probing: small reads that show whether a server takes a form, and the meaning of its template's variables.

Recognition only orders the forms, so forms that nothing announces are tried with one read. The names of a
template's variables usually tell what they mean; where they do not, two reads that overlap do, because the
bytes of the second are known from the first. A form whose answers contradict every reading of it is refused:
nothing is guessed.
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
"""The size of a stream's first page, which the answer becomes."""
PROBE_SECONDS = 5.0
"""A form that nothing announces is abandoned after this time without an answer."""
NUMBERED_PAGE_BYTES = 64 * KIB
"""Requested of a server whose pages have numbers and a size of our choice: 1.6 s at 320 kbit/s."""

Expand = Callable[[int, int], Awaitable[Page]]
"""Reads with the two variables of a template set to these numbers."""


class Prober:
    """Sends the probes of one resource, of the announced size `size_bytes`."""

    def __init__(self, *, size_bytes: int | None, limits: Limits, server_name: str) -> None:
        self._size_bytes = size_bytes or None
        self._limits = limits
        self._server_name = server_name
        most = PROBE_BYTES if self._size_bytes is None else max(1, min(PROBE_BYTES, self._size_bytes // 2))
        self._n_bytes = most - (most == len(DONE_BYTES))  # no answer is to look like the marker

    async def try_form(self, form: RangeForm, *, whole: RangeForm) -> RangeForm | Refusal:
        """Read a little in `form`. An answer longer than its range is the one of `whole`, which is not read
        again, unless the announced size says that it cannot be."""
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

        Raises `RangeNotHonouredError` if it is neither, and what `read` raises.
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
        """Find out how pages are numbered, and how long they are; `has_size` if `read` takes their size.

        Raises `RangeNotHonouredError` for answers that no numbering explains, and what `read` raises.
        """

        async def page(number: int, n_bytes: int) -> bytes:
            _, answer = await self._probe(read, number, n_bytes)
            return leading(answer, answer.n_bytes)

        async def or_nothing(number: int, n_bytes: int) -> bytes:
            try:
                return await page(number, n_bytes)
            except PlayheadError:
                return b""

        size = self._n_bytes if has_size else 0
        base, first = 0, await or_nothing(0, size)
        if not first:
            base, first = 1, await page(1, size)
        if repeats_within(first, PERIOD_BYTES) and (has_size or len(first) != self._size_bytes):
            raise self._unclear(f"page {base} of {len(first)} bytes, which repeat themselves")
        if has_size:
            half = len(first) // 2
            if len(first) > size:
                raise self._unclear(f"a page of {len(first)} bytes for a size of {size}")
            following = await or_nothing(base + 1, half)
            if base == 0 and following == first[:half]:  # page 0 is page 1
                base, following = 1, await or_nothing(2, half)
            if following != first[half : 2 * half]:
                raise self._unclear(f"pages {base} and {base + 1} that do not follow each other")
            step = len(await page(base, NUMBERED_PAGE_BYTES))
            if step > NUMBERED_PAGE_BYTES:
                raise self._unclear(f"a page of {step} bytes for a size of {NUMBERED_PAGE_BYTES}")
        else:
            following = await or_nothing(base + 1, size)
            if base == 0 and following == first:
                base, following = 1, await or_nothing(2, size)
            step = len(first)
            # Pages of a document have any length; pages of a file are equally long, or end at its size.
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
    """Read in a task of its own, which may outlive a cancellation: see `RangeForm.start_soon`."""
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
    """Return `read`, whose first answer is in hand: to `n_bytes` from 0 or more."""
    in_hand = [page]

    async def read_on(start: int, end: int) -> Page:
        return in_hand.pop() if in_hand and start == 0 and end >= n_bytes else await read(start, end)

    return read_on
