"""Ranged reads: pages are the bytes that a whole read gives, and they end where it ends.

MCP has no ranged read of its own, so what is asked here is what docs/streaming.md says. Only what a server
offers is held against it: a template with `start` and `end`, a link whose description is a URL, a `_meta` key
called `range`. A page shorter than asked loses no bytes for who goes on where it ends; that others stop
there is a check of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import trio

from playhead.check.probes import range_kinds as kinds
from playhead.check.probes.asking import fault_of
from playhead.check.probes.audio import judge_sound, sounds_like
from playhead.check.probes.contents import probe_read
from playhead.check.probes.pages import MOST_BYTES, Page, Pages, offered_strategy, place_of
from playhead.check.probes.streams import IN_FLIGHT, Reference, judge_stream
from playhead.check.results import TestDraft, TestResult
from playhead.check.target import Target
from playhead.errors import PlayheadError
from playhead.limits import MIB
from playhead.stream.options import DEFAULT_OPTIONS
from playhead.stream.ranges import is_url

PAGE_BYTES: Final = 16_381
"""Asked for at once: a prime, so that no page begins where a group of base64, or a block of a file, does."""
DEFAULT_PAGE_BYTES: Final = DEFAULT_OPTIONS.page_bytes
WRONG_ALREADY: Final = "its pages are wrong one by one already"
SLOW_SECONDS: Final = 0.1
"""A read that takes less says nothing about whether others had to wait for it."""
AT_ONCE: Final = 4
FOLLOW_UPS: Final = 32


async def probe_link(
    target: Target,
    link: Mapping[str, Any],
    found: Callable[[TestResult], None],
    *,
    tool: str | None = None,
) -> None:
    """Read what `link` (a `resource_link`, as it came) leads to: in ranges where it offers them, else
    whole."""
    uri = link.get("uri")
    if not isinstance(uri, str):
        return  # judged where the result was
    subject = f"tool {tool}" if tool is not None else f"resource {uri}"
    capabilities = target.session.capabilities
    nothing_to_read = capabilities.resources is None and bool(capabilities.model_fields_set)
    if uri.startswith("data:") or (nothing_to_read and not is_url(link.get("description"))):
        return
    if await probe_ranges(target, link, found, subject=subject, tool=tool):
        return
    if is_url(uri):
        draft = TestDraft(subject=subject, title=f"its link {uri}", tool=tool)
        draft.skipped(kinds.ANSWERED, "the link leads to the web, not to this server")
        found(draft.done())
        return
    await probe_read(target, link, found, listed=False, subject=subject, tool=tool)


async def probe_ranges(
    target: Target,
    item: Mapping[str, Any],
    found: Callable[[TestResult], None],
    *,
    subject: str,
    tool: str | None = None,
) -> bool:
    """Judge the ranged reads of a link or listed resource; False where none are offered for it."""
    try:
        templates = [template.uri_template for template in await target.session.list_resource_templates()]
    except PlayheadError:
        templates = []
    strategy = offered_strategy(item, templates)
    if strategy.name == "whole":
        return False
    reads = _Reads(
        target=target,
        pages=Pages(target, strategy, uri=item["uri"]),
        item=item,
        found=found,
        subject=subject,
        tool=tool,
    )
    await reads.probe()
    return True


@dataclass(slots=True, kw_only=True)
class _Reads:
    """The probes of one resource."""

    target: Target
    pages: Pages
    item: Mapping[str, Any]
    found: Callable[[TestResult], None]
    subject: str
    tool: str | None
    broken: bool = False
    """Whether a page was not what it should be: then a stream of them can't be either."""

    async def probe(self) -> None:
        announced = self.item.get("size")
        size = announced if isinstance(announced, int) and not isinstance(announced, bool) else None
        plain = await self.pages.plain() if size is None or size <= MOST_BYTES else None
        known = len(plain) if plain else size
        page_bytes = PAGE_BYTES if known is None else max(1, min(PAGE_BYTES, known // 5))
        if not await self._first(page_bytes, plain):
            return
        reference = await self._reference(plain)
        page_bytes = max(1, min(PAGE_BYTES, len(reference.data) // 5))
        if not await self._sampled(reference, page_bytes):
            return
        await self._end(reference, size, page_bytes)
        await self._empty_range()
        await self._at_once(len(reference.data))
        streamed = await self._stream(reference, size)
        await self._cap(reference)
        if sounds_like(self.item, self.item["uri"]) and streamed:
            await self._sound(streamed, whole=reference.complete and len(streamed) == len(reference.data))

    def _tell(self, draft: TestDraft) -> None:
        test = draft.done()
        self.broken = self.broken or test.status == "failed"
        self.found(test)

    def _draft(self, title: str) -> TestDraft:
        return TestDraft(
            subject=self.subject,
            title=f"{title} ({self.pages.strategy})",
            tool=self.tool,
            method="resources/read",
        )

    async def _first(self, page_bytes: int, plain: bytes | None) -> bool:
        """Whether the resource has ranges, and bytes in them."""
        draft = self._draft(f"the first {page_bytes} bytes")
        page = await self.pages.page(0, page_bytes, draft)
        go_on = self._answered(draft, page)
        if go_on and page.data is None:
            draft.undecided = f"no bytes came: {page.why}"
            go_on = False
        elif go_on and page.data is not None and len(page.data) > page_bytes:
            await self._too_long(draft, page, plain)
            go_on = False
        elif go_on:
            draft.passed(kinds.LENGTH)
        self._tell(draft)
        return go_on and bool(page.data)

    async def _too_long(self, draft: TestDraft, page: Page, plain: bytes | None) -> None:
        """Judge a page with more bytes than asked for: the whole, or a page that is longer."""
        assert page.data is not None
        later = await self.pages.page(page.end, page.end + page.end - page.start)
        if page.data not in (plain, later.data):
            draft.failed(
                kinds.LENGTH, f"expected at most {page.end - page.start} bytes, came {len(page.data)}"
            )
        elif self.pages.strategy == "uri-template":
            draft.failed(
                kinds.HONOURED,
                f"expected bytes [{page.start}, {page.end}) of the resource, since the server lists a"
                f" template with start and end; came all of its {len(page.data)} bytes",
            )
        else:
            draft.skipped(kinds.HONOURED, "no ranges: each read gives the whole, as MCP has it")

    async def _reference(self, plain: bytes | None) -> Reference:
        data, complete = (plain, True) if plain is not None else await self.pages.in_series()
        if plain is not None and (more := (await self.pages.page(len(plain), len(plain) + 1)).data):
            # A plain read gives a first part only, or the pages don't know where to end.
            complete = bool(more) and self.item.get("size") == len(plain)
        return Reference(data=data[:MOST_BYTES], complete=complete and len(data) <= MOST_BYTES)

    async def _sampled(self, reference: Reference, page_bytes: int) -> bool:
        """Single pages, and the way to the end; False where reads are not answered any more."""
        size = len(reference.data)
        last = max(0, size - page_bytes)
        starts = sorted({0, page_bytes, size // 2, last})
        failed: set[str] = set()
        for start in starts:
            draft = self._draft(f"bytes [{start}, {start + page_bytes})")
            page = await self.pages.page(start, start + page_bytes, draft)
            if not self._answered(draft, page):
                self._tell(draft)
                return False
            await self._judge_page(draft, page, reference, whole_wanted=reference.complete)
            self._tell(draft)
            failed |= {check.kind.name for check in draft.checks if check.verdict == "failed"}
        if reference.complete and not failed and size:
            await self._follow_tail(reference, last, page_bytes)
        return True

    async def _judge_page(
        self, draft: TestDraft, page: Page, reference: Reference, *, whole_wanted: bool
    ) -> None:
        whole = reference.data
        expected = whole[page.start : page.end]
        asked = f"bytes [{page.start}, {page.end})"
        data = page.data
        if data is not None and expected.startswith(data) and (data or not expected):
            draft.passed(kinds.LENGTH)
            draft.passed(kinds.SAME)
            return
        if data is not None and not reference.complete and data.startswith(expected):
            draft.passed(kinds.SAME)  # past what is known
            return
        again = await self.pages.page(page.start, page.end)
        if again.data != data or (again.data is None and data is None and again.why != page.why):
            draft.undecided = "a second read of the range gave something else: the resource changes, or fails"
            return
        if data is None:
            draft.failed(kinds.SAME, f"expected {asked}, which a whole read has; came {page.why}")
        elif not data:
            kind = kinds.TAIL if whole_wanted else kinds.SAME
            draft.failed(kind, f"expected {asked} of {len(whole)}, came the end")
        elif len(data) > page.end - page.start:
            kind = kinds.HONOURED if data == whole else kinds.LENGTH
            draft.failed(kind, f"expected at most {page.end - page.start} bytes, came {len(data)}")
        elif (elsewhere := place_of(data, whole)) is not None and elsewhere != page.start:
            draft.failed(kinds.REPEATED, f"expected {asked}, came those from {elsewhere} on")
        else:
            at = next(
                (index for index, (a, b) in enumerate(zip(expected, data, strict=False)) if a != b),
                len(expected),
            )
            draft.failed(
                kinds.SAME, f"expected {asked} as a whole read has them; byte {page.start + at} differs"
            )

    async def _follow_tail(self, reference: Reference, start: int, page_bytes: int) -> None:
        """From the last page on by what came, as a stream does: short pages are no end."""
        draft = self._draft(f"from byte {start} to the end")
        size = len(reference.data)
        at = start
        for _ in range(FOLLOW_UPS):
            page = await self.pages.page(at, at + page_bytes, draft)
            if page.data is None or page.past_end or at >= size:
                break
            at += len(page.data)
        if at > start + page_bytes * FOLLOW_UPS or at < size:
            draft.failed(kinds.TAIL, f"expected bytes up to {size}, as in a whole read; pages end at {at}")
        else:
            draft.passed(kinds.TAIL)
        self._tell(draft)

    async def _stream(self, reference: Reference, size: int | None) -> bytes:
        """All of it as a stream, up to a bound; what came."""
        draft = self._draft(f"as a stream, {IN_FLIGHT} reads in flight")
        draft.method = None
        came = b""
        if self.broken:
            draft.skipped(kinds.STREAM, WRONG_ALREADY)
        else:
            came = await judge_stream(draft, self.target, self.item, reference, size=size)
        self._tell(draft)
        return came

    async def _cap(self, reference: Reference) -> None:
        """Judged last: streams cope with a cap, others take a short page for the end and lose the rest."""
        wanted = min(DEFAULT_PAGE_BYTES, len(reference.data))
        draft = self._draft(f"bytes [0, {wanted}) in one page")
        if self.broken:
            draft.skipped(kinds.CAP, WRONG_ALREADY)
            self._tell(draft)
            return
        page = await self.pages.page(0, wanted, draft)
        if self._answered(draft, page) and page.data:
            draft.require(
                kinds.CAP,
                len(page.data) >= wanted,
                f"expected the {wanted} bytes that were asked for, which the resource has; came the first"
                f" {len(page.data)}: a client that takes a short page for the end loses the rest",
            )
        self._tell(draft)

    async def _end(self, reference: Reference, size: int | None, page_bytes: int) -> None:
        """Past the end, just there and far behind; and whether the end is where it was announced."""
        end = len(reference.data) if reference.complete else size
        if end is None:
            return
        if not reference.complete:
            await self._last_page(max(0, end - page_bytes), end)
        for start in (end, end + MIB):
            draft = self._draft(f"bytes [{start}, {start + page_bytes}), past the end")
            page = await self.pages.page(start, start + page_bytes, draft)
            if self._answered(draft, page):
                if page.data is None:
                    draft.failed(
                        kinds.PAST_END, f"expected nothing, [DONE] or 416 at byte {start}; came {page.why}"
                    )
                elif page.data and not reference.complete:
                    draft.failed(kinds.SIZE, f"expected an end at byte {end} as announced; came more bytes")
                else:
                    why = f"expected nothing at byte {start} of {end}; came {len(page.data)} bytes"
                    draft.require(kinds.PAST_END, not page.data, why)
                if size is not None and start == end and reference.complete:
                    draft.require(kinds.SIZE, size == end, f"expected {size} bytes as announced, came {end}")
            self._tell(draft)

    async def _last_page(self, start: int, end: int) -> None:
        """What was not compared may at least not end before its announced size."""
        draft = self._draft(f"bytes [{start}, {end}), the last announced")
        page = await self.pages.page(start, end, draft)
        if self._answered(draft, page) and page.data is not None:
            draft.require(
                kinds.SIZE, not page.past_end, f"expected {end} bytes as announced; came none at {start}"
            )
            draft.require(
                kinds.LENGTH,
                len(page.data) <= end - start,
                f"expected at most {end - start} bytes, came {len(page.data)}",
            )
        elif page.failure is None:
            draft.undecided = f"no bytes came: {page.why}"
        self._tell(draft)

    async def _empty_range(self) -> None:
        draft = self._draft("bytes [0, 0)")
        page = await self.pages.page(0, 0, draft)
        if self._answered(draft, page):
            count = len(page.data or b"")
            draft.require(kinds.EMPTY, count == 0, f"expected no bytes, or an error; came {count} bytes")
        self._tell(draft)

    async def _at_once(self, size: int) -> None:
        """Small reads, so that it is not the bytes that take the time."""
        draft = self._draft(f"{AT_ONCE} reads at once")
        offsets = [index * 64 % max(1, size - 64) for index in range(AT_ONCE)]
        alone = min([await self._timed([offsets[0]]) for _ in range(2)])
        if alone < SLOW_SECONDS:
            draft.skipped(kinds.CONCURRENT, f"a read takes {alone * 1000:.0f} ms: too quick to tell")
        else:
            together = min([await self._timed(offsets) for _ in range(2)])
            draft.require(
                kinds.CONCURRENT,
                together < alone * (AT_ONCE - 0.5),
                f"expected {AT_ONCE} reads to take about as long as one ({alone:.2f} s); they took"
                f" {together:.2f} s, one after the other",
            )
        self._tell(draft)

    async def _timed(self, offsets: list[int]) -> float:
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            for offset in offsets:
                nursery.start_soon(self.pages.page, offset, offset + 64)
        return trio.current_time() - started

    async def _sound(self, data: bytes, *, whole: bool) -> None:
        draft = self._draft("its sound")
        draft.method = None
        mime_type = self.item.get("mimeType")
        await judge_sound(
            draft,
            data,
            mime_type=mime_type if isinstance(mime_type, str) else None,
            uri=self.item["uri"],
            whole=whole,
        )
        self._tell(draft)

    def _answered(self, draft: TestDraft, page: Page) -> bool:
        why = f"expected an answer to a read of [{page.start}, {page.end}); {page.failure}"
        return draft.require(fault_of(page.failure, kinds.ANSWERED), page.failure is None, why)
